"""Pictures by name: files, and lines of text to be drawn, as ink of one height.

A name is the path of a picture file, or a JSON object such as
`{"text": "A line", "font": "DejaVuSans.ttf", "noise": 0.3}`, which is drawn.
"""

import json
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer_mt.errors import DataError, reason_of
from transformer_mt.text.fonts import FontFile, Ink, LineDrawing, pillow

MAX_PIXELS = 50_000_000
"""Of a file: more would take hundreds of megabytes of memory."""
MAX_WIDTH = 100_000
"""Of a scaled picture, in pixels."""


def drawn_name(text: str, font: str, noise: float) -> str:
    """Return the name of a picture of a line of text."""
    return json.dumps({"text": text, "font": font, "noise": noise}, ensure_ascii=False)


def read_ink(name: str, *, height: int, random: np.random.Generator) -> Ink:
    """Read or draw a picture, scaled to a height.

    Args:
        name: See the module.
        height: In pixels.
        random: Numbers of the noise.

    Raises:
        DataError: If there is no such picture, or it cannot be read.
    """
    if not name.startswith("{"):
        return _file_ink(Path(name), height)
    try:
        wanted = json.loads(name)
        text, font, noise = wanted["text"], wanted["font"], float(wanted.get("noise", 0))
    except (ValueError, TypeError, LookupError) as error:
        raise DataError(
            f'{name[:80]}: expected the path of a picture, or {{"text": .., "font": ..}}'
        ) from error
    return with_noise(_drawing(font, height).ink(text), noise, random)


def with_noise(ink: Ink, strength: float, random: np.random.Generator) -> Ink:
    """Scale and move a line, blur it, pale its ink and add grain; the picture's size stays."""
    if not strength:
        return ink
    picture: NDArray[np.floating] = _moved(ink, strength, random).astype(np.float64)
    if random.random() < strength:  # a box of three columns or rows
        axis = int(random.integers(2))
        picture = (picture + np.roll(picture, 1, axis) + np.roll(picture, -1, axis)) / 3
    picture *= 1 - 0.6 * strength * random.random()
    picture += 60 * strength * random.random()
    picture += random.normal(0, 50 * strength * random.random(), picture.shape)
    noisy: Ink = picture.clip(0, 255).astype(np.uint8)
    return noisy


def _moved(ink: Ink, strength: float, random: np.random.Generator) -> Ink:
    """Scale a line, height and width apart, and put it anywhere in a picture of the same size."""
    (height, width), rows = ink.shape, np.flatnonzero(ink.any(axis=1))
    if not len(rows):
        return ink
    line = ink[rows[0] : rows[-1] + 1]
    stretch = 1 + strength * random.uniform(-0.6, 0.5)
    tall = min(max(round(len(line) * stretch), 1), height)
    wide = max(round(width * (1 - 0.3 * strength * random.random())), 1)
    top, left = random.integers(height - tall + 1), random.integers(width - wide + 1)
    scaled = pillow("Image").fromarray(line).resize((wide, tall), pillow("Image").Resampling.BOX)
    picture = np.zeros_like(ink)
    picture[top : top + tall, left : left + wide] = scaled
    return picture


@lru_cache(maxsize=64)
def _drawing(font: str, height: int) -> LineDrawing:
    return LineDrawing([FontFile.find(font)], height=height)


def _file_ink(path: Path, height: int) -> Ink:
    image_module = pillow("Image")
    try:
        with warnings.catch_warnings(action="ignore"), image_module.open(path) as image:
            if image.width * image.height > MAX_PIXELS:
                raise DataError(
                    f"{path}: {image.width:,} x {image.height:,} pixels; at most {MAX_PIXELS:,} in "
                    "all are read: make it smaller"
                )
            grey = _grey(image_module, pillow("ImageOps").exif_transpose(image))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise DataError(f"{path}: no such picture file") from error
    except DataError:
        raise
    except image_module.DecompressionBombError as error:
        raise DataError(f"{path}: far too many pixels to be read: make it smaller") from error
    except Exception as error:  # whatever its decoders raise
        why = reason_of(error) if isinstance(error, PermissionError) else "no picture, or damaged"
        raise DataError(f"{path}: {why}: expected PNG, JPEG or the like") from error
    width = max(1, round(grey.width * height / grey.height))
    if width > MAX_WIDTH:
        raise DataError(
            f"{path}: {width:,} pixels wide when scaled to a height of {height}; at most "
            f"{MAX_WIDTH:,} are read: cut it"
        )
    scaled = grey.resize((width, height), image_module.Resampling.BOX)
    ink: Ink = 255 - np.asarray(scaled)
    return ink


def _grey(module: Any, image: Any) -> Any:
    """Make 8 bits of grey of any picture, on white where it is transparent."""
    if image.mode.startswith(("I", "F")):  # 16 bits or more, which Pillow would cut off
        values = np.asarray(image, dtype=np.float64)
        most = 65535 if image.mode.startswith("I") else max(values.max(), 1e-9)
        return module.fromarray((values / most * 255).clip(0, 255).astype(np.uint8))
    if not image.has_transparency_data:
        return image.convert("L")
    image = image.convert("RGBA")
    return module.alpha_composite(module.new("RGBA", image.size, "white"), image).convert("L")
