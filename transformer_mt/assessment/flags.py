"""Flags of translations that look wrong: hallucination, under-translation, copies, wrong lines.

Each compares a translation with its source, with its references, or with the other lines of the
text; two need a model. Sources: Gale and Church 1993 (lengths); Raunak et al. 2021, "The Curious
Case of Hallucinations in Neural Machine Translation" (repetition against the source); Wu et al.
2016 (coverage).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from heapq import nlargest
from statistics import median
from typing import Literal, TypeAlias, get_args

from transformer_mt.assessment.kept import missing_numbers
from transformer_mt.config.language_codes import plain_code
from transformer_mt.metrics.scores import sentence_chrf
from transformer_mt.text.languages import common_words_in, script_of
from transformer_mt.text.marks import marks_in, missing
from transformer_mt.text.words import UNIT

Flag: TypeAlias = Literal[
    "empty",
    "short",
    "long",
    "uncovered",
    "unlikely",
    "repeated",
    "copied",
    "language",
    "other line",
    "numbers",
    "marks",
]
FLAGS: tuple[Flag, ...] = get_args(Flag)
MEANINGS: Mapping[Flag, str] = {
    "empty": "no translation",
    "short": "much shorter than its source leads to expect: something may be missing",
    "long": "much longer than its source leads to expect: something may be invented",
    "uncovered": "leaves more of its source without attention than the others",
    "unlikely": "far less probable to the model than the others",
    "repeated": "words repeat more often than in the source",
    "copied": "mostly words of the source",
    "language": "by its script or its commonest words in another language",
    "other line": "closer to the reference of another line than to its own",
    "numbers": "has not the numbers of its source",
    "marks": "has not the placeholders, tags or addresses of its source",
}

SHORT, SHORT_WITHOUT_END, LONG = -2.0, -1.0, 3.0
"""Standard deviations of the length from which on a translation is short or long; one that lacks
the sign at the end of its source is short sooner."""
UNUSUAL = 3.0
"""Standard deviations below the median from which on coverage and log-confidence are low."""
FAR, NEARER = 35.0, 20.0
"""chrF below which a translation is far from its reference, and how much nearer another one is."""
_ENDS = frozenset(".!?…。！？।؟")
_ENOUGH_LINES = 20
_USUAL_RATIO, _USUAL_VARIANCE = 1.0, 6.8
"""Of lengths in characters, a character of the source; source: Gale and Church 1993."""
_COPIED_SHARE = 0.7
_LEAST_WORDS = 4
_LONGEST_PHRASE = 8
_CANDIDATES = 3
"""Other lines that a translation is compared with: those with the same rare words."""


def flags_of(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    chrf: Sequence[float],
    sources: Sequence[str] | None = None,
    tgt_lang: str = "",
    confidences: Sequence[float | None] | None = None,
    coverage: Sequence[float] | None = None,
) -> list[list[Flag]]:
    """Return the flags of each translation, in the order of `FLAGS`.

    Args:
        hypotheses: Translations.
        references: As many. Without sources, lengths and repetition are compared with them.
        chrf: Of each translation.
        sources: As many; without them, no translation is a copy or lacks numbers or marks.
        tgt_lang: Code of the target language.
        confidences: Of a model in each translation, from 0 to 1; None where it has none.
        coverage: See `evaluation.source_coverage`.
    """
    units = [_units(line) for line in hypotheses]
    expected = [_units(line) for line in references]
    read = expected if sources is None else [_units(line) for line in sources]
    base = references if sources is None else sources
    lengths = _length_flags(hypotheses, base)
    far = [line for line, value in enumerate(chrf) if value < FAR]
    like = zip(far, _like(units, expected, far), strict=True)
    nearest = {
        line: _nearest(hypotheses[line], [references[other] for other in others])
        for line, others in like
    }
    script = script_of(" ".join(references))
    uncovered = _unusually_low(coverage or [])
    unlikely = _unusually_low(
        [None if own is None else math.log(own + 1e-9) for own in confidences or []]
    )
    found: list[list[Flag]] = []
    for line, text in enumerate(hypotheses):
        if not base[line].strip():
            found.append([])
            continue
        if not text.strip():
            found.append(["empty"])
            continue
        own: dict[Flag, bool] = {
            "repeated": _repeats(units[line], read[line], expected[line]),
            "language": _is_foreign(text, references[line], script, plain_code(tgt_lang)),
            "other line": nearest.get(line, 0.0) > chrf[line] + NEARER,
            "uncovered": line in uncovered,
            "unlikely": line in unlikely,
        }
        if sources is not None:
            own |= {
                "copied": _is_copy(units[line], read[line], expected[line]),
                "numbers": bool(missing_numbers(sources[line], text, references[line])),
                "marks": bool(missing(marks_in(sources[line]), text)),
            }
        length = lengths[line]
        found.append([flag for flag in FLAGS if flag == length or own.get(flag)])
    return found


def _units(line: str) -> list[str]:
    return UNIT.findall(line.lower())


def _length_flags(hypotheses: Sequence[str], base: Sequence[str]) -> list[Flag | None]:
    """Compare lengths with those of the sources, by the ratio and variance of the whole text."""
    pairs = [
        (len(text.strip()), max(len(own.strip()), 1))
        for text, own in zip(hypotheses, base, strict=True)
    ]
    usual = [(length, own) for length, own in pairs if length]
    ratio, variance = _USUAL_RATIO, _USUAL_VARIANCE
    if len(usual) >= _ENOUGH_LINES:
        # Medians: faults in less than half of the lines do not move them.
        ratio = median(length / own for length, own in usual)
        spread = median(abs(length - ratio * own) / math.sqrt(own) for length, own in usual)
        variance = max((1.4826 * spread) ** 2, 1.0)
    found: list[Flag | None] = []
    for (length, own), text, line in zip(pairs, hypotheses, base, strict=True):
        deviation = (length - ratio * own) / math.sqrt(variance * own)
        has_end = not _ENDS.isdisjoint(text[-3:]) or _ENDS.isdisjoint(line[-3:])
        is_short = deviation < (SHORT if has_end else SHORT_WITHOUT_END)
        found.append("short" if is_short else "long" if deviation > LONG else None)
    return found


def _unusually_low(values: Sequence[float | None]) -> set[int]:
    """Return the places of values far below the median, by the median deviation from it."""
    known = [value for value in values if value is not None]
    if len(known) < _ENOUGH_LINES:
        return set()
    middle = median(known)
    spread = 1.4826 * median(abs(value - middle) for value in known)
    least = middle - UNUSUAL * spread
    return {place for place, value in enumerate(values) if value is not None and value < least}


def _repeats(units: Sequence[str], source: Sequence[str], reference: Sequence[str]) -> bool:
    """Return whether a phrase follows itself, or comes back, where no other side has the like."""
    own = _runs(units)
    usual = [max(pair) for pair in zip(_runs(source), _runs(reference), strict=True)]
    least = [3, *[2] * (_LONGEST_PHRASE - 1)]
    if any(
        run >= at_least and run > limit
        for run, at_least, limit in zip(own, least, usual, strict=True)
    ):
        return True
    return _most_often(units, 4) - max(_most_often(source, 4), _most_often(reference, 4)) >= 2


def _runs(units: Sequence[str]) -> list[int]:
    """Return for phrases of 1 .. `_LONGEST_PHRASE` words how often one follows itself at most."""
    found = []
    for size in range(1, _LONGEST_PHRASE + 1):
        longest = equal = 0
        for place in range(size, len(units)):
            is_equal = units[place] == units[place - size]
            equal = equal + 1 if is_equal else 0
            has_word = any(unit[0].isalnum() for unit in units[place - size + 1 : place + 1])
            if equal % size == 0 and equal and has_word:
                longest = max(longest, equal // size)
        found.append(longest + 1)
    return found


def _most_often(units: Sequence[str], size: int) -> int:
    """Return how often the most frequent phrase of some words occurs."""
    phrases = Counter(tuple(units[i : i + size]) for i in range(len(units) - size + 1))
    return max(phrases.values(), default=0)


def _is_copy(units: Sequence[str], source: Sequence[str], reference: Sequence[str]) -> bool:
    """Return whether most words are of the source, and of its reference they are not."""
    words = [unit for unit in units if unit[0].isalpha()]
    if len(words) < _LEAST_WORDS:
        return False
    shares = [
        (Counter(words) & Counter(other)).total() / len(words) for other in (source, reference)
    ]
    return shares[0] >= _COPIED_SHARE and shares[0] > shares[1]


def _is_foreign(text: str, reference: str, script: str | None, tgt_lang: str) -> bool:
    """Return whether a text has another script, or common words of another language."""
    own = script_of(text)
    if own and script and own != script and script_of(reference) != own:
        return True
    counts = common_words_in(text)
    if tgt_lang not in counts:
        return False
    best = max(counts.values())
    return best >= 2 and best > 2 * counts[tgt_lang]


def _like(
    hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]], lines: Sequence[int]
) -> list[list[int]]:
    """Return for some translations the lines of other references that share most rare words."""
    lines_with: dict[str, list[int]] = defaultdict(list)
    for line, units in enumerate(references):
        for unit in set(units):
            lines_with[unit].append(line)
    common = max(10, len(references) // 10)
    found = []
    for line in lines:
        likeness: dict[int, float] = defaultdict(float)
        for unit in set(hypotheses[line]):
            if 0 < (number := len(lines_with.get(unit, ()))) <= common:
                for other in lines_with[unit]:
                    # Long references share words with everything.
                    weight = math.log(len(references) / number + 1)
                    likeness[other] += weight / math.sqrt(len(references[other]))
        likeness.pop(line, None)
        found.append(nlargest(_CANDIDATES, likeness, key=likeness.__getitem__))
    return found


def _nearest(text: str, references: Sequence[str]) -> float:
    return max(sentence_chrf([text] * len(references), references), default=0.0)
