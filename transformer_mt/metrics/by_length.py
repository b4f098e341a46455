"""Scores by length of the source, and their figure.

Source: Bahdanau et al. 2015, figure 2.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.config.training import METRIC_LABELS, MetricName
from transformer_mt.errors import DataError
from transformer_mt.metrics.scores import Score, score
from transformer_mt.plots.style import line_style, new_figure, save_figure

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


def draw_scores_by_length(
    results: Mapping[str, Sequence[Bucket]], path: Path, *, metrics: Sequence[MetricName]
) -> None:
    """Draw each metric over the lengths, a line for each result.

    Args:
        results: By label in the legend; all with the same edges and metrics.
        path: The picture; its suffix names the format.
        metrics: In the order wanted.

    Raises:
        ConfigError: If matplotlib is missing.
        TmtError: If the picture cannot be written.
    """
    buckets = {bucket.at_least: bucket for own in results.values() for bucket in own}
    places = {at_least: place for place, at_least in enumerate(sorted(buckets))}
    legend = 0.7 + 0.08 * max(map(len, results))  # beside the panels: many lines leave no room
    figure = new_figure(1.2 + max(4.5, 0.8 * len(places)) + legend, 0.8 + 2.4 * len(metrics))
    panels = figure.subplots(len(metrics), sharex=True, squeeze=False)[:, 0]
    for axes, metric in zip(panels, metrics, strict=True):
        for number, (label, own) in enumerate(results.items()):
            color, marker = line_style(number)
            scored = [
                (bucket, score.value)
                for bucket in own
                for score in bucket.scores
                if score.name == metric
            ]
            style = {"color": color, "marker": marker, "markersize": 6}
            for shown, changes in (
                (scored, {"label": label}),
                (
                    [(bucket, value) for bucket, value in scored if bucket.is_small],
                    {"markerfacecolor": "white", "linestyle": ""},
                ),
            ):
                x = [places[bucket.at_least] for bucket, _ in shown]
                axes.plot(x, [value for _, value in shown], **style, **changes)
        axes.set_ylabel(METRIC_LABELS[metric])
        axes.set_ylim(0, max(1.0, 1.05 * axes.dataLim.y1))
        axes.grid(alpha=0.3)
    first = next(iter(results.values())) if len(results) == 1 else []
    counts = {bucket.at_least: f"\n{bucket.num_sentences:,}" for bucket in first}
    ticks = [buckets[at_least].name + counts.get(at_least, "") for at_least in places]
    panels[-1].set_xticks(range(len(ticks)), ticks)
    below = "; below: sentences" if counts else ""
    panels[-1].set_xlabel(
        f"length of the source in tokens{below}\nhollow: fewer than {FEW_SENTENCES} sentences"
    )
    lines = panels[0].get_legend_handles_labels()
    figure.legend(*lines, fontsize="small", loc="outside right upper")
    save_figure(figure, path)
