"""Translation memory: exact matches, and similar ones by their words.

Similarity is 2 M / T of word lists, with M words in matching blocks of T in both (Ratcliff and
Obershelp, 1983), as `difflib` has it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from difflib import SequenceMatcher
from pathlib import Path
from typing import Self

from transformer_mt.documents.bitext import Entry, kind_of_bitext, read_entries
from transformer_mt.documents.document import Filled, Segment
from transformer_mt.errors import ConfigError
from transformer_mt.text.lines import with_single_spaces
from transformer_mt.text.marks import marks_in
from transformer_mt.text.words import UNIT

LEAST_SIMILARITY = 0.75
"""Of a match that is proposed for review, as translators' programs have it by default."""

_MOST_CANDIDATES = 30
_COMMON = 2000
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


class TranslationMemory:
    """Earlier translations, found by their source.

    Of several translations of a text the one with the same context is taken, else the most
    frequent one, of those the last.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries: dict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            if entry.source.strip() and entry.target.strip():
                self._entries[with_single_spaces(entry.source)].append(entry)
        self._sources = list(self._entries)
        self._with_word: dict[str, list[int]] = defaultdict(list)
        for number, source in enumerate(self._sources):
            for word in set(_words(source)):
                self._with_word[word].append(number)

    def __len__(self) -> int:
        """Return the number of different sources."""
        return len(self._sources)

    @classmethod
    def load(cls, path: Path, src_lang: str, tgt_lang: str) -> Self:
        """Read a memory from a TMX, PO, MO, XLIFF or TSV file.

        Raises:
            ConfigError: If its name says that it is something else.
            DataError: If it cannot be read.
        """
        kind = kind_of_bitext(path)
        if kind is None:
            raise ConfigError(f"{path}: expected a .tmx, .po, .mo, .xlf or .tsv file as a memory")
        return cls(read_entries(path, kind, src_lang=src_lang, tgt_lang=tgt_lang, inline="keep"))

    def find(self, segment: Segment, *, similar: bool) -> Filled | None:
        """Return an exact match; else, if wanted, the most similar one from `LEAST_SIMILARITY`."""
        source = with_single_spaces(segment.source)
        if source in self._entries:
            return Filled(_spaced(self._best(source, segment), segment.source), "memory")
        found = self._similar(source) if similar else None
        if found is None:
            return None
        text = _spaced(self._best(found, segment), segment.source)
        return Filled(text, "fuzzy", match=found)

    def _best(self, source: str, segment: Segment) -> str:
        entries = self._entries[source]
        own = [one for one in entries if one.context and one.context == segment.context]
        counts = Counter(one.target for one in own or entries)
        return max(reversed([one.target for one in own or entries]), key=lambda text: counts[text])

    def _similar(self, source: str) -> str | None:
        """Return the source that is most similar; it has the same numbers and marks."""
        words = _words(source)
        shared: Counter[int] = Counter()
        for word in set(words):
            numbers = self._with_word.get(word, ())
            if len(numbers) <= _COMMON:
                shared.update(numbers)
        best, least = None, LEAST_SIMILARITY
        for number, _ in shared.most_common(_MOST_CANDIDATES):
            other = self._sources[number]
            matcher = SequenceMatcher(None, words, _words(other), autojunk=False)
            if matcher.real_quick_ratio() < least or matcher.quick_ratio() < least:
                continue
            ratio = matcher.ratio()
            if ratio >= least and _numbers_and_marks(source) == _numbers_and_marks(other):
                best, least = other, ratio
        return best


def _words(text: str) -> list[str]:
    return UNIT.findall(text.lower())


def _numbers_and_marks(text: str) -> tuple[Counter[str], Counter[str]]:
    return Counter(_NUMBER.findall(text)), Counter(marks_in(text))


def _spaced(target: str, source: str) -> str:
    """Give a translation the white space that its source has at its ends."""
    begin = source[: len(source) - len(source.lstrip())]
    return f"{begin}{target.strip()}{source[len(source.rstrip()) :]}"
