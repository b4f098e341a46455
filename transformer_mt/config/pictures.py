"""Settings of pictures: what the encoder reads them as, and the sources that give them."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from transformer_mt.config.base import PathText, Settings, Weight
from transformer_mt.config.languages import DirectedSettings

Fonts = Annotated[list[PathText], Field(min_length=1)]


class TokenInput(Settings):
    """Source tokens, each with an embedding."""

    type: Literal["tokens"] = "tokens"


class PatchInput(Settings):
    """Pictures in patches, each mapped linearly to an embedding (ViT, Dosovitskiy et al. 2021).

    A picture is scaled to one height and cut into columns of pixels. With sources of type `images`
    or `rendered` the source lines name pictures; with any other, each source sentence is drawn as a
    line of text, and there is no source vocabulary (Salesky et al. 2021).
    """

    type: Literal["patches"]
    height: Annotated[int, Field(ge=8, le=256)] = 16
    """Height of all pictures, in pixels."""
    patch_width: Annotated[int, Field(ge=2, le=256)] = 8
    """Width of a patch, in pixels; its height is that of the picture."""
    fonts: Fonts = Field(default=["DejaVuSans.ttf"])
    """Fonts that source sentences are drawn with: files, or names of fonts of matplotlib or the
    system. A character takes the first font that has it."""


EncoderInput = Annotated[TokenInput | PatchInput, Field(discriminator="type")]


class ImagesSource(DirectedSettings):
    """Pictures and their texts: one file with the path of a picture, a tab and a text per line."""

    type: Literal["images"]
    path: PathText
    """File, UTF-8. Paths in it start from its folder."""
    weight: Weight = 1.0


class RenderedSource(DirectedSettings):
    """Lines of text, each drawn as a picture, and the same lines as the target."""

    type: Literal["rendered"]
    text: Annotated[list[PathText], Field(min_length=1)]
    """Files of lines, UTF-8; blank lines are left out."""
    fonts: Fonts
    """Fonts to draw with, as in `model.encoder_input`; each line has one of those that have all of
    its characters."""
    max_characters: Annotated[int, Field(ge=8)] = 40
    """Longer lines are broken at spaces."""
    noise: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Strength of changes of size and place, blur, pale ink and grain; 0: none. Drawn anew in each
    epoch."""
    seed: int = 1
    """Random seed of the choice of fonts."""
    weight: Weight = 1.0


PICTURES = ("images", "rendered")
"""Types of sources whose source lines name pictures."""


def misfits(
    kinds: set[str], *, patches: bool, tied: bool, document: bool
) -> Iterator[tuple[str, str]]:
    """Find settings that do not go with pictures: as `Settings.contradictions` of a config.

    Args:
        kinds: Types of all sources of data.
        patches: Whether the encoder reads patches.
        tied: Whether source and target share embeddings.
        document: Whether there is document context.
    """
    named = sorted(kinds.intersection(PICTURES))
    if named and not patches:
        yield "model.encoder_input", f"type {named[0]} gives pictures: take {{type: patches}}"
    if not patches:
        return
    if named and kinds - {*PICTURES, "split"}:
        text = sorted(kinds - {*PICTURES, "split"})[0]
        yield "data.train", f"types {named[0]} and {text}: pictures and drawn text do not mix"
    if "monolingual" in kinds:
        yield (
            "data.train",
            "type monolingual changes tokens: not with patches, leave it out",
        )
    if tied:
        yield (
            "model.tie_embeddings",
            "'all' with patches: there is no source embedding: take target",
        )
    if document:
        yield "data.document", "not with model.encoder_input patches: leave it out"
