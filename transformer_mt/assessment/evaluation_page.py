"""The report of `tmt evaluate`: a web page on the scores of test sets and their sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from transformer_mt.assessment.flags import MEANINGS
from transformer_mt.assessment.sentences import Assessment, ScoredText, Sentence
from transformer_mt.assessment.words import count_words, differences, words_by_frequency
from transformer_mt.config.training import METRIC_LABELS
from transformer_mt.metrics.by_length import Bucket
from transformer_mt.metrics.outside import OutsideScore
from transformer_mt.metrics.scores import Score
from transformer_mt.plots.page import Bar, Cell, Page

SHOWN = 20
"""Sentences of each list."""
NOTE = (
    "By sentence chrF. Marked in translations: words that the reference has not; in references: "
    "words that the translation has not."
)


@dataclass(frozen=True)
class EvaluatedText:
    """A test set with all that its report shows.

    Attributes:
        text: Translations and references.
        scores: Of the whole text.
        outside: The same by metric commands.
        buckets: Scores by length.
        length_unit: What lengths are counted in, such as `source tokens`.
        assessment: Of its sentences.
    """

    text: ScoredText
    scores: Sequence[Score]
    outside: Sequence[OutsideScore]
    buckets: Sequence[Bucket]
    length_unit: str
    assessment: Assessment


def evaluation_page(
    texts: Sequence[EvaluatedText], *, about: str, frequencies: Mapping[str, int] | None = None
) -> Page:
    """Make the page.

    Args:
        texts: One or more.
        about: The model or file, for the head of the page.
        frequencies: Of the words of the training text; None: those of the references are used.
    """
    page = Page("Evaluation: " + ", ".join(own.text.name for own in texts), about)
    for own in texts:
        prefix = f"{own.text.name}: " if len(texts) > 1 else ""
        _scores(page, own, prefix)
        _by_length(page, own, prefix)
        _by_frequency(page, own, prefix, frequencies)
        _confidence(page, own, prefix)
        _flags(page, own, prefix)
        by_chrf = sorted(own.assessment.sentences, key=lambda sentence: sentence.chrf)
        by_chrf = [sentence for sentence in by_chrf if sentence.reference.strip()]
        page.section(f"{prefix}Worst and best sentences", NOTE)
        _sentences(page, own.text, by_chrf[:SHOWN])
        with page.folded("Best"):
            _sentences(page, own.text, by_chrf[::-1][:SHOWN])
    return page


def _scores(page: Page, own: EvaluatedText, prefix: str) -> None:
    page.section(
        f"{prefix}Scores",
        f"{len(own.text.hypotheses):,} sentences; ± half of the 95% interval by bootstrap.",
    )
    rows = [
        [
            METRIC_LABELS[score.name] + ("" if score.higher_is_better else " (lower is better)"),
            f"{score.value:.2f}",
            "" if score.half_width is None else f"± {score.half_width:.2f}",
            score.signature,
        ]
        for score in own.scores
    ]
    rows += [[score.name, f"{score.value:.4f}", "", score.command] for score in own.outside]
    page.table(["metric", "score", "", "signature"], rows, texts=(0, 3))
    shares = [
        [kept.name, f"{100 * kept.share:.1f} %", f"{kept.num_kept:,}", f"{kept.num_all:,}"]
        for kept in own.assessment.kept
        if kept.share is not None
    ]
    if shares:
        page.table(["of the source", "kept", "in translations", "in sources"], shares)


def _by_length(page: Page, own: EvaluatedText, prefix: str) -> None:
    page.section(f"{prefix}By length", f"Length in {own.length_unit}.")
    names = [score.name for score in own.scores]
    bars = []
    for bucket in own.buckets:
        for number, score in enumerate(bucket.scores):
            label = f"{bucket.name} ({bucket.num_sentences:,})" if number == 0 else ""
            series = names.index(score.name)
            bars.append(Bar(label, score.value, f"{score.value:.1f}", series=series))
    page.bars(bars, names=[METRIC_LABELS[name] for name in names])


def _by_frequency(
    page: Page, own: EvaluatedText, prefix: str, frequencies: Mapping[str, int] | None
) -> None:
    where = "references" if frequencies is None else "training text"
    page.section(
        f"{prefix}By word frequency",
        f"F1 of the words by how often each occurs in the {where}. In brackets: words of the "
        "references.",
    )
    counted = count_words(own.text.references) if frequencies is None else frequencies
    buckets = words_by_frequency(own.text.hypotheses, own.text.references, counted)
    page.bars(
        [
            Bar(f"{bucket.name} times ({bucket.num_expected:,})", bucket.f1, f"{bucket.f1:.1f}")
            for bucket in buckets
        ]
    )


def _confidence(page: Page, own: EvaluatedText, prefix: str) -> None:
    found = own.assessment.confidence
    if found is None:
        return
    page.section(
        f"{prefix}Confidence",
        "The geometric mean of the probabilities that the model gave to the tokens of a sentence. "
        f"With sentence chrF: Spearman {found.spearman:.3f}, Pearson {found.pearson:.3f}, "
        f"n = {found.num:,}. Mean chrF by fifths of the sentences:",
    )
    ranked = sorted(
        (own for own in own.assessment.sentences if own.confidence is not None),
        key=lambda sentence: sentence.confidence or 0.0,
    )
    bars = []
    for fifth in range(5):
        part = ranked[len(ranked) * fifth // 5 : len(ranked) * (fifth + 1) // 5]
        if part:
            low, high = part[0].confidence or 0.0, part[-1].confidence or 0.0
            value = fmean(sentence.chrf for sentence in part)
            bars.append(Bar(f"{low:.2f} to {high:.2f}", value, f"{value:.1f}"))
    page.bars(bars)


def _flags(page: Page, own: EvaluatedText, prefix: str) -> None:
    found = own.assessment
    page.section(
        f"{prefix}Flags",
        f"{found.num_flagged:,} of {len(found.sentences):,} sentences look wrong in some way.",
    )
    rows = [[flag, f"{number:,}", MEANINGS[flag]] for flag, number in found.num_flags().items()]
    if rows:
        page.table(["flag", "sentences", "meaning"], rows, texts=(0, 2))
    for flag, number in found.num_flags().items():
        with page.folded(f"{flag} ({number:,})"):
            flagged = [sentence for sentence in found.sentences if flag in sentence.flags]
            _sentences(page, own.text, flagged[:SHOWN])


def _sentences(page: Page, text: ScoredText, sentences: Sequence[Sentence]) -> None:
    """Write a table of sentences, with the words in which they differ from the reference."""
    names = list(sentences[0].outside) if sentences else []
    has_source, has_confidence = text.sources is not None, text.confidences is not None
    headings = ["line", "chrF"] + ["confidence"] * has_confidence + names
    first = len(headings)
    headings += ["source"] * has_source + ["translation", "reference", "flags"]
    rows: list[list[Cell]] = []
    for own in sentences:
        written, expected = differences(own.hypothesis, own.reference)
        numbers = [f"{own.number:,}", f"{own.chrf:.1f}"]
        if has_confidence:
            numbers.append("" if own.confidence is None else f"{own.confidence:.2f}")
        numbers += [f"{own.outside[name]:.3f}" for name in names]
        source = [own.source or ""] * has_source
        rows.append([*numbers, *source, written, expected, [(", ".join(own.flags), "flag")]])
    languages = {first: text.src_lang} if has_source else {}
    languages |= {first + has_source + number: text.tgt_lang for number in (0, 1)}
    page.table(headings, rows, texts=range(first, len(headings)), languages=languages)
