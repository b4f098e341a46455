"""BLEU, chrF, chrF++, TER, error rates and exact lines of whole test sets.

They are sacrebleu's, with its signatures, or made for its ways of sampling.

A score means something only with its signature: the same translations differ by several BLEU
between tokenizations (Post 2018).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from transformer_mt.config.language_codes import WITHOUT_SPACES, plain_code
from transformer_mt.config.training import MetricName
from transformer_mt.errors import DataError
from transformer_mt.metrics.error_rates import CER, WER, Exact

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Score:
    """A score of a set of translations.

    Attributes:
        name: Name of the metric, as in configs.
        value: From 0 to 100; TER, CER and WER can be larger.
        signature: How sacrebleu computed it.
        higher_is_better: False for TER, CER and WER, which count edits.
        half_width: Of the 95% interval by bootstrap; None where it was not asked for.
    """

    name: MetricName
    value: float
    signature: str
    higher_is_better: bool
    half_width: float | None = None


def check_texts(
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    more_references: Sequence[Sequence[str]] = (),
) -> None:
    """Refuse texts that have no score.

    Raises:
        DataError: If the numbers of lines differ, or all references are blank.
    """
    for hypotheses in systems:
        for lines in (references, *more_references):
            if len(hypotheses) != len(lines):
                raise DataError(
                    f"expected one translation for each reference; got {len(hypotheses)} "
                    f"translations and {len(lines)} references"
                )
    if not references:
        raise DataError("nothing to score: there are no translations and no references")
    if not any(reference.strip() for reference in references):
        raise DataError("nothing to score: all references are blank lines")


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    metrics: Sequence[MetricName],
    tgt_lang: str,
    more_references: Sequence[Sequence[str]] = (),
) -> list[Score]:
    """Score translations against one reference each, or several.

    Args:
        hypotheses: Translations as users see them, not tokenized.
        references: As many, in the same order.
        metrics: Which scores, in the order wanted.
        tgt_lang: Language code such as `de`, `zh-CN` or `jpn_Jpan`; chooses how words are
            separated. Unknown codes count as languages with spaces.
        more_references: Further references, each a list with one for each source.

    Raises:
        DataError: If the numbers of lines differ, or all references are blank.
    """
    check_texts([hypotheses], references, more_references)
    scores = []
    for name in metrics:
        metric = build_metric(name, tgt_lang)
        all_references = [list(lines) for lines in (references, *more_references)]
        value = metric.corpus_score(list(hypotheses), all_references).score
        scores.append(
            Score(
                name=name,
                value=float(value),
                signature=str(metric.get_signature()),
                higher_is_better=METRICS[name].higher_is_better,
            )
        )
    return scores


def build_metric(name: MetricName, tgt_lang: str) -> Metric:
    """Return sacrebleu's metric, set up for a target language."""
    return METRICS[name].build(plain_code(tgt_lang))


def sentence_chrf(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    more_references: Sequence[Sequence[str]] = (),
) -> list[float]:
    """Return chrF of each translation, as sacrebleu's `sentence_chrf`; see `score`."""
    metric = CHRF()
    lines = zip(hypotheses, references, *more_references, strict=True)
    return [float(metric.sentence_score(line, own).score) for line, *own in lines]


def bleu_tokenizer(tgt_lang: str) -> Callable[[str], list[str]]:
    """Return the function by which BLEU tokenizes a text of a language."""
    metric = _bleu(plain_code(tgt_lang))
    return lambda text: metric.tokenizer(text.rstrip()).split()


@dataclass(frozen=True)
class _Kind:
    """A metric: its builder for a language, and whether more is better."""

    build: Callable[[str], Metric]
    higher_is_better: bool


def _bleu(language: str) -> BLEU:
    if language in _NO_SPACES:
        _advise(language, "BLEU counts characters, not words (tok:char in the signature)")
        return BLEU(tokenize="char")
    tokenizer = _BLEU_TOKENIZERS.get(language, BLEU.TOKENIZER_DEFAULT)
    try:
        return BLEU(tokenize=tokenizer)
    except RuntimeError:  # the package with its dictionary is not installed
        _advise(
            language,
            "BLEU counts characters, not words (tok:char in the signature), and cannot be compared "
            f"with scores of {tokenizer}; for those: pip install 'sacrebleu[{language}]'",
        )
        return BLEU(tokenize="char")


def _chrf(language: str) -> Metric:
    return CHRF()


def _chrfpp(language: str) -> Metric:
    if language in WITHOUT_SPACES:
        _advise(language, "chrF++ takes whole sentences for words; better look at chrF")
    return CHRF(word_order=2)


def _ter(language: str) -> Metric:
    if language in ("zh", "ja"):
        # Otherwise a whole Chinese or Japanese sentence would be one word.
        return TER(normalized=True, asian_support=True)
    if language in _NO_SPACES:
        _advise(language, "TER takes whole sentences for words; better look at chrF")
    return TER()


METRICS: dict[MetricName, _Kind] = {
    "bleu": _Kind(_bleu, higher_is_better=True),
    "chrf": _Kind(_chrf, higher_is_better=True),
    "chrfpp": _Kind(_chrfpp, higher_is_better=True),
    "ter": _Kind(_ter, higher_is_better=False),
    "cer": _Kind(lambda language: CER(), higher_is_better=False),
    "wer": _Kind(lambda language: WER(), higher_is_better=False),
    "exact": _Kind(lambda language: Exact(), higher_is_better=True),
}

# sacrebleu's advice; every other language has spaces and its default.
_BLEU_TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
_NO_SPACES = WITHOUT_SPACES - _BLEU_TOKENIZERS.keys()


@cache
def _advise(language: str, advice: str) -> None:
    """Warn once, not at each validation."""
    logger.warning("target language %s: %s", language, advice)
