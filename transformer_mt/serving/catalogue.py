"""Models of a server by language pair, reloaded when a new one is put in place."""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from transformer_mt.config.language_codes import NAMES, plain_code
from transformer_mt.config.languages import LANGUAGE_PATTERN
from transformer_mt.errors import ConfigError, TmtError, brief
from transformer_mt.serving.limits import Refused
from transformer_mt.storage.folders import MANIFEST

if TYPE_CHECKING:
    from transformer_mt.translation.model import Model
    from transformer_mt.translation.requests import Line
    from transformer_mt.translation.results import Translation

logger = logging.getLogger(__name__)

Pair: TypeAlias = tuple[str, str]
Load: TypeAlias = "Callable[[Path | None], Model]"

_NAMES = {code: name.capitalize() for name, code in reversed(NAMES.items()) if name.isascii()}


def language_name(code: str) -> str:
    """Return the English name of a language, or its code where no name is known."""
    name = _NAMES.get(plain_code(code))
    if name is None:
        return code
    region = re.split("[-_@]", code)[1:]
    return f"{name} ({'-'.join(region)})" if region else name


@dataclass(frozen=True)
class Direction:
    """A model in one of its directions.

    Attributes:
        model: The model; threads may share it.
        source: Code of the source language, as the model has it.
        target: Code of the target language.
    """

    model: "Model"
    source: str
    target: str

    def translate(self, lines: "Sequence[str | Line]", **options: Any) -> "list[Translation]":
        """Translate lines in this direction: see `Model.translate`."""
        return self.model.translate(lines, from_=self.source, to=self.target, **options)


class ServedModel:
    """A model of a folder that may be replaced while it is used.

    Args:
        name: `DIR`, or `SRC-TGT=DIR` for a single direction, under the codes given. "": the model
            that `api.load` finds.
        load: Loads a folder.

    Raises:
        ConfigError: If the pair is none of the model, or the model does not read text.
        ModelError: See `api.load`.
    """

    def __init__(self, name: str, load: Load) -> None:
        pair, separator, path = name.partition("=")
        codes = re.split("-|:", pair) if ":" not in pair else pair.split(":")
        is_pair = len(codes) == 2 and all(map(LANGUAGE_PATTERN.fullmatch, codes))
        self._pair: Pair | None = (codes[0], codes[1]) if separator and is_pair else None
        folder = path if self._pair else name
        self._path = Path(folder).expanduser() if folder else None
        self._load = load
        self._stamp: tuple[int, ...] = ()
        self._use(load(self._path))

    def reload(self) -> None:
        """Load the model again if its folder holds another one; a damaged one is reported."""
        stamp = _stamp(self.folder)
        if stamp == self._stamp:
            return
        try:
            self._use(self._load(self._path))
            logger.info("%s: the new model is in use", self.folder)
        except (TmtError, OSError) as error:
            self._stamp = stamp  # not tried again until it changes
            logger.error("%s: the new model cannot be used: %s", self.folder, error)
        except Exception as error:
            self._stamp = stamp
            logger.error("%s: the new model cannot be used: %s", self.folder, brief(error))

    def _use(self, model: "Model") -> None:
        """Take a model whose first translation succeeds."""
        directory = model.bundle.directory
        assert directory is not None
        stamp = _stamp(directory)
        if model.config.data.names_pictures():
            raise ConfigError(f"{directory}: this model reads pictures: `tmt serve` is for text")
        directions = dict(self._directions_of(model))
        next(iter(directions.values())).translate(["a"])
        self.folder, self._stamp, self.directions = directory, stamp, directions

    def _directions_of(self, model: "Model") -> Iterator[tuple[Pair, Direction]]:
        read, written = model.config.data.languages()
        pairs = [pair for pair in product(read, written) if pair[0] != pair[1]]
        pairs = pairs or list(zip(read, written, strict=True))
        if self._pair is None:
            yield from ((pair, Direction(model, *pair)) for pair in pairs)
            return
        own = self._pair if self._pair in pairs else pairs[0]
        if own != self._pair and (len(pairs) > 1 or self._pair == own[::-1]):
            known = ", ".join(map("-".join, pairs[:20]))
            raise ConfigError(
                f"--model {'-'.join(self._pair)}=..: not a direction of this model: {known}"
            )
        yield self._pair, Direction(model, *own)


class Catalogue:
    """The directions that a server translates in.

    Args:
        models: The models.
        pivot: Language to translate over where no model has a direction; None: there is none.

    Attributes:
        directions: The models by source and target.
        languages: Of all models, those that are read first.

    Raises:
        ConfigError: If two models have the same direction, or none the pivot.
    """

    def __init__(self, models: Sequence[ServedModel], *, pivot: str | None = None) -> None:
        self._models = models
        self._pivot = pivot
        self._collect()
        seen: dict[Pair, Path] = {}
        for model in models:
            for pair in model.directions:
                if pair in seen:
                    raise ConfigError(
                        f"--model: {seen[pair]} and {model.folder} both translate "
                        f"{'-'.join(pair)}: name the pair that one is for, such as "
                        f"--model en-de={model.folder}"
                    )
                seen[pair] = model.folder
        if pivot is not None and not any(pivot in pair for pair in seen):
            raise ConfigError(f"--pivot {pivot}: no model has this language")

    def reload(self) -> None:
        """Load the models again whose folders hold new ones."""
        for model in self._models:
            model.reload()
        self._collect()

    def _collect(self) -> None:
        self.directions = {p: own for model in self._models for p, own in model.directions.items()}
        read, written = zip(*self.directions, strict=True)
        self.languages = list(dict.fromkeys((*read, *written)))

    def targets(self, source: str) -> list[str]:
        """List the languages that a language can be translated into, itself included."""
        return [code for code in self.languages if self._way(source, code) is not None]

    def way(self, source: str, target: str) -> list[Direction]:
        """Return the models that translate a text one after the other; none: it stays as it is.

        Raises:
            Refused: If a language is unknown, or there is no way from one to the other.
        """
        for code in (source, target):
            if code not in self.languages:
                raise Refused(400, f"{code} is not supported")
        way = self._way(source, target)
        if way is None:
            raise Refused(
                400,
                f"{language_name(target)} ({target}) is not available as a target language from "
                f"{language_name(source)} ({source})",
            )
        return way

    def _way(self, source: str, target: str) -> list[Direction] | None:
        directions = self.directions
        if (source, target) in directions:
            return [directions[source, target]]
        if source == target:
            return []
        over = (source, self._pivot), (self._pivot, target)
        if self._pivot is not None and all(pair in directions for pair in over):
            return [directions[pair] for pair in over]  # type: ignore[index]
        return None


def _stamp(folder: Path) -> tuple[int, ...]:
    """Return what changes when a folder of a model is replaced; nothing while it is missing."""
    try:
        facts = (folder / MANIFEST).stat()
    except OSError:
        return ()
    return facts.st_ino, facts.st_mtime_ns, facts.st_size
