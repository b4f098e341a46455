"""The work of `tmt translate`: chunks of lines to results, and what is counted of them."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from transformer_mt.cli.line_notes import LineNote
from transformer_mt.cli.translation_lines import Details, json_lines, n_best_lines
from transformer_mt.log import counted

if TYPE_CHECKING:
    from transformer_mt.translation.alignment import Attention
    from transformer_mt.translation.requests import Line
    from transformer_mt.translation.results import Translation
    from transformer_mt.translation.translator import Translator

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
