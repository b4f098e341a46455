"""Synthetic parallel text: lines and their translations by a model, in a folder of plain files.

A teacher's translations of training sources are what a student learns from (sequence-level
knowledge distillation); translations of target text into the source language are pairs where there
were none (back-translation). Both are the same work, and differ in which side the model writes.

The lines are translated in shards (see `shards`): a process that was stopped continues with the
parts that are missing, several may share them, and what is written in the end is the same.

Source: Kim and Rush 2016, section 3.2; Sennrich et al. 2016 (Improving NMT models with monolingual
data), section 3.2.

Torch is imported by the translator, after a user's files have been looked at.
"""

import json
import logging
import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from transformer_mt.config.language_codes import CODES, plain_code
from transformer_mt.errors import ConfigError, DataError
from transformer_mt.log import counted
from transformer_mt.storage.folders import (
    MANIFEST,
    explain_write_errors,
    new_file,
    replace_json,
)
from transformer_mt.storage.locks import claimed
from transformer_mt.storage.overwriting import refuse_others
from transformer_mt.text.lines import ARCHIVES, is_blank, read_lines
from transformer_mt.translation.shards import PART_LINES, Part, Shards, identity

if TYPE_CHECKING:
    from transformer_mt.bundle import Bundle
    from transformer_mt.translation.translator import Translator

KIND = "transformer_mt synthetic text"
FORMAT_VERSION = 1
Record = tuple[str, float, str, str]
"""Why a line is left out, if so; mean log-probability of a token; the line; its translation."""

_REPEATED = re.compile(r"(\S{1,20}?)(?: ?\1){5,}")
"""The same characters six times in a row: a search that found no end, which a student learns."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SyntheticText:
    """What was written.

    Attributes:
        src: File of source lines.
        tgt: File of target lines, as many.
        lines: Lines that were translated.
        pairs: Pairs in the files.
        left_out: Number of other lines by reason.
        mean_score: Of the pairs: log-probability of a token of the translation, in nats.
    """

    src: str
    tgt: str
    lines: int
    pairs: int
    left_out: dict[str, int] = field(default_factory=dict)
    mean_score: float = 0.0

    def __str__(self) -> str:
        """Say how many there are."""
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in self.left_out.items())
        return (
            f"{counted(self.pairs, 'pair')} of {counted(self.lines, 'line')}"
            f"{f' (left out: {reasons})' if reasons else ''}; log-probability of a token "
            f"{self.mean_score:.3f} on average"
        )


def check_texts(texts: Sequence[Path], folder: Path, *, keep: float) -> None:
    """Refuse what cannot be done, before a model is loaded.

    Raises:
        ConfigError: If something else is in the folder, or the share is none.
        DataError: If a text is not there.
    """
    if not 0 < keep <= 1:
        raise ConfigError(f"--keep {keep:g}: expected a share of the lines, above 0 and up to 1")
    refuse_others(folder, KIND)
    for path in texts:
        if not path.is_file():  # to resume, it is read again
            raise DataError(f"{path}: no such file" if not path.exists() else f"{path}: not a file")


def synthesize(
    translator: "Translator",
    bundle: "Bundle",
    texts: Sequence[Path],
    folder: Path,
    *,
    writes: Literal["src", "tgt"],
    keep: float = 1.0,
    precision: str = "fp32",
    part_lines: int = PART_LINES,
    run_workers: Callable[[], None] | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> SyntheticText:
    """Translate texts, and write what was read and what came of it as two parallel files.

    Left out are blank lines, lines that the model cannot translate in one piece, empty
    translations, those that repeat themselves, copies of the line, and the pairs with the lowest
    scores.

    Args:
        translator: The model, ready to translate.
        bundle: The same model: says which languages it reads and writes.
        texts: Files of lines in the language that the model reads.
        folder: Where parts and files go. If an earlier call was stopped, this one continues it.
        writes: Which side of the pairs the model writes: `tgt` to distil it, `src` for
            back-translation.
        keep: Share of the translations to keep, those with the highest mean log-probability.
        precision: In which the model was loaded.
        part_lines: Lines that are translated and written together.
        run_workers: Lets workers translate the parts: see `Shards.finish`.
        on_progress: Called after each part with the number of lines so far, and None.

    Raises:
        ConfigError: If the folder holds something else, or was begun with another model, text or
            search; or the text is in a language that the model does not read.
        DataError: If a text cannot be read, or nothing is left of it.
        TmtError: If the disk refuses; the parts stay, and the same call continues.
    """
    check_texts(texts, folder, keep=keep)
    languages = bundle.config.data.src_lang, bundle.config.data.tgt_lang
    _check_model(texts, languages[0])
    shards = shards_of(
        translator, bundle, texts, folder, writes=writes, precision=precision, part_lines=part_lines
    )
    with explain_write_errors(folder), claimed(folder):
        shards.begin()
        if run_workers is not None:
            shards.finish(run_workers)
        # What workers have done is there.
        shards.work(rows_of(translator, bundle), on_progress=on_progress)
        parts = list(shards.parts())
        names = _names(folder, languages, writes)
        num_lines = sum(len(part.lines) for part in parts)
        paths = list(map(shards.path, parts))
        result = _joined(paths, names, keep=keep, lines=num_lines, writes=writes)
        replace_json(folder / MANIFEST, shards.about | {"result": asdict(result)})
    logger.info("%s: %s", folder, result)
    return result


def shards_of(
    translator: "Translator",
    bundle: "Bundle",
    texts: Sequence[Path],
    folder: Path,
    *,
    writes: Literal["src", "tgt"],
    precision: str,
    part_lines: int,
) -> Shards:
    """Return the shards of a synthetic text; the arguments are those of `synthesize`."""
    about = {"kind": KIND, "format_version": FORMAT_VERSION, "writes": writes}
    about |= identity(translator, bundle, texts, precision=precision, part_lines=part_lines)
    return Shards(folder, texts, about)


def rows_of(translator: "Translator", bundle: "Bundle") -> Callable[[Part], Iterator[str]]:
    """Return what translates a part of a synthetic text: to a record of each line, as JSON."""

    def rows(part: Part) -> Iterator[str]:
        """Translate a part."""
        records = _translated(translator, part.lines, first_line=part.first_line)
        return _rows(records, drop_copies=bundle.config.data.drops_copies())

    return rows


def _check_model(texts: Sequence[Path], reads: str) -> None:
    """Refuse a model that does not read the language of these texts."""
    for path in texts:
        plain = path.with_suffix("") if path.suffix.lower() in ARCHIVES else path
        code = plain.suffix[1:].lower()
        if plain_code(code) in CODES and plain_code(code) != plain_code(reads):
            raise ConfigError(
                f"{path}: by its name it is '{code}', but the model reads '{reads}': name a text "
                "of that language (under another name, if its name is wrong), or another model"
            )


def _translated(
    translator: "Translator", lines: Sequence[str], *, first_line: int
) -> Iterator[Record]:
    """Yield a record of each line."""
    found = translator.translate(lines, first_line=first_line)
    for line, translation in zip(lines, found, strict=True):
        best = translation.n_best[0]
        score = best.log_prob / (len(best.tokens) + 1)  # the end of sentence, too
        reason = ""
        if is_blank(line):
            reason = "blank"
        elif translation.num_cut:
            reason = "too long"
        elif is_blank(best.text):
            reason = "empty translation"
        elif _REPEATED.search(best.text) and not _REPEATED.search(line):
            reason = "repetition"
        yield reason, score, line, best.text


def _rows(records: Iterator[Record], *, drop_copies: bool) -> Iterator[str]:
    """Return records as lines of JSON."""
    for reason, score, line, translation in records:
        is_copy = drop_copies and not reason and line.split() == translation.split()
        row = ("copy" if is_copy else reason, score, line, translation)
        yield json.dumps(row, ensure_ascii=False)


def _names(
    folder: Path, languages: tuple[str, str], writes: Literal["src", "tgt"]
) -> tuple[Path, Path]:
    """Return the files of the sources and of the targets."""
    src, tgt = languages if writes == "tgt" else languages[::-1]
    ends = (src, tgt) if src != tgt else ("src", "tgt")
    first, second = (folder / f"train.{re.sub('[^A-Za-z0-9-]', '-', end)}" for end in ends)
    return first, second


def _joined(
    parts: Sequence[Path], names: tuple[Path, Path], *, keep: float, lines: int, writes: str
) -> SyntheticText:
    """Write the pairs of all parts that are good enough."""
    scores = array("d", (score for reason, score, _, _ in _records(parts) if not reason))
    if not scores:
        raise DataError(f"{names[0].parent}: nothing is left of {counted(lines, 'line')}")
    least = sorted(scores)[len(scores) - math.ceil(keep * len(scores))]
    left_out: Counter[str] = Counter()
    total = 0.0
    with new_file(names[0]) as src, new_file(names[1]) as tgt:
        given, made = (src, tgt) if writes == "tgt" else (tgt, src)
        for reason, score, line, translation in _records(parts):
            if reason or score < least:
                left_out[reason or "low score"] += 1
                continue
            given.write(f"{line}\n".encode())
            made.write(f"{translation}\n".encode())
            total += score
    pairs = lines - left_out.total()
    reasons = dict(sorted(left_out.items()))
    return SyntheticText(str(names[0]), str(names[1]), lines, pairs, reasons, total / pairs)


def _records(parts: Sequence[Path]) -> Iterator[Record]:
    for path in parts:
        for line in read_lines(path):
            try:
                reason, score, text, translation = json.loads(line)
            except (ValueError, TypeError) as error:
                raise DataError(
                    f"{path}: cannot be read: remove it, and repeat the command"
                ) from error
            yield reason, score, text, translation
