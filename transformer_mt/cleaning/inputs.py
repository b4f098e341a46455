"""Inputs of cleaning: sources that let bytes pass which are no text, held-out lines, languages."""

import logging
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

from transformer_mt.cleaning.content_rules import hashes_of
from transformer_mt.config.cleaning import OverlapRule
from transformer_mt.config.sources import Source, TextSource
from transformer_mt.data.line_sources import TextPairs, TsvPairs
from transformer_mt.data.pair_source import PairSource
from transformer_mt.data.sources import open_each
from transformer_mt.text.languages import language_of_name, language_of_text
from transformer_mt.text.lines import read_lines

_NUM_LOOKED_AT = 2000

logger = logging.getLogger(__name__)


def open_leniently(settings: Iterable[Source], languages: tuple[str, str]) -> list[PairSource]:
    """Open sources; of line files and tables with tabs, bytes that are not UTF-8 are read, too.

    Raises:
        DataError: If some cannot be read, or two line files have not the same number of lines.
    """
    sources = open_each(settings, src_lang=languages[0], tgt_lang=languages[1])
    for source in sources:
        if isinstance(source, TextPairs | TsvPairs):
            source.errors = "surrogateescape"
    return sources


def held_out_hashes(rule: OverlapRule | None) -> frozenset[int]:
    """Hash the held-out lines of the rule.

    Raises:
        DataError: If a file cannot be read.
    """
    found: set[int] = set()
    for path in [] if rule is None else rule.files:
        assert rule is not None
        found |= hashes_of(read_lines(Path(path)), rule.min_words)
    return frozenset(found)


def find_languages(
    given: tuple[str | None, str | None], settings: Sequence[Source], sources: Sequence[PairSource]
) -> tuple[str, str]:
    """Decide on the languages: as given, by the names of files, or by the text.

    Returns:
        Codes; an empty one, with a warning, where the language stays unknown.
    """
    first = settings[0]
    named: Sequence[str | None] = (first.src_lang, first.tgt_lang)
    if isinstance(first, TextSource):
        named = [
            a or language_of_name(b) for a, b in zip(named, (first.src, first.tgt), strict=True)
        ]
    codes = [own or name or "" for own, name in zip(given, named, strict=True)]
    if not all(codes):
        head = list(islice(sources[0], _NUM_LOOKED_AT))
        for side, texts in enumerate(zip(*head, strict=True)):
            codes[side] = codes[side] or language_of_text(texts) or ""
    for code, name, option in zip(
        codes, ("source", "target"), ("--src-lang", "--tgt-lang"), strict=True
    ):
        if code:
            logger.info("%s language: %s", name, code)
        else:
            logger.warning(
                "the language of the %s is not known, and the rules script and language do not "
                "look at it: give %s CODE",
                name,
                option,
            )
    return codes[0], codes[1]
