"""Output of `tmt translate`: text, n-best lists, JSON, alignments and totals."""

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from transformer_mt.cli.input_warnings import LineNote
from transformer_mt.errors import ConfigError
from transformer_mt.log import counted

if TYPE_CHECKING:
    from transformer_mt.translation.alignment import Attention
    from transformer_mt.translation.requests import Line
    from transformer_mt.translation.results import Candidate, Translation
    from transformer_mt.translation.translator import Translator


@dataclass(frozen=True)
class Details:
    """What is told of a translation beyond its text.

    Attributes:
        alignment: Which words belong together.
        attention: The weights of attention.
        alternatives: So many tokens at each place.
        layer: Of the decoder, from 1, for both of the first; None: the mean of all.
        timings: How long it took.
        n_best: The list of translations, for blank lines too.
    """

    alignment: bool
    attention: bool
    alternatives: int
    layer: int | None
    timings: bool = False
    n_best: bool = False

    def check(self, *, num_layers: int, others: Mapping[str, object]) -> None:
        """Refuse options that the model cannot serve.

        Args:
            num_layers: Layers of the decoder that attend to the source.
            others: Options, with their values, that need its attention as well.

        Raises:
            ConfigError: Names them.
        """
        needing = {"--alignments": self.alignment, "--attention": self.attention, **others}
        used = [name for name, value in needing.items() if value]
        if used and not num_layers:
            raise ConfigError(
                f"{' and '.join(used)}: where a model looks in the source must be known for this, "
                f"and this one has no attention (model.attention: none); leave it out"
            )
        if self.layer is not None and self.layer > num_layers:
            raise ConfigError(
                f"--alignment-layer {self.layer}: the model has {counted(num_layers, 'layer')}"
            )


def n_best_lines(translations: Sequence["Translation"], *, first: int) -> list[str]:
    """Return lines `NUMBER ||| TEXT ||| LogProb= X ||| SCORE`, one for each candidate."""
    return [
        f"{number} ||| {candidate.text} ||| LogProb= {candidate.log_prob:.6f} ||| "
        f"{candidate.score:.6f}"
        for number, translation in enumerate(translations, start=first)
        for candidate in translation.n_best
    ]


def json_lines(
    translator: "Translator",
    translations: Sequence["Translation"],
    attentions: Sequence["Attention"],
    details: Details,
    *,
    seconds: float,
) -> list[str]:
    """Return a JSON object for each translation.

    Args:
        translator: The one that made them.
        translations: Of some lines.
        attentions: Of the best candidate of each; none if it is not wanted.
        details: What to tell.
        seconds: How long all of them took together.
    """
    best = [translation.n_best[0] for translation in translations]
    records = [_record(candidate) for candidate in best]
    for record, attention in zip(records, attentions, strict=False):
        if details.alignment:
            record["alignment"] = attention.links()
        if details.attention:
            record["source_tokens"] = attention.source_tokens
            record["attention"] = [[round(x, 4) for x in row] for row in attention.weights.tolist()]
    if details.alternatives:
        alternatives = _alternatives(translator, best, details.alternatives)
        for record, found in zip(records, alternatives, strict=True):
            record["alternatives"] = found
    for record, translation in zip(records, translations, strict=True):
        if details.n_best:
            record["n_best"] = [_record(candidate) for candidate in translation.n_best]
        if details.timings:
            record["timings"] = {"seconds": round(seconds, 6), "lines": len(records)}
    return [json.dumps(record, ensure_ascii=False) for record in records]


def _record(candidate: "Candidate") -> dict[str, Any]:
    return {
        "text": candidate.text,
        "tokens": candidate.tokens,
        "log_prob": candidate.log_prob,
        "score": candidate.score,
    }


def _alternatives(
    translator: "Translator", candidates: Sequence["Candidate"], num: int
) -> list[list[list[tuple[str, float]]]]:
    """Return for each token of each candidate the best ones at its place, and probabilities.

    The end of a line comes last; those of its other parts are no tokens of it and left out.
    """
    pieces = translator.tokenizers.tgt.pieces
    pairs = [(part.source, part.target) for c in candidates for part in c.parts]
    found = iter(translator.given.alternatives(pairs, num))
    return [
        [
            [(pieces([token])[0], round(math.exp(log_prob), 6)) for token, log_prob in place]
            for number, _ in enumerate(candidate.parts, start=1)
            for place in next(found)[: None if number == len(candidate.parts) else -1]
        ]
        for candidate in candidates
    ]


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """Chunks of lines to results, one after the other.

    Attributes:
        translator: Tells the details.
        translate: Its method, or that of what protects parts of the text.
        details: What is told beyond the text.
        as_json: Whether as JSON.
        num_lines: How many there are, for the bar; None: nobody knows.
        notes: Look at all lines.
    """

    translator: "Translator"
    translate: "Callable[..., list[Translation]]"
    details: Details
    as_json: bool
    num_lines: int | None = None
    notes: Sequence[LineNote] = ()

    def run(
        self,
        chunks: "Iterable[Sequence[str | Line]]",
        results: TextIO,
        links: TextIO | None,
        show: Callable[[int, int | None], None],
    ) -> "Totals":
        """Translate and write all chunks, each as soon as it is there.

        Args:
            chunks: The lines, with what is wanted of their translations.
            results: Where translations go.
            links: Where alignments go; None: nowhere.
            show: Told after each chunk how many lines are done.

        Raises:
            LineError: If a line cannot become what is wanted; those before it are written.
        """
        from transformer_mt.translation.requests import LineError

        totals = Totals()
        for chunk in chunks:
            first = totals.num_lines + 1
            try:
                self._add(chunk, totals, results, links)
            except LineError as error:
                if before := chunk[: error.number - first]:
                    self._add(before, totals, results, links)
                raise
            show(totals.num_lines, self.num_lines)
        return totals

    def _add(
        self,
        chunk: "Sequence[str | Line]",
        totals: "Totals",
        results: TextIO,
        links: TextIO | None,
    ) -> None:
        """Translate and write lines, and add them to the totals."""
        from transformer_mt.translation.alignment import attention_of

        begun = time.monotonic()
        translations = self.translate(chunk, first_line=totals.num_lines + 1)
        attentions: Sequence[Attention] = []
        if self.details.alignment or self.details.attention:
            best = [translation.n_best[0] for translation in translations]
            attentions = attention_of(self.translator, best, layer=self.details.layer)
        if self.as_json:
            spent = time.monotonic() - begun
            lines = json_lines(
                self.translator, translations, attentions, self.details, seconds=spent
            )
        elif self.details.n_best:
            lines = n_best_lines(translations, first=totals.num_lines)
        else:
            lines = [translation.text for translation in translations]
        results.writelines(f"{line}\n" for line in lines)
        results.flush()
        if links is not None:
            links.writelines(f"{of_line.pharaoh()}\n" for of_line in attentions)
            links.flush()
        sources = [line if isinstance(line, str) else line.text for line in chunk]
        first_line = totals.num_lines + 1
        _tell_misplaced(sources, translations, first_line=first_line)
        for note in self.notes:
            note.add(sources, translations, first_line=first_line)
        totals.add(translations, time.monotonic() - begun)


def _tell_misplaced(
    sources: Sequence[str], translations: "Sequence[Translation]", *, first_line: int
) -> None:
    """Warn of terms of a glossary that are in the output, but hardly as a translation."""
    from transformer_mt.translation.glossary import misplaced

    for number, (source, translation) in enumerate(
        zip(sources, translations, strict=True), start=first_line
    ):
        if not translation.terms:
            continue
        if found := misplaced(translation.terms, source, translation.text):
            logger.warning(
                "line %d: the model does not seem to know these terms, which stand behind the "
                "sentence or too often: %s",
                number,
                ", ".join(found),
            )


@dataclass
class Totals:
    """What is counted of all translations, and told at the end."""

    num_lines: int = 0
    seconds: float = 0.0
    num_cut: int = 0
    num_terms: int = 0
    num_terms_met: int = 0

    def add(self, translations: "Sequence[Translation]", seconds: float) -> None:
        """Count some more, and how long they took once they had been read."""
        self.num_lines += len(translations)
        self.seconds += seconds
        self.num_cut += sum(translation.num_cut for translation in translations)
        self.num_terms += sum(len(translation.terms) for translation in translations)
        self.num_terms_met += sum(translation.num_terms_met for translation in translations)

    def tell(self) -> None:
        """Log how many lines there were."""
        cut = f"; {counted(self.num_cut, 'sentence')} too long for one piece, translated in parts"
        lines = counted(self.num_lines, "line")
        logger.info("%s in %.1f s%s", lines, self.seconds, cut if self.num_cut else "")

    def tell_terms(self) -> None:
        """Log how many terms of the glossary are in the output."""
        share = f" ({self.num_terms_met / self.num_terms:.1%})" if self.num_terms else ""
        logger.info(
            "terms of the glossary in the output: %d of %d%s",
            self.num_terms_met,
            self.num_terms,
            share,
        )
