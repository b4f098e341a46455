"""Rescoring of n-best lists by their own scores and those of other models.

Source: Och and Ney 2002, log-linear combination.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np

from transformer_mt.errors import ConfigError, DataError
from transformer_mt.log import counted
from transformer_mt.search.length_penalty import LengthPenalty
from transformer_mt.translation.translator import Translator

SEPARATOR = " ||| "

_MORE_COLUMNS = re.compile(r"( \|\|\| (\d+-\d+( \d+-\d+)*|WordScores=[-+.\de ]*))+$")
"""What Marian writes after the text with `--alignment` and `--word-scores`."""


@dataclass(frozen=True)
class Entry:
    """A line of an n-best list: `NUMBER ||| TEXT ||| FEATURES ||| SCORE`.

    Attributes:
        number: Of the source line, from 0.
        text: The candidate.
        features: `NAME= VALUE` of each, spaces between.
        score: What the candidates of a source are ranked by.
    """

    number: int
    text: str
    features: str
    score: float

    def __str__(self) -> str:
        """Write it as a line of an n-best list."""
        return SEPARATOR.join([str(self.number), self.text, self.features, f"{self.score:.6f}"])


def parse_entry(line: str, place: str) -> Entry:
    """Read a line of an n-best list.

    Args:
        line: The line.
        place: What messages call it.

    Raises:
        DataError: If it is not one.
    """
    try:  # from both ends, as the text may hold anything
        head, features, end = line.rsplit(SEPARATOR, 2)
        number, text = head.split(SEPARATOR, 1)
        text = _MORE_COLUMNS.sub("", text)
        entry = Entry(int(number), text, features, float(end))
        if math.isfinite(entry.score):
            return entry
    except ValueError:
        pass
    raise DataError(
        f"{place}: expected NUMBER ||| TEXT ||| FEATURES ||| SCORE, as of `tmt translate "
        f"--n-best`; got '{line[:60]}'"
    )


def read_n_best(lines: Iterable[str], name: str, *, num_sources: int) -> Iterator[list[Entry]]:
    """Yield the candidates of each source line, as soon as they are there.

    Args:
        lines: Of an n-best list, or JSON objects of `tmt translate --json`: one for each source.
        name: What messages call the list.
        num_sources: Lines that have candidates.

    Raises:
        DataError: If a line is damaged, a source has no candidates, or they are out of order.
    """
    lines = iter(lines)
    first = list(islice(lines, 1))
    groups = _json_groups if first and first[0].startswith("{") else _listed_groups
    return groups(chain(first, lines), name, num_sources)


def _listed_groups(lines: Iterable[str], name: str, num_sources: int) -> Iterator[list[Entry]]:
    group: list[Entry] = []
    for line_number, line in enumerate(lines, start=1):
        place = f"{name}:{line_number}"
        entry = parse_entry(line, place)
        begun = group[-1].number if group else -1
        if entry.number not in (begun, begun + 1) or entry.number >= num_sources:
            raise DataError(
                f"{place}: expected a candidate of source {max(begun, 0)} or the next, of "
                f"{num_sources} counted from 0; got {entry.number}: are the sources those that "
                f"the list was made of?"
            )
        if entry.number > begun and group:
            yield group
            group = []
        group.append(entry)
    _check_number(group[-1].number + 1 if group else 0, name, num_sources)
    if group:
        yield group


def _json_groups(lines: Iterable[str], name: str, num_sources: int) -> Iterator[list[Entry]]:
    number = -1
    for number, line in enumerate(lines):
        try:
            record = json.loads(line)
            group = [
                Entry(number, one["text"], f"LogProb= {one['log_prob']:.6f}", float(one["score"]))
                for one in record.get("n_best", [record])
            ]
            is_sound = all(_is_line(e.text) and math.isfinite(e.score) for e in group)
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError):
            is_sound = False
        if not is_sound or not group:
            raise DataError(
                f"{name}:{number + 1}: expected an object of `tmt translate --n-best N --json`, "
                f"with text, log_prob and score; got '{line[:60]}'"
            )
        if number < num_sources:
            yield group
    _check_number(number + 1, name, num_sources)


def _is_line(text: object) -> bool:
    """Return whether a value of JSON can be written as one line of UTF-8."""
    if not isinstance(text, str):
        return False
    return "\n" not in text and text == text.encode("utf-8", "replace").decode()


def _check_number(num_read: int, name: str, num_sources: int) -> None:
    if num_read != num_sources:
        raise DataError(
            f"{name} has candidates for {counted(num_read, 'line')}; there are {num_sources:,}"
        )


def rescore(
    groups: Sequence[Sequence[Entry]],
    sources: Sequence[str],
    *,
    translators: Sequence[Translator],
    penalties: Sequence[LengthPenalty],
    weights: Sequence[float],
    first_line: int = 1,
) -> list[list[Entry]]:
    """Rank candidates by the weighted sum of their scores; equal ones stay in order.

    A model's score of a candidate is its log-probability after the length penalty, as search has
    it. It is added to the features as `Model1= SCORE`.

    Args:
        groups: Candidates of some source lines.
        sources: All source lines.
        translators: The models.
        penalties: The length penalty of each.
        weights: Of the score that the candidates have, then of each model.
        first_line: Number of the first candidate, for errors.

    A candidate that is longer than a model allows has no score, NaN, and comes last.
    """
    if any(translator.scorer.reads_in_order for translator in translators):
        raise ConfigError(
            "a model with segment memory (data.document.memory) scores texts, not candidates: "
            "leave it out"
        )
    entries = [entry for group in groups for entry in group]
    src_lines = [sources[entry.number] for entry in entries]
    totals = weights[0] * np.array([entry.score for entry in entries])
    features = [entry.features for entry in entries]
    for number, (translator, penalty) in enumerate(zip(translators, penalties, strict=True), 1):
        scored = translator.scorer.score(
            src_lines, [e.text for e in entries], first_line=first_line
        )
        log_probs = np.array([target.log_prob for target in scored])
        lengths = [len(target.tokens) + translator.num_tags for target in scored]
        scores = penalty.scores(log_probs, np.array(lengths))
        totals += weights[number] * scores
        features = [
            f"{known} Model{number}= {score:.6f}".lstrip()
            for known, score in zip(features, scores, strict=True)
        ]
    entries = [
        replace(entry, features=of_entry, score=score)
        for entry, of_entry, score in zip(entries, features, totals.tolist(), strict=True)
    ]
    ranked = iter(entries)
    return [sorted((next(ranked) for _ in group), key=_rank) for group in groups]


def _rank(entry: Entry) -> tuple[bool, float]:
    """Order entries by their scores, best first; those without one, too long, come last."""
    return (True, 0.0) if math.isnan(entry.score) else (False, -entry.score)
