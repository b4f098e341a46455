"""Output of `tmt evaluate`: printed scores, checks of sentences, outside metrics, the report."""

import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from transformer_mt.cli.evaluation_extras import Wanted
from transformer_mt.cli.output_files import results_to
from transformer_mt.cli.scoring_options import draw_lengths, length_records, length_table
from transformer_mt.config.training import METRIC_LABELS, MetricName
from transformer_mt.errors import TmtError

if TYPE_CHECKING:
    from transformer_mt.assessment.evaluation_page import EvaluatedText
    from transformer_mt.assessment.sentences import Assessment, ScoredText
    from transformer_mt.config.languages import Direction
    from transformer_mt.metrics.by_length import Bucket
    from transformer_mt.metrics.outside import OutsideScore
    from transformer_mt.metrics.scores import Score

logger = logging.getLogger(__name__)


class EvaluationOutput:
    """Prints the scores of one text after the other, and writes what else is wanted.

    Args:
        wanted: What else.
        metrics: Names of the scores.
        as_json: Print JSON.
    """

    def __init__(self, wanted: Wanted, metrics: list[MetricName], *, as_json: bool) -> None:
        self._wanted = wanted
        self._metrics = metrics
        self._as_json = as_json
        self._evaluated: list[EvaluatedText] = []
        self._assessed: list[tuple[str, Assessment]] = []
        self._buckets: dict[str, list[Bucket]] = {}
        self._failed: dict[str, None] = {}

    @property
    def judges(self) -> bool:
        """Whether it shows what a model says of its translations."""
        return self._wanted.assesses

    def add_finished(self, text: "ScoredText") -> None:
        """Score and print existing translations; their lengths are counted in words."""
        from transformer_mt.assessment.words import words_of
        from transformer_mt.metrics.scores import score
        from transformer_mt.metrics.significance import score_with_intervals

        scored = score_with_intervals if self._wanted.confidence else score
        scores = scored(
            text.hypotheses,
            text.references,
            metrics=self._metrics,
            tgt_lang=text.tgt_lang,
            more_references=text.more_references,
        )
        base = text.references if text.sources is None else text.sources
        unit = "words of the " + ("reference" if text.sources is None else "source")
        self.add(text, scores, [len(words_of(line)) + 1 for line in base], unit=unit)

    def add(
        self,
        text: "ScoredText",
        scores: "Sequence[Score]",
        lengths: Sequence[int],
        *,
        direction: "Direction | None" = None,
        unit: str = "tokens of the source",
    ) -> None:
        """Print scores of translations, and look at their sentences where that is wanted.

        Args:
            text: Translations, references and what else is known.
            scores: Of the whole text.
            lengths: Of the sources, end of sentence counted.
            direction: Languages of a test set that has its own.
            unit: What lengths are counted in.
        """
        from transformer_mt.metrics.by_length import DEFAULT_EDGES, score_by_length

        wanted = self._wanted
        buckets: list[Bucket] = []
        if wanted.edges is not None or wanted.report is not None:
            buckets = score_by_length(
                text.hypotheses,
                text.references,
                lengths,
                metrics=self._metrics,
                tgt_lang=text.tgt_lang,
                edges=wanted.edges or DEFAULT_EDGES,
                more_references=text.more_references,
            )
        if wanted.edges is not None:
            self._buckets[text.name] = buckets
        outside = self._outside_scores(text)
        assessment = None
        if wanted.assesses:
            from transformer_mt.assessment.sentences import assess

            by_line = {own.name: own.by_line for own in outside if own.by_line is not None}
            assessment = assess(text, glossary=wanted.glossary, outside=by_line)
            self._assessed.append((text.name, assessment))
        if assessment is not None and wanted.report is not None:
            from transformer_mt.assessment.evaluation_page import EvaluatedText

            self._evaluated.append(EvaluatedText(text, scores, outside, buckets, unit, assessment))
        printed = _json_line if self._as_json else _lines
        for line in printed(
            text,
            scores,
            outside,
            None if wanted.edges is None else buckets,
            assessment if wanted.checks else None,
            direction,
        ):
            typer.echo(line)

    def _outside_scores(self, text: "ScoredText") -> "list[OutsideScore]":
        """Run all metric commands; warn of those that fail, with what they printed."""
        from transformer_mt.metrics.outside import OutsideMetricError, outside_score

        found = []
        for metric in self._wanted.outside:
            try:
                score = outside_score(
                    metric,
                    text.hypotheses,
                    [text.references, *text.more_references],
                    sources=text.sources,
                    timeout_s=self._wanted.timeout_s,
                )
                found.append(score)
            except OutsideMetricError as error:
                said = f"; it printed:\n{error.output.rstrip()}" if error.output else ""
                logger.warning("%s: --metric-cmd %s%s", text.name, error, said)
                self._failed[metric.name] = None
        return found

    def finish(self, about: str) -> None:
        """Write files.

        Args:
            about: What was evaluated, for the head of the report.

        Raises:
            TmtError: If a file cannot be written, or a metric command failed.
        """
        wanted = self._wanted
        draw_lengths(self._buckets, wanted.figure, self._metrics)
        if wanted.sentences is not None:
            with results_to(wanted.sentences) as file:
                for name, assessment in self._assessed:
                    for sentence in assessment.sentences:
                        record = {"test_set": name} | sentence.record()
                        file.write(json.dumps(record, ensure_ascii=False) + "\n")
        failed = ", ".join(self._failed)
        if wanted.report is not None:
            from transformer_mt.assessment.evaluation_page import evaluation_page

            lead = f"{about}. No score from: {failed}" if failed else about
            page = evaluation_page(self._evaluated, about=lead, frequencies=wanted.frequencies)
            page.write(wanted.report)
            logger.info("report: %s", wanted.report)
        if failed:
            raise TmtError(f"no score from --metric-cmd {failed}; all else is complete")


def _json_line(
    text: "ScoredText",
    scores: "Sequence[Score]",
    outside: "Sequence[OutsideScore]",
    buckets: "Sequence[Bucket] | None",
    assessment: "Assessment | None",
    direction: "Direction | None",
) -> list[str]:
    record: dict[str, object] = {
        "test_set": text.name,
        "num_lines": len(text.hypotheses),
        **({} if direction is None else {"src_lang": direction[0], "tgt_lang": direction[1]}),
        "scores": [
            {
                "name": score.name,
                "value": score.value,
                "higher_is_better": score.higher_is_better,
                "signature": score.signature,
                **({} if score.half_width is None else {"half_width": score.half_width}),
            }
            for score in scores
        ],
    }
    if outside:
        record["outside_scores"] = [
            {"name": own.name, "value": own.value, "command": own.command} for own in outside
        ]
    if buckets is not None:
        record["by_length"] = length_records(buckets)
    if assessment is not None:
        record["checks"] = assessment.record()
    return [json.dumps(record, ensure_ascii=False)]


def _lines(
    text: "ScoredText",
    scores: "Sequence[Score]",
    outside: "Sequence[OutsideScore]",
    buckets: "Sequence[Bucket] | None",
    assessment: "Assessment | None",
    direction: "Direction | None",
) -> list[str]:
    name = text.name
    if direction is not None and not name.endswith(languages := "-".join(direction)):
        name = f"{name} ({languages})"
    lines = []
    for score in scores:
        half = "" if score.half_width is None else f" ± {score.half_width:.2f}"
        value = f"{score.value:.2f}{half}"
        lines.append(f"{name}: {METRIC_LABELS[score.name]} = {value} ({score.signature})")
    lines += [f"{name}: {own.name} = {own.value:.4f} ({own.command})" for own in outside]
    if buckets is not None:
        lines += length_table(buckets, [score.name for score in scores])
    if assessment is not None:
        lines += [f"{name}: {line}" for line in assessment.lines()]
    return lines
