"""Word boundaries, in scripts with and without spaces between words."""

import re
import unicodedata

# Scripts that put no spaces between words: each character, with its marks, is a unit of its own.
_ALONE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
# Vowel signs and the like, which `\w` leaves out, and the joiners inside Persian and Indic words.
_MARKS = "".join(
    c for c in map(chr, range(0x300, 0xFFFF)) if unicodedata.category(c) in ("Mn", "Mc", "Me")
)
_SIGNS = _MARKS + "\u200c\u200d"

UNIT = re.compile(rf"(?:[^\W{_ALONE}]|[{_SIGNS}])+|\S[{_MARKS}]*")
"""A word, a character of a script without spaces, or another sign."""

WORD_OR_SIGN = re.compile(rf"[\w{_SIGNS}]+|[^\w\s]")
"""A word, in scripts without spaces all up to the next sign; or a sign."""

PART_OF_WORD = re.compile(rf"[^\W{_ALONE}]|[{_SIGNS}]")
"""A character that continues the word before it."""

_WORD = re.compile(rf"(?:[^\W{_ALONE}]|[{_SIGNS}])+|[{_ALONE}][{_MARKS}]*")


def words_of(text: str) -> list[str]:
    """Return the words of a text without other signs; a character of scripts without spaces each.

    Apostrophes and hyphens part words.
    """
    return _WORD.findall(text)
