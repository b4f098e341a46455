"""Synthetic parallel text: lines and their translations by a model, in a folder of plain files.

A teacher's translations of training sources are what a student learns from (sequence-level
knowledge distillation); translations of target text into the source language are pairs where there
were none (back-translation). Both are the same work, and differ in which side the model writes.

The lines are translated in parts of a fixed number of lines. A part is written whole or not at all,
and holds every line of it; so a process that was stopped continues after the last one, and what it
writes in the end is the same.

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
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import xxhash

from transformer_mt.config.language_codes import CODES, plain_code
from transformer_mt.errors import UNREADABLE_JSON, ConfigError, DataError
from transformer_mt.log import counted
from transformer_mt.storage.folders import (
    MANIFEST,
    explain_write_errors,
    new_file,
    replace_file,
    replace_json,
)
from transformer_mt.storage.hashes import hash_file
from transformer_mt.storage.locks import claimed
from transformer_mt.storage.overwriting import refuse_others
from transformer_mt.storage.untrusted import read_json
from transformer_mt.text.lines import ARCHIVES, is_blank, read_lines

if TYPE_CHECKING:
    from transformer_mt.bundle import Bundle
    from transformer_mt.translation.translator import Translator

KIND = "transformer_mt synthetic text"
FORMAT_VERSION = 1
PART_LINES = 4096
_PACE = ("num_workers", "batch_tokens", "compile")
"""Search options that decide how fast a text is translated, but not to what."""

Record = tuple[str, float, str, str]
"""Why a line is left out, if so; mean log-probability of a token; the line; its translation."""

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
    on_progress: Callable[[int, int | None], None] | None = None,
) -> SyntheticText:
    """Translate texts, and write what was read and what came of it as two parallel files.

    Left out are blank lines, lines that the model cannot translate in one piece, empty
    translations, copies of the line, and the pairs with the lowest scores.

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
        on_progress: Called after each part with the number of lines so far, and None.

    Raises:
        ConfigError: If the folder holds something else, or was begun with another model, text or
            search; or the text is in a language that the model does not read.
        DataError: If a text cannot be read, or nothing is left of it.
        TmtError: If the disk refuses; the parts stay, and the same call continues.
    """
    check_texts(texts, folder, keep=keep)
    languages = bundle.config.data.src_lang, bundle.config.data.tgt_lang
    _check_model(translator, texts, languages[0])
    with explain_write_errors(folder), claimed(folder):
        about = _about(translator, bundle, texts, writes, precision, part_lines)
        _begin(folder, about)
        num_lines = 0
        parts: list[Path] = []
        lines = chain.from_iterable(map(read_lines, texts))
        while part := list(islice(lines, part_lines)):
            parts.append(folder / f"part-{len(parts):06}.jsonl")
            if not parts[-1].exists():
                records = _translated(translator, part, first_line=num_lines + 1)
                _write_part(parts[-1], records, drop_copies=bundle.config.data.drops_copies())
            num_lines += len(part)
            if on_progress is not None:
                on_progress(num_lines, None)
        names = _names(folder, languages, writes)
        result = _joined(parts, names, keep=keep, lines=num_lines, writes=writes)
        replace_json(folder / MANIFEST, about | {"result": asdict(result)})
    logger.info("%s: %s", folder, result)
    return result


def _check_model(translator: "Translator", texts: Sequence[Path], reads: str) -> None:
    """Refuse a model that cannot read these texts."""
    if translator.reads_documents:
        raise ConfigError(
            "a model of documents (data.document) reads lines in their order, but parts of a text "
            "are translated alone: take a model of single sentences, or `tmt translate`"
        )
    for path in texts:
        plain = path.with_suffix("") if path.suffix.lower() in ARCHIVES else path
        code = plain.suffix[1:].lower()
        if plain_code(code) in CODES and plain_code(code) != plain_code(reads):
            raise ConfigError(
                f"{path}: by its name it is '{code}', but the model reads '{reads}': name a text "
                "of that language (under another name, if its name is wrong), or another model"
            )


def _about(
    translator: "Translator",
    bundle: "Bundle",
    texts: Sequence[Path],
    writes: str,
    precision: str,
    part_lines: int,
) -> dict[str, Any]:
    """Return all that decides what the parts hold."""
    options = asdict(translator.options)
    search = {name: value for name, value in options.items() if name not in _PACE}
    return {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "languages": [bundle.config.data.src_lang, bundle.config.data.tgt_lang],
        "model": xxhash.xxh3_128_hexdigest(bundle.fingerprint.encode()),
        "texts": [hash_file(path, "xxh3") for path in texts],
        "search": json.loads(json.dumps(search)),
        "precision": precision,
        "writes": writes,
        "part_lines": part_lines,
        **({"tags": asdict(bundle.tags)} if bundle.tags else {}),
    }


def _begin(folder: Path, about: dict[str, Any]) -> None:
    """Mark a folder as ours, or check that its parts were written with the same."""
    path = folder / MANIFEST
    if not any(folder.glob("part-*")):
        replace_json(path, about)
        return
    try:
        before = dict(read_json(path))
    except UNREADABLE_JSON as error:
        raise ConfigError(f"{path}: cannot be read: choose another folder") from error
    if changed := [name for name in about if before.get(name) != about[name]]:
        raise ConfigError(
            f"{folder}: its parts were written with other settings ({', '.join(changed)}): repeat "
            "the command as it was to continue it, or choose another folder"
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
        yield reason, score, line, best.text


def _write_part(path: Path, records: Iterator[Record], *, drop_copies: bool) -> None:
    rows = []
    for reason, score, line, translation in records:
        is_copy = drop_copies and not reason and line.split() == translation.split()
        rows.append((("copy" if is_copy else reason), score, line, translation))
    replace_file(path, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))


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
