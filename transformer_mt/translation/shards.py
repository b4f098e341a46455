"""Shards: a text in parts of lines, translated by one process or shared by many, on any machines.

A part is written whole or not at all: into a temporary file, which takes its place when it is on
the disk. Then comes its record: what went in, with which model and options, how many lines came
out, and their checksum. A part whose record fits is never translated again, one without is
translated anew, so that each line is translated exactly once in what is read in the end, whoever
was killed meanwhile. Worker J of W takes the parts J, J + W, ..: they need no locks and no
messages, which network disks and batch systems do not have.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from transformer_mt.errors import UNREADABLE_JSON, ConfigError, TmtError
from transformer_mt.log import counted
from transformer_mt.storage.folders import MANIFEST, replace_file, replace_json
from transformer_mt.storage.hashes import hash_file
from transformer_mt.storage.untrusted import read_json
from transformer_mt.text.lines import read_lines

if TYPE_CHECKING:
    from transformer_mt.bundle import Bundle
    from transformer_mt.translation.translator import Translator

PART_LINES = 4096
_PACE = ("num_workers", "batch_tokens", "compile")
"""Search options that decide how fast a text is translated, but not to what."""


@dataclass(frozen=True)
class Part:
    """Consecutive lines of a text.

    Attributes:
        number: From 0.
        first_line: Number of its first line, from 1.
        lines: The lines.
    """

    number: int
    first_line: int
    lines: Sequence[str]


def identity(
    translator: "Translator",
    bundle: "Bundle",
    texts: Sequence[Path],
    *,
    precision: str,
    part_lines: int,
) -> dict[str, Any]:
    """Return all that decides what the parts hold, as JSON values.

    Raises:
        ConfigError: If the model reads lines in their order.
    """
    if translator.reads_documents:
        raise ConfigError(
            "a model of documents (data.document) reads lines in their order, but parts of a text "
            "are translated alone: take a model of single sentences, or `tmt translate` without "
            "--shards"
        )
    options = asdict(translator.options)
    search = {name: value for name, value in options.items() if name not in _PACE}
    return {
        "languages": [bundle.config.data.src_lang, bundle.config.data.tgt_lang],
        "model": xxhash.xxh3_128_hexdigest(bundle.fingerprint.encode()),
        "texts": [hash_file(path, "xxh3") for path in texts],
        "search": json.loads(json.dumps(search)),
        "precision": precision,
        "part_lines": part_lines,
        **({"tags": asdict(bundle.tags)} if bundle.tags else {}),
    }


class Shards:
    """The parts of a text, and the folder of their results.

    Args:
        folder: Where they go.
        texts: Files of lines.
        about: What decides the results: see `identity`; with `part_lines`.
        suffix: Of the files of parts.
    """

    def __init__(
        self, folder: Path, texts: Sequence[Path], about: dict[str, Any], *, suffix: str = ".jsonl"
    ) -> None:
        self.folder, self._texts, self.about, self._suffix = folder, texts, about, suffix
        self._part_lines = int(about["part_lines"])

    def begin(self) -> None:
        """Mark the folder as ours, or check that its parts were written with the same.

        Raises:
            ConfigError: If they were not.
        """
        path = self.folder / MANIFEST
        if not any(self.folder.glob("part-*")):
            replace_json(path, self.about)
            return
        try:
            before = dict(read_json(path))
        except UNREADABLE_JSON as error:
            raise ConfigError(f"{path}: cannot be read: choose another folder") from error
        if changed := [name for name in self.about if before.get(name) != self.about[name]]:
            raise ConfigError(
                f"{self.folder}: its parts were written with other settings "
                f"({', '.join(changed)}): repeat the command as it was to continue it, or choose "
                "another folder"
            )

    def parts(self) -> Iterator[Part]:
        """Read the text part by part."""
        lines = chain.from_iterable(map(read_lines, self._texts))
        number = 0
        while part := list(islice(lines, self._part_lines)):
            yield Part(number, number * self._part_lines + 1, part)
            number += 1

    def path(self, part: Part) -> Path:
        """Return the file of a part's result."""
        return self.folder / f"part-{part.number:06}{self._suffix}"

    def is_done(self, part: Part) -> bool:
        """Return whether the result of a part is there, whole and of this text and model."""
        try:
            found = read_json(self._record_path(part))
            return bool(found == self._record(part, found["rows"]))
        except UNREADABLE_JSON:
            return False

    def write(self, part: Part, rows: Iterable[str]) -> None:
        """Write the result of a part, and then its record.

        Args:
            part: The part.
            rows: Lines of the result, without their ends.

        Raises:
            TmtError: If the disk refuses.
        """
        written = list(rows)
        replace_file(self.path(part), "".join(f"{row}\n" for row in written))
        replace_json(self._record_path(part), self._record(part, len(written)))

    def work(
        self,
        translate: Callable[[Part], Iterable[str]],
        *,
        share: tuple[int, int] = (0, 1),
        on_progress: Callable[[int, int | None], None] | None = None,
    ) -> None:
        """Translate the parts that are not there.

        Args:
            translate: Returns the lines of a part's result.
            share: Number of this worker, from 0, and of all: it takes each part whose number has
                this remainder.
            on_progress: Called after each part with the number of lines up to it, and None.
        """
        worker, num_workers = share
        for part in self.parts():
            if part.number % num_workers == worker and not self.is_done(part):
                self.write(part, translate(part))
            if on_progress is not None:
                on_progress(part.first_line + len(part.lines) - 1, None)

    def missing(self) -> list[int]:
        """Return the numbers of the parts that are not there."""
        return [part.number for part in self.parts() if not self.is_done(part)]

    def finish(self, run_workers: Callable[[], None], *, most_idle_rounds: int = 3) -> None:
        """Let workers translate until no part is missing.

        Args:
            run_workers: Starts all of them and returns when they have ended, however they did.
            most_idle_rounds: Give up after as many rounds in a row that finished no part: what
                kills a worker again and again must not be repeated for ever.

        Raises:
            TmtError: If that is the case; the finished parts stay.
        """
        missing = self.missing()
        idle = 0
        while missing:
            run_workers()
            before, missing = len(missing), self.missing()
            idle = 0 if len(missing) < before else idle + 1
            if idle == most_idle_rounds:
                raise TmtError(
                    f"{self.folder}: {counted(len(missing), 'part')} could not be translated in "
                    f"{idle} rounds, the first is number {missing[0]} from line "
                    f"{missing[0] * self._part_lines + 1:,}: see the messages of the workers; the "
                    "same command continues"
                )

    def _record_path(self, part: Part) -> Path:
        return self.path(part).with_suffix(".done.json")

    def _record(self, part: Part, num_rows: object) -> dict[str, object]:
        """Return what is known of a finished part.

        Raises:
            OSError: If its file is not there.
        """
        lines = xxhash.xxh3_128()
        for line in part.lines:
            lines.update(f"{line}\n".encode("utf-8", "surrogatepass"))
        about = json.dumps(self.about, sort_keys=True).encode()
        return {
            "input": lines.hexdigest(),
            "about": xxhash.xxh3_128_hexdigest(about),
            "lines": len(part.lines),
            "rows": num_rows,
            "checksum": hash_file(self.path(part), "xxh3"),
        }
