"""Rules on what both sides of a pair must have: numbers, addresses, placeholders; and languages."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

import xxhash

from transformer_mt.cleaning.language_id import Identifier, same_language
from transformer_mt.cleaning.rules import SIDES, Finding, PairText
from transformer_mt.config import cleaning as config
from transformer_mt.text.marks import PROTECTED, is_address, marks_in
from transformer_mt.text.words import words_of

_NUMBER = re.compile(r"\d{1,3}(?:[.,'’\u00a0\u202f ]\d{3})+(?!\d)|\d+")
_HAN_DIGITS = re.compile("[〇零一二三四五六七八九十百千万億亿兩两]")
_MAY_HAVE_MARKS = re.compile(r"[<&{}%@$`_:]|www\.")
_ICU = re.compile(r"\{\s*([\w.]+)\s*,\s*(\w+).*\}", re.DOTALL)
_ATTRIBUTES = re.compile(r"^(</?[A-Za-z][\w:.-]*).*?(/?>)$", re.DOTALL)
_LARGE_SIGN = re.compile("[\u1100-\u11ff\u2e80-\uffef]")
_HALF_DAY = 12


def numbers(rule: config.NumbersRule, pair: PairText) -> Finding:
    """Compare the numbers in digits of both sides, each once."""
    found = [set(_numbers_in(text)) for text in pair.sides]
    only = [found[0] - found[1], found[1] - found[0]]
    if not any(only):
        return False, 0, ""
    only = [_unlike(only[0], only[1]), _unlike(only[1], only[0])]
    if not all(only):
        only = [
            set() if _HAN_DIGITS.search(other) else {n for n in own if _is_in_digits(n, rule)}
            for own, other in zip(only, reversed(pair.sides), strict=True)
        ]
    elif len(found[0]) != len(found[1]) and Counter("".join(found[0])) == Counter(
        "".join(found[1])
    ):
        return False, 0, ""  # 12:30 and 1230
    value = max(map(len, only))
    return value > rule.max_missing, value, _difference(only)


def _numbers_in(text: str) -> Iterator[str]:
    """Yield numbers without separators of thousands and zeros before them."""
    for number in _NUMBER.findall(text):
        if not number.isascii():
            number = "".join(str(unicodedata.digit(c, "")) for c in number)
        yield re.sub(r"\D", "", number).lstrip("0") or "0"


def _unlike(own: Collection[str], other: Collection[str]) -> set[str]:
    """Leave out hours of the other half of a day, years of two digits, thousands in words."""

    def is_like(first: str, second: str) -> bool:
        is_hour = len(first) < 3 and len(second) < 3 and abs(int(first) - int(second)) == _HALF_DAY
        short, long = sorted((first, second), key=len)
        is_year = len(short) == 2 and len(long) == 4 and long.endswith(short)
        return is_hour or is_year or long == f"{short}{'000' * ((len(long) - len(short)) // 3)}"

    return {number for number in own if not any(is_like(number, o) for o in other)}


def _is_in_digits(number: str, rule: config.NumbersRule) -> bool:
    return len(number) >= rule.min_digits and number[-1] != "0"


def addresses(rule: config.AddressesRule, pair: PairText, languages: Sequence[str]) -> Finding:
    """Compare URLs and e-mail addresses; the language in them may be that of each side."""
    return _compared(
        rule.max_missing,
        [
            [_without(language, mark) for mark in _marks(text) if is_address(mark)]
            for text, language in zip(pair.sides, languages, strict=True)
        ],
    )


def placeholders(rule: config.PlaceholdersRule, pair: PairText) -> Finding:
    """Compare placeholders and tags, without what is translated in them."""
    return _compared(
        rule.max_missing,
        [list(map(_essence, _placeholders_in(text))) for text in pair.sides],
    )


def _marks(text: str) -> list[str]:
    return marks_in(text) if _MAY_HAVE_MARKS.search(text) else []


def _without(language: str, address: str) -> str:
    """Drop the language of a page, case, a slash at the end, and Korean particles."""
    address = _LARGE_SIGN.split(address.casefold())[0].rstrip("/").removeprefix("https://")
    parts = re.split(r"([/.:?=])", address)
    code = language.casefold().replace("_", "-")
    own = (code, code[:2]) if code else ()
    return "".join("*" if part in own else part for part in parts)


def _placeholders_in(text: str) -> Iterator[str]:
    """Yield marks without addresses, entities and `<words in brackets>`; those inside of code."""
    for mark in _marks(text):
        is_words = mark[0] == "<" and " " in mark.strip("</ >") and "=" not in mark
        if mark[0] == "`":  # often in other quotes on the other side
            yield from _placeholders_in(mark.strip("`"))
        elif mark[0] != "&" and not is_words and not is_address(mark):
            yield mark


def _essence(mark: str) -> str:
    """Reduce a placeholder to what a program needs: no attributes, no place, no inner text."""
    if icu := _ICU.fullmatch(mark):
        return f"{{{icu[1]},{icu[2]}}}"
    if tag := _ATTRIBUTES.match(mark):
        return tag[1] + tag[2]
    return re.sub(r"^%\d+\$", "%", re.sub(r"\s", "", mark))


def _compared(max_missing: int, found: list[list[str]]) -> Finding:
    if not any(found):
        return False, 0, ""
    first, second = map(Counter, found)
    only = [first - second, second - first]
    value = max(counts.total() for counts in only)
    return value > max_missing, value, _difference(only) if value else ""


def _difference(only: Sequence[Iterable[str]]) -> str:
    return " | ".join(" ".join(sorted(own)[:5]) or "-" for own in only)


def language(
    rule: config.LanguageRule, pair: PairText, languages: Sequence[str], identifier: Identifier
) -> Finding:
    """Ask the identifier about both sides."""
    found: list[Finding] = []
    for name, text, own, size in zip(SIDES, pair.sides, languages, pair.letters, strict=True):
        if own and size >= rule.min_letters:
            if _MAY_HAVE_MARKS.search(text):
                text = PROTECTED.sub(" ", text)
            code, probability = identifier.identify(text)
            is_other = not same_language(code, own)
            drops = is_other and probability > rule.max_probability
            value = probability if is_other else 0.0
            found.append((drops, value, f"{name}: {code}" if drops else ""))
    return max(found, default=(False, 0.0, ""))


def overlap(rule: config.OverlapRule, pair: PairText, held_out: Collection[int]) -> Finding:
    """Look both sides up among held-out lines."""
    found = [
        name
        for name, words in zip(SIDES, pair.words, strict=True)
        if len(words) >= rule.min_words and hash_words(words) in held_out
    ]
    return bool(found), len(found), " and ".join(found)


def hash_words(words: Sequence[str]) -> int:
    """Hash folded words to 64 bits."""
    return xxhash.xxh3_64_intdigest(" ".join(words).encode("utf-8", "surrogatepass"))


def hashes_of(lines: Iterable[str], min_words: int) -> set[int]:
    """Hash held-out lines for `overlap`."""
    folded = ([word.casefold() for word in words_of(line)] for line in lines)
    return {hash_words(words) for words in folded if len(words) >= min_words}
