"""Glossary: terms with fixed translations, found in the source as whole words."""

import itertools
import logging
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transformer_mt.errors import DataError
from transformer_mt.text.special_ids import UNK_ID
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.text.words import PART_OF_WORD, UNIT

logger = logging.getLogger(__name__)

MAX_WARNINGS = 20

_SENTENCE_END = re.compile(r"[.!?\u2026\u3002\uff01\uff1f\u0964\u061f]")

_PART_OF_WORD = re.compile(rf"{PART_OF_WORD.pattern}|<0x..>")


@dataclass(frozen=True)
class Term:
    """A term and its translation."""

    source: str
    target: str

    def is_in(self, text: str) -> bool:
        """Return whether a text has the translation, as whole words, in the same case."""
        return num_met([self], text) == 1


def num_met(terms: Sequence[Term], text: str) -> int:
    """Count the terms whose translations are in a text: see `Term.is_in`."""
    units = _units(text)
    places: dict[str, list[int]] = defaultdict(list)
    for place, unit in enumerate(units):
        places[unit].append(place)
    found = 0
    for term in terms:
        wanted = _units(term.target)
        found += any(units[i : i + len(wanted)] == wanted for i in places.get(wanted[0], []))
    return found


def _units(text: str) -> list[str]:
    """Return words and signs in one normal form: an accent may be a character of its own (NFD)."""
    return UNIT.findall(unicodedata.normalize("NFC", text))


def misplaced(terms: Sequence[Term], source: str, text: str) -> list[str]:
    """Return the translations that look appended or doubled, as by a model that never saw them.

    They occur only after the last sentence, counted as the source has them, or more often than in
    the source.
    """
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    num_ends = len(_SENTENCE_END.findall(source))
    has_end = bool(ends) and _SENTENCE_END.search(source.rstrip()[-2:]) is not None
    inside = _units(text[: ends[min(len(ends), num_ends) - 1]] if has_end else text)
    units = _units(text)
    source_units = [unit.lower() for unit in _units(source)]
    found = []
    for term in terms:
        wanted = _units(term.target)
        times = _times(wanted, units)
        allowed = max(1, _times([unit.lower() for unit in _units(term.source)], source_units))
        if times > allowed or (times and not _times(wanted, inside)):
            found.append(term.target)
    return found


def added_to(terms: Sequence[Term], text: str, plain: str) -> list[str]:
    """Return the translations that are next to the words they should replace, or seem to be.

    They are between two words that are neighbours in the translation without any glossary:
    `Ein Köter Hund bellt`, where that is `Ein Hund bellt`.
    """
    units, usual = (["", *_units(some.lower()), ""] for some in (text, plain))
    neighbours = set(itertools.pairwise(usual))
    found = []
    for term in terms:
        wanted = _units(term.target.lower())
        ends = [i + len(wanted) for i in range(1, len(units)) if units[i:][: len(wanted)] == wanted]
        around = {(units[end - len(wanted) - 1], units[end]) for end in ends}
        if around and around <= neighbours and not _times(wanted, usual):
            found.append(term.target)
    return found


def _times(wanted: Sequence[str], units: Sequence[str]) -> int:
    """Count where some units stand among others."""
    return sum(
        list(units[i : i + len(wanted)]) == list(wanted)
        for i in range(len(units) - len(wanted) + 1)
    )


class Glossary:
    """Finds terms in sources.

    A term without capitals matches in any case, also at the start of a sentence; one with capitals
    matches exactly and takes precedence: `us` and `US` may differ. Of overlapping terms the one
    that begins first is taken, and of those the longest.

    Args:
        terms: Of equal sources the first counts.
    """

    def __init__(self, terms: Iterable[Term]) -> None:
        self._by_first: dict[str, list[tuple[list[str], bool, Term]]] = defaultdict(list)
        for term in terms:
            units = _units(term.source)
            is_exact = term.source != term.source.lower()
            self._by_first[units[0].lower()].append((units, is_exact, term))
        for entries in self._by_first.values():
            entries.sort(key=lambda entry: (-len(entry[0]), not entry[1]))

    def find(self, text: str) -> list[Term]:
        """Return the terms of a source in their order, each once."""
        exact = _units(text)
        lower = [unit.lower() for unit in exact]
        found: dict[Term, None] = {}
        place = 0
        while place < len(exact):
            for units, is_exact, term in self._by_first.get(lower[place], ()):
                if (exact if is_exact else lower)[place : place + len(units)] == units:
                    found[term] = None
                    place += len(units) - 1
                    break
            place += 1
        return list(found)


def read_glossary(lines: Iterable[str], name: str) -> Glossary:
    """Read a source term, a tab and its translation from each line.

    Blank lines and those that begin with # are skipped. Malformed lines are left out, the first
    `MAX_WARNINGS` of them with a warning that gives the number.

    Args:
        lines: Of a file.
        name: Of the file, for messages.

    Raises:
        DataError: If there are lines, but none is usable.
    """
    terms: dict[str, Term] = {}
    wrong: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) != 2 or not all(fields):
            wrong.append(f"{name}:{number}: expected a term, one tab and its translation")
        elif fields[0] in terms and terms[fields[0]].target != fields[1]:
            wrong.append(f"{name}:{number}: '{fields[0]}' is already '{terms[fields[0]].target}'")
        else:
            terms[fields[0]] = Term(*fields)
    for message in wrong[:MAX_WARNINGS]:
        logger.warning("%s; left out", message)
    if len(wrong) > MAX_WARNINGS:
        logger.warning("%s: %d more lines left out", name, len(wrong) - MAX_WARNINGS)
    if wrong and not terms:
        raise DataError(
            f"{name}: no usable line: expected a term, a tab and its translation on each; "
            "a CSV with commas or semicolons must be saved with tabs"
        )
    if not terms:
        logger.warning("%s: no terms", name)
    return Glossary(terms.values())


def cuts_of(text: str, tokenizer: Tokenizer) -> list[list[int]]:
    """Return the tokens of a text after a space, and if it needs none, also those without one.

    Text with unknown characters is tokenized in one way only.
    """
    cuts = [tokenizer.encode(text)]
    if UNK_ID not in cuts[0] and not _PART_OF_WORD.match(text):
        cuts.append(tokenizer.encode_inside(text))
    return cuts


def words_continued(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Return which tokens would prolong a word that stands before them (V,), True or False."""
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    return np.array([_PART_OF_WORD.match(piece) is not None for piece in pieces])
