"""Scores by length of the source.

Source: Bahdanau et al. 2015, figure 2.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from transformer_mt.config.training import MetricName
from transformer_mt.errors import DataError
from transformer_mt.metrics.scores import Score, score

DEFAULT_EDGES = (10, 20, 30, 40, 50, 60)
FEW_SENTENCES = 50
"""With fewer, the score of a bucket says little: BLEU of so few lines moves by many points."""


@dataclass(frozen=True)
class Bucket:
    """The sentences whose sources have similar lengths, and their scores.

    Attributes:
        at_least: Least length in tokens, end of sentence counted.
        at_most: Greatest length; None = any.
        num_sentences: How many; never 0.
        scores: One for each metric; none where all references are blank.
    """

    at_least: int
    at_most: int | None
    num_sentences: int
    scores: list[Score]

    @property
    def is_small(self) -> bool:
        """Whether its scores rest on few sentences."""
        return self.num_sentences < FEW_SENTENCES

    @property
    def name(self) -> str:
        """The lengths, such as 11-20 or 61+."""
        return f"{self.at_least}+" if self.at_most is None else f"{self.at_least}-{self.at_most}"


def score_by_length(
    hypotheses: Sequence[str],
    references: Sequence[str],
    lengths: Sequence[int],
    *,
    metrics: Sequence[MetricName],
    tgt_lang: str,
    edges: Sequence[int] = DEFAULT_EDGES,
    more_references: Sequence[Sequence[str]] = (),
) -> list[Bucket]:
    """Score translations apart by the lengths of their sources; empty buckets are left out.

    Args:
        hypotheses: Translations.
        references: As many.
        lengths: Of the sources, in tokens, end of sentence counted; blank ones, which are the end
            alone, are in no bucket.
        metrics: Which scores.
        tgt_lang: See `scores.score`.
        edges: The greatest length of each bucket, rising; one more takes what is longer.
        more_references: See `scores.score`.
    """
    members: list[list[int]] = [[] for _ in range(len(edges) + 1)]
    for line, length in enumerate(lengths):
        if length > 1:
            members[bisect_left(edges, length)].append(line)
    buckets = []
    for number, lines in enumerate(members):
        if not lines:
            continue
        try:
            scores = score(
                [hypotheses[line] for line in lines],
                [references[line] for line in lines],
                metrics=metrics,
                tgt_lang=tgt_lang,
                more_references=[[others[line] for line in lines] for others in more_references],
            )
        except DataError:  # nothing but blank references
            scores = []
        at_least = edges[number - 1] + 1 if number else 1
        at_most = edges[number] if number < len(edges) else None
        buckets.append(Bucket(at_least, at_most, len(lines), scores))
    return buckets
