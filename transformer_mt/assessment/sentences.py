"""Assessment of a scored text, sentence by sentence: chrF, confidence, flags, what was kept."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformer_mt.assessment.flags import FLAGS, Flag, flags_of
from transformer_mt.assessment.kept import Kept, accuracies
from transformer_mt.metrics.correlation import Correlation, correlation
from transformer_mt.metrics.scores import sentence_chrf
from transformer_mt.translation.glossary import Glossary


@dataclass(frozen=True)
class ScoredText:
    """Translations of a text with what they are compared with.

    Attributes:
        name: Of the test set.
        hypotheses: Translations.
        references: As many.
        tgt_lang: Code of their language; empty if it is not known.
        more_references: Further references, each a list with one for each line.
        sources: As many; None if they are not known.
        src_lang: Code of their language; empty if it is not known.
        confidences: Of a model in the translations, from 0 to 1; None without a model, and where
            a line is too long for it.
        coverage: See `evaluation.source_coverage`; None without a model that has one.
    """

    name: str
    hypotheses: Sequence[str]
    references: Sequence[str]
    tgt_lang: str = ""
    more_references: Sequence[Sequence[str]] = ()
    sources: Sequence[str] | None = None
    src_lang: str = ""
    confidences: Sequence[float | None] | None = None
    coverage: Sequence[float] | None = None


@dataclass(frozen=True)
class Sentence:
    """A translation and what was found about it.

    Attributes:
        number: Of its line, from 1.
        source: None if it is not known.
        hypothesis: The translation.
        reference: The first one.
        chrf: Against all references, as sacrebleu's sentence chrF.
        confidence: See `ScoredText`.
        flags: What looks wrong.
        outside: Scores of metric commands by name.
    """

    number: int
    source: str | None
    hypothesis: str
    reference: str
    chrf: float
    confidence: float | None
    flags: Sequence[Flag]
    outside: Mapping[str, float] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "line": self.number,
            "source": self.source,
            "hypothesis": self.hypothesis,
            "reference": self.reference,
            "chrf": self.chrf,
            "confidence": self.confidence,
            "flags": list(self.flags),
            **({"metrics": dict(self.outside)} if self.outside else {}),
        }


@dataclass(frozen=True)
class Assessment:
    """What was found about a scored text.

    Attributes:
        sentences: Each of them.
        kept: Numbers, marks and terms; none without sources.
        confidence: How the confidence goes together with chrF; None without a model.
    """

    sentences: list[Sentence]
    kept: list[Kept]
    confidence: Correlation | None

    def num_flags(self) -> dict[Flag, int]:
        """Return the number of sentences that have each flag."""
        counts = Counter(flag for sentence in self.sentences for flag in sentence.flags)
        return {flag: counts[flag] for flag in FLAGS if counts[flag]}

    @property
    def num_flagged(self) -> int:
        """Sentences with a flag."""
        return sum(bool(sentence.flags) for sentence in self.sentences)

    def record(self) -> dict[str, Any]:
        """Return the totals as JSON values."""
        about = self.confidence
        return {
            "kept": {own.name: {"kept": own.num_kept, "all": own.num_all} for own in self.kept},
            "flags": self.num_flags(),
            "num_flagged": self.num_flagged,
            "confidence": about
            and {"spearman": about.spearman, "pearson": about.pearson, "n": about.num},
        }

    def lines(self) -> list[str]:
        """Return the totals for people."""
        shares = [
            f"{own.name} kept = {100 * own.share:.1f}% ({own.num_kept:,} of {own.num_all:,})"
            for own in self.kept
            if own.share is not None
        ]
        flags = ", ".join(f"{flag} {number:,}" for flag, number in self.num_flags().items())
        total = f"flagged sentences = {self.num_flagged:,} of {len(self.sentences):,}"
        found = [*shares, total + (f" ({flags})" if flags else "")]
        if self.confidence is not None:
            found.append(
                f"confidence and sentence chrF: Spearman = {self.confidence.spearman:.3f}, "
                f"Pearson = {self.confidence.pearson:.3f} (n = {self.confidence.num:,})"
            )
        return found


def assess(
    text: ScoredText,
    *,
    glossary: Glossary | None = None,
    outside: Mapping[str, Sequence[float]] | None = None,
) -> Assessment:
    """Look at each translation of a text.

    Args:
        text: Translations, references and what else is known.
        glossary: Terms whose accuracy is counted.
        outside: Scores of each line by the name of a metric command.
    """
    chrf = sentence_chrf(text.hypotheses, text.references, more_references=text.more_references)
    flags = flags_of(
        text.hypotheses,
        text.references,
        chrf=chrf,
        sources=text.sources,
        tgt_lang=text.tgt_lang,
        confidences=text.confidences,
        coverage=text.coverage,
    )
    others = outside or {}
    sentences = [
        Sentence(
            number=line + 1,
            source=None if text.sources is None else text.sources[line],
            hypothesis=hypothesis,
            reference=text.references[line],
            chrf=chrf[line],
            confidence=None if text.confidences is None else text.confidences[line],
            flags=flags[line],
            outside={name: values[line] for name, values in others.items()},
        )
        for line, hypothesis in enumerate(text.hypotheses)
    ]
    kept = []
    if text.sources is not None:
        kept = accuracies(text.hypotheses, text.references, sources=text.sources, glossary=glossary)
    scored = [own for own in sentences if own.reference.strip() and own.confidence is not None]
    together = correlation([own.confidence or 0.0 for own in scored], [own.chrf for own in scored])
    return Assessment(sentences, kept, together)
