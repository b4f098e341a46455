"""Scripts of characters, and those in which languages are written."""

import re
import unicodedata
from collections import Counter
from functools import cache

from transformer_mt.config.language_codes import plain_code

_LANGUAGES = {
    "CYRILLIC": "be bg kk ky mk mn ru sr tg uk tt ba cv sah os ab ce",
    "GREEK": "el", "HEBREW": "he yi iw", "ARMENIAN": "hy", "GEORGIAN": "ka",
    "ARABIC": "ar fa ur ps sd ug ckb ku ks arz ary fas prs urd pbt",
    "DEVANAGARI": "hi mr ne sa kok bho mai hne awa", "BENGALI": "bn as", "GURMUKHI": "pa",
    "GUJARATI": "gu", "ORIYA": "or", "TAMIL": "ta", "TELUGU": "te", "KANNADA": "kn",
    "MALAYALAM": "ml", "SINHALA": "si", "THAI": "th", "LAO": "lo", "MYANMAR": "my",
    "KHMER": "km", "TIBETAN": "bo dz", "ETHIOPIC": "am ti", "CJK": "zh ja ko",
    "HIRAGANA": "ja", "KATAKANA": "ja", "HANGUL": "ko", "BOPOMOFO": "zh",
    "LATIN": "az uz sr bs ku kk tg tt mn",
}  # fmt: skip
"""Beside these, a language that `_LANGUAGES` does not name is written in Latin letters."""

_LARGE = re.compile(
    "([\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])|([\u3040-\u30ff\uac00-\ud7af])"
)
_LATIN = re.compile("[\\0-\u024f\u2010-\u203f\u20ac]*")
_WEIGHTS = {"CJK": 3, "HIRAGANA": 2, "KATAKANA": 2, "HANGUL": 2}
_NAMES = {
    "FULLWIDTH": "LATIN",
    "HALFWIDTH": "KATAKANA",
    "IDEOGRAPHIC": "CJK",
    **dict.fromkeys(("MODIFIER", "MICRO", "FEMININE", "MASCULINE", "MATHEMATICAL", "KELVIN"), ""),
}
_known: dict[str, str] = {}


@cache
def scripts_of(language: str) -> frozenset[str]:
    """Return the scripts in which a language is written, by the names of Unicode."""
    code = plain_code(language)
    own = frozenset(script for script, codes in _LANGUAGES.items() if code in codes.split())
    return own or frozenset(("LATIN",))


def script_of(letter: str) -> str:
    """Return the script of a letter, by its name in Unicode; empty: of several scripts."""
    if (script := _known.get(letter)) is None:
        script = unicodedata.name(letter, "").partition(" ")[0].partition("-")[0]
        script = _known[letter] = _NAMES.get(script, script)
    return script


def letters(text: str) -> int:
    """Return the length of a text in letters of an alphabet, without white space.

    A Han character counts 3, a kana or Hangul syllable 2: so long are texts of the same content.
    """
    number = len(text) - text.count(" ")
    if text.isascii():
        return number
    large = _LARGE.findall(text)
    return number + sum(2 if han else 1 for han, _ in large)


def is_latin(text: str) -> bool:
    """Return whether all letters of a text are Latin ones."""
    return text.isascii() or _LATIN.fullmatch(text) is not None


def letters_by_script(text: str) -> Counter[str]:
    """Count the letters of each script, weighted as in `letters`."""
    counts = Counter(script_of(c) for c in text if c.isalpha())
    del counts[""]
    return Counter({script: n * _WEIGHTS.get(script, 1) for script, n in counts.items()})
