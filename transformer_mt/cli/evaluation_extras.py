"""Options of `tmt evaluate` beyond scores: outside metrics, checks of sentences, the report."""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeAlias

import typer

from transformer_mt.cli.output_files import check_output
from transformer_mt.config.training import METRIC_LABELS
from transformer_mt.errors import ConfigError

if TYPE_CHECKING:
    from transformer_mt.metrics.outside import OutsideMetric
    from transformer_mt.translation.glossary import Glossary

logger = logging.getLogger(__name__)

MORE = "More than scores"

MetricCommands: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--metric-cmd",
        metavar="NAME=COMMAND",
        rich_help_panel=MORE,
        help="Metric of another program, such as 'comet=comet-score -s {src} -t {hyp} -r {ref}': "
        "it reads these files and prints JSON or a number per line; repeatable.",
    ),
]
MetricTimeout: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", min=0.1, rich_help_panel=MORE, help="Time limit of each --metric-cmd."
    ),
]
Checks: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--checks",
        rich_help_panel=MORE,
        help="Also print how many numbers, placeholders and terms were kept, the number of "
        "sentences that look wrong, and how the model's confidence goes with chrF.",
    ),
]
TermFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--glossary",
        metavar="FILE",
        rich_help_panel=MORE,
        help="Glossary (TERM, tab, TRANSLATION on each line) to measure term accuracy; it does "
        "not change translations.",
    ),
]
SentenceFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--sentences",
        metavar="FILE",
        rich_help_panel=MORE,
        help="Save a JSON object per sentence: chrF, confidence, flags.",
    ),
]
ReportFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE.html",
        rich_help_panel=MORE,
        help="Save a web page: scores with intervals, by length and word frequency, flags, worst "
        "and best sentences.",
    ),
]
TrainText: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=MORE,
        help="Target side of the training text, for the word frequencies of --report. Default: "
        "the references.",
    ),
]


@dataclass(frozen=True)
class Wanted:
    """What is wanted beyond scores.

    Attributes:
        outside: Metric commands.
        timeout_s: Time limit of each.
        glossary: Terms to count.
        checks: Print the totals of checks.
        sentences: File for a JSON object per sentence.
        report: File for the web page.
        frequencies: Of words in the training text.
        confidence: Intervals of scores.
        edges: Print scores by length, with these edges.
        figure: File for a picture of them.
    """

    outside: "list[OutsideMetric]"
    timeout_s: float
    glossary: "Glossary | None"
    checks: bool
    sentences: Path | None
    report: Path | None
    frequencies: Counter[str] | None
    confidence: bool
    edges: tuple[int, ...] | None
    figure: Path | None

    @classmethod
    def of_options(cls, options: Mapping[str, Any], edges: tuple[int, ...] | None) -> Self:
        """Take the values of options, with all that can be refused before anything is translated.

        Raises:
            ConfigError: If a command, a file or a combination of options cannot be used.
            DataError: If the glossary or the training text cannot be read.
        """
        from transformer_mt.metrics.outside import read_metric

        outside = [read_metric(command) for command in options["metric_cmd"]]
        for name, number in Counter(metric.name for metric in outside).items():
            if number > 1 or name in METRIC_LABELS:
                raise ConfigError(f"--metric-cmd {name}: this name is taken: choose another one")
        report, sentences, text = options["report"], options["sentences"], options["train_text"]
        if text is not None and report is None:
            raise ConfigError("--train-text: no effect without --report")
        named = [options[name] for name in ("src", "hyp", "output", "glossary", "train_text")]
        for path, other in ((report, sentences), (sentences, report)):
            check_output(path, *named, *options["ref"], other)
        return cls(
            outside=outside,
            timeout_s=options["metric_timeout"],
            glossary=_glossary(options["glossary"]),
            checks=options["checks"] or options["glossary"] is not None,
            sentences=sentences,
            report=report,
            frequencies=None if text is None else _frequencies(text),
            confidence=options["confidence"] or report is not None,
            edges=edges,
            figure=options["figure"],
        )

    @property
    def assesses(self) -> bool:
        """Whether sentences are looked at."""
        return self.checks or self.sentences is not None or self.report is not None

    @property
    def reads_sources(self) -> bool:
        """Whether sources of existing translations have an effect."""
        return self.assesses or any(metric.needs_sources for metric in self.outside)

    def check_sources(self, *, are_given: bool, are_judged: bool) -> None:
        """Refuse existing translations without their sources where these are needed.

        Args:
            are_given: Whether there are sources.
            are_judged: Whether a model reads them.

        Raises:
            ConfigError: Names the option that needs them.
        """
        needing = [f"--metric-cmd {own.name}" for own in self.outside if own.needs_sources]
        needing += [] if self.glossary is None else ["--glossary"]
        needing += ["--model"] if are_judged else []
        if needing and not are_given:
            raise ConfigError(f"{needing[0]} needs the sources: give --src")
        if self.assesses and not are_given:
            logger.info("no --src: copies, numbers and placeholders are not checked")


def _glossary(path: Path | None) -> "Glossary | None":
    if path is None:
        return None
    from transformer_mt.text.lines import read_lines
    from transformer_mt.translation.glossary import read_glossary

    return read_glossary(read_lines(path), str(path))


def _frequencies(path: Path) -> Counter[str]:
    from transformer_mt.assessment.words import count_words
    from transformer_mt.text.lines import read_lines

    return count_words(read_lines(path))
