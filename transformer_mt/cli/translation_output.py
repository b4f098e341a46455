"""Output of `tmt translate`: text, n-best lists, JSON, alignments and totals."""

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TextIO

from transformer_mt.cli.input_warnings import InputWarning
from transformer_mt.errors import ConfigError
from transformer_mt.log import counted

if TYPE_CHECKING:
    from transformer_mt.bundle import Bundle
    from transformer_mt.config.decoding import DecodingSettings
    from transformer_mt.translation.alignment import Attention
    from transformer_mt.translation.requests import Line
    from transformer_mt.translation.results import Candidate, Translation
    from transformer_mt.translation.translator import Translator

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Details:
    """Output beyond the text of the best translation.

    Attributes:
        as_json: JSON records.
        alignment: Word alignments.
        attention: Weights of cross-attention, in JSON.
        alternatives: Number of probable tokens at each position, in JSON.
        layer: Decoder layer, from 1, of alignments and attention; None: the mean of all.
        n_best: N-best lists, for blank lines too.
    """

    as_json: bool = False
    alignment: bool = False
    attention: bool = False
    alternatives: int = 0
    layer: int | None = None
    n_best: bool = False

    @classmethod
    def of_options(
        cls, options: Mapping[str, Any], bundle: "Bundle", settings: "DecodingSettings"
    ) -> Self:
        """Take the values of options and settings.

        Raises:
            ConfigError: If the model cannot serve them.
        """
        details = cls(
            as_json=options["as_json"],
            alignment=options["alignments"] is not None,
            attention=settings.attention and options["as_json"],
            alternatives=settings.alternatives,
            layer=settings.alignment_layer,
            n_best=options["n_best"] > 1,
        )
        others = {
            "--protect": options["protect"],
            "decoding.coverage_penalty": settings.coverage_penalty,
        }
        details.check(num_layers=bundle.config.model.num_attention_layers, others=others)
        return details

    def check(self, *, num_layers: int, others: Mapping[str, object]) -> None:
        """Refuse what the model cannot serve.

        Args:
            num_layers: Decoder layers with attention to the whole source.
            others: Options, with their values, that need it as well.

        Raises:
            ConfigError: Names them.
        """
        needing = {"--alignments": self.alignment, "decoding.attention": self.attention, **others}
        used = [name for name, value in needing.items() if value]
        if used and not num_layers:
            raise ConfigError(
                f"{' and '.join(used)}: needs attention to the whole source, which this model does "
                "not have (model.attention none, or a decoder-only model with a pattern); leave it "
                "out"
            )
        if self.layer is not None and self.layer > num_layers:
            raise ConfigError(
                f"decoding.alignment_layer {self.layer}: the model has "
                f"{counted(num_layers, 'layer')}"
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
) -> list[str]:
    """Return a JSON object for each translation.

    Args:
        translator: The one that made them.
        translations: Of some lines.
        attentions: Of the best candidate of each; none if it is not wanted.
        details: What to write.
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
    return [json.dumps(record, ensure_ascii=False) for record in records]


def _record(candidate: "Candidate") -> dict[str, Any]:
    return {
        "text": candidate.text,
        "tokens": candidate.tokens,
        "log_prob": candidate.log_prob,
        "score": candidate.score,
        "confidence": candidate.confidence,
    }


def _alternatives(
    translator: "Translator", candidates: Sequence["Candidate"], num: int
) -> list[list[list[tuple[str, float]]]]:
    """Return for each token of each candidate the best ones at its place, and probabilities.

    The end of a line comes last; those of its other parts are no tokens of it and left out.
    """
    pieces = translator.tokenizers.tgt.pieces
    pairs = [(part.source, part.target) for c in candidates for part in c.parts]
    found = iter(translator.scorer.alternatives(pairs, num))
    return [
        [
            [(pieces([token])[0], round(math.exp(log_prob), 6)) for token, log_prob in place]
            for number, _ in enumerate(candidate.parts, start=1)
            for place in next(found)[: None if number == len(candidate.parts) else -1]
        ]
        for candidate in candidates
    ]


class Job:
    """Translation of chunks of lines, each written as soon as it is there.

    Args:
        translator: The translator.
        details: What to write.
        protect: Keep placeholders and markup: see `Protector`.
        num_lines: How many there are, for the bar; None: unknown.
        notes: Warnings about the input.

    Attributes:
        translator: The translator.
        num_done: Lines written.
        seconds: What they took once they had been read.
    """

    def __init__(
        self,
        translator: "Translator",
        details: Details,
        *,
        protect: bool = False,
        num_lines: int | None = None,
        notes: Sequence[InputWarning] = (),
    ) -> None:
        self.translator = translator
        self._details = details
        self._num_lines = num_lines
        self._notes = notes
        self._protector = None
        if protect:
            from transformer_mt.translation.markup.protection import Protector

            self._protector = Protector(translator)
        self.num_done = self._num_cut = self._num_terms = self._num_terms_met = 0
        self.seconds = 0.0

    def run(
        self,
        chunks: "Iterable[Sequence[str | Line]]",
        results: TextIO,
        links: TextIO | None,
        show: Callable[[int, int | None], None],
    ) -> None:
        """Translate and write all chunks.

        Args:
            chunks: The lines, with their constraints.
            results: Where translations go.
            links: Where alignments go; None: nowhere.
            show: Called after each chunk with the number of finished lines, and of all.

        Raises:
            LineError: If the constraints of a line cannot be met; lines before it are written.
        """
        from transformer_mt.translation.requests import LineError

        for chunk in chunks:
            first = self.num_done + 1
            try:
                self._add(chunk, results, links)
            except LineError as error:
                if before := chunk[: error.number - first]:
                    self._add(before, results, links)
                raise
            show(self.num_done, self._num_lines)

    def report(self, *, has_glossary: bool) -> None:
        """Log the totals and what was found in the input."""
        cut = f"; {counted(self._num_cut, 'sentence')} too long for one piece, translated in parts"
        lines = counted(self.num_done, "line")
        logger.info("%s in %.1f s%s", lines, self.seconds, cut if self._num_cut else "")
        if has_glossary:
            met, num_terms = self._num_terms_met, self._num_terms
            share = f" ({met / num_terms:.1%})" if num_terms else ""
            logger.info("glossary terms in the output: %d of %d%s", met, num_terms, share)
        for note in self._notes:
            note.report()
        if self._protector is not None:
            logger.info("protected: %s", self._protector.counts)

    def _add(self, chunk: "Sequence[str | Line]", results: TextIO, links: TextIO | None) -> None:
        """Translate and write lines, and add them to the totals."""
        begun = time.monotonic()
        first_line, details = self.num_done + 1, self._details
        translate = (self._protector or self.translator).translate
        translations = translate(chunk, first_line=first_line)
        attentions: Sequence[Attention] = []
        if details.alignment or details.attention:
            from transformer_mt.translation.alignment import attention_of

            best = [translation.n_best[0] for translation in translations]
            attentions = attention_of(self.translator, best, layer=details.layer)
        if details.as_json:
            lines = json_lines(self.translator, translations, attentions, details)
        elif details.n_best:
            lines = n_best_lines(translations, first=first_line - 1)
        else:
            lines = [translation.text for translation in translations]
        results.writelines(f"{line}\n" for line in lines)
        results.flush()
        if links is not None:
            links.writelines(f"{of_line.pharaoh()}\n" for of_line in attentions)
            links.flush()
        sources = [line if isinstance(line, str) else line.text for line in chunk]
        _warn_of_misplaced_terms(sources, translations, first_line=first_line)
        for note in self._notes:
            note.add(sources, translations, first_line=first_line)
        self.num_done += len(translations)
        self._num_cut += sum(translation.num_cut for translation in translations)
        self._num_terms += sum(len(translation.terms) for translation in translations)
        self._num_terms_met += sum(translation.num_terms_met for translation in translations)
        self.seconds += time.monotonic() - begun


def _warn_of_misplaced_terms(
    sources: Sequence[str], translations: "Sequence[Translation]", *, first_line: int
) -> None:
    """Warn of glossary terms that are in the output, but probably not as a translation."""
    from transformer_mt.translation.glossary import misplaced

    for number, (source, translation) in enumerate(
        zip(sources, translations, strict=True), start=first_line
    ):
        if not translation.terms:
            continue
        if found := misplaced(translation.terms, source, translation.text):
            logger.warning(
                "line %d: the model does not seem to know these terms, which are appended after "
                "the sentence or repeated: %s",
                number,
                ", ".join(found),
            )
