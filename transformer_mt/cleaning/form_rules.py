"""Rules on the form of a pair: characters, lengths, scripts, repetition, copies."""

import re
import unicodedata
from collections.abc import Sequence

from transformer_mt.cleaning.rules import SIDES, Finding, PairText, worse
from transformer_mt.config import cleaning as config
from transformer_mt.text.lines import is_blank
from transformer_mt.text.scripts import is_latin, letters_by_script, scripts_of

_LONGEST_REPEATED = 8
_BAD_CATEGORIES = frozenset(("Cc", "Co", "Cs", "Zl", "Zp"))
_TRAIL = "".join(bytes([b]).decode("cp1252", "ignore") for b in range(0x80, 0xC0)) + "".join(
    map(chr, range(0x80, 0xA0))
)
_MOJIBAKE = re.compile(
    f"(?:[ÂÃ][{_TRAIL}]|â[{_TRAIL}]{{2}}|(?:[ÐÑ][{_TRAIL}]){{2,}}|(?:[ã-ï][{_TRAIL}]{{2}}){{2,}})"
)
"""UTF-8 that was read as Windows-1252: a first byte and as many further ones as belong to it."""
_RUN = re.compile(r"([^\W\d_])\1+")
_good: set[str] = {"\t"}
_bad: set[str] = set()


def encoding(_: config.EncodingRule, pair: PairText) -> Finding:
    """Find bytes that could not be decoded, which stand in the text as half characters, and NUL."""
    found = list(map(_num_undecoded, pair.sides))
    where = [name for name, number in zip(SIDES, found, strict=True) if number]
    return bool(where), sum(found), " and ".join(where)


def _num_undecoded(text: str) -> int:
    number = text.count("\0")
    if not text.isascii():
        number += sum("\ud800" <= c <= "\udfff" for c in set(text))
    return number


def characters(rule: config.CharactersRule, pair: PairText) -> Finding:
    """Count characters that no clean text has."""
    found: list[str] = []
    for text in pair.sides:
        for sign in set(text) - _good:
            if _is_bad(sign):
                found += [f"U+{ord(sign):04X}"] * text.count(sign)
        if not text.isascii():
            found += _MOJIBAKE.findall(text)
    return len(found) > rule.max_bad, len(found), " ".join(sorted(set(found))[:5])


def _is_bad(sign: str) -> bool:
    if sign not in _bad:
        number = ord(sign)
        is_none = number & 0xFFFE == 0xFFFE or 0xFDD0 <= number <= 0xFDEF or number == 0xFFFD
        is_bad = is_none or unicodedata.category(sign) in _BAD_CATEGORIES
        (_bad if is_bad else _good).add(sign)
    return sign in _bad


def empty(_: config.EmptyRule, pair: PairText) -> Finding:
    """Find sides without text."""
    blank = [name for name, side in zip(SIDES, pair.sides, strict=True) if is_blank(side)]
    return bool(blank), len(blank), " and ".join(blank)


def length(rule: config.LengthRule, pair: PairText) -> Finding:
    """Count words."""
    found: list[Finding] = []
    for name, words in zip(SIDES, pair.words, strict=True):
        drops = not rule.min_words <= len(words) <= rule.max_words
        found.append((drops, len(words), f"{name}: {len(words)} words" if drops else ""))
        longest = max(map(len, words), default=0)
        if longest > rule.max_word_length:
            found.append((True, len(words), f"{name}: a word of {longest} characters"))
    return worse(found)


def ratio(rule: config.RatioRule, pair: PairText) -> Finding:
    """Compare lengths."""
    shorter, longer = sorted(pair.letters)
    value = max(0.0, (longer - rule.slack) / max(shorter, 1))
    return value > rule.max, value, "{}:{}".format(*pair.letters)


def copies(rule: config.CopyRule, pair: PairText) -> Finding:
    """Compare words."""
    src, tgt = pair.words
    if src == tgt and (src or pair.sides[0] == pair.sides[1]):
        return True, 1.0, "equal"
    words = set(src), set(tgt)
    shorter = min(map(len, words))
    share = len(words[0] & words[1]) / max(shorter, 1)
    return share > rule.max_shared and shorter >= rule.min_words, share, ""


def script(rule: config.ScriptRule, pair: PairText, languages: Sequence[str]) -> Finding:
    """Count letters of the scripts of the languages, without words that both sides have: names."""
    found: list[Finding] = []
    for name, text, language in zip(SIDES, pair.sides, languages, strict=True):
        own = scripts_of(language)
        if not language or (is_latin(text) and "LATIN" in own):  # the quick way for most texts
            found.append((False, 1.0, ""))
            continue
        words, others = pair.words if name == SIDES[0] else pair.words[::-1]
        counts = letters_by_script("".join(set(words) - set(others)))
        total = counts.total()
        share = sum(counts[name] for name in own) / total if total else 1.0
        drops = share < rule.min_share
        common = max(counts, key=counts.__getitem__) if drops else ""
        found.append((drops, share, f"{name}: {common}" if drops else ""))
    return worse(found)


def repetition(rule: config.RepetitionRule, pair: PairText) -> Finding:
    """Count how often n-grams follow themselves, where the other side has not half as many."""
    found = [_repeats(words, rule.max_repeats) for words in pair.words]
    runs = [max((len(run[0]) for run in _RUN.finditer(text)), default=1) for text in pair.sides]
    for counts, most in (([n for n, _ in found], rule.max_repeats), (runs, rule.max_characters)):
        if (value := max(counts)) > most and 2 * min(counts) <= value:
            side = counts.index(value)
            return (
                True,
                value,
                f"{SIDES[side]}: {found[side][1] if counts is not runs else 'letter'}",
            )
    return False, max(number for number, _ in found), ""


def _repeats(words: Sequence[str], most: int) -> tuple[int, str]:
    """Return how often an n-gram stands in a row at most, and it; 1 if that is not above `most`."""
    best, gram = 1, ""
    if len(words) - len(set(words)) < most:  # the quick way for nearly all texts
        return best, gram
    for n in range(1, min(_LONGEST_REPEATED, len(words) // 2) + 1):
        matches = 0
        for place in range(n, len(words)):
            matches = matches + 1 if words[place] == words[place - n] else 0
            if matches // n + 1 > best:
                best, gram = matches // n + 1, " ".join(words[place - n + 1 : place + 1])
    return best, gram
