"""Translation speed: a whole file in batches, and one sentence at a time."""

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from transformer_mt.errors import DataError
from transformer_mt.translation.results import Translation
from transformer_mt.translation.translator import Translator

# Enough to start each of a few worker processes.
WARMUP_LINES = 256


@dataclass(frozen=True)
class DecodingSpeed:
    """Speed of translation; the names are those of the JSON output.

    Attributes:
        sentences_per_second: Lines of the file, blank ones left out; the median of all passes.
        tokens_per_second: Tokens of the translations, end of sentence counted.
        p50_seconds: Median latency of sentences that are translated one at a time.
        p95_seconds: Their 95th percentile.
        seconds: Of a whole pass, the median.
        passes: Seconds of each pass.
        num_sentences: Lines, blank ones left out.
        num_tokens: Tokens of their translations, end of sentence counted.
        num_singles: Sentences that were translated alone.
    """

    sentences_per_second: float
    tokens_per_second: float
    p50_seconds: float
    p95_seconds: float
    seconds: float
    passes: list[float]
    num_sentences: int
    num_tokens: int
    num_singles: int


def measure_decoding(
    translator: Translator, lines: Sequence[str], *, num_singles: int, seconds: float
) -> DecodingSpeed:
    """Translate lines for some seconds after a warm-up, and report the speed.

    Equal lines are translated once, as always, and count as often as they occur.

    Args:
        translator: The model and how it searches.
        lines: A whole file.
        num_singles: Number of lines, spread over the file, that are also translated alone.
        seconds: Passes over the file begin until then; at least one.

    Raises:
        DataError: If there is nothing to translate.
    """
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise DataError("nothing to translate: all lines are blank")
    translator.translate(evenly(lines, WARMUP_LINES))
    passes: list[float] = []
    translations: list[Translation] = []
    while sum(passes) < seconds or not passes:
        started = time.perf_counter()
        translations = translator.translate(lines)
        passes.append(time.perf_counter() - started)
    singles = []
    for line in evenly(lines, num_singles):
        started = time.perf_counter()
        translator.translate([line])
        singles.append(time.perf_counter() - started)
    middle = statistics.median(passes)
    num_tokens = sum(len(translation.n_best[0].tokens) + 1 for translation in translations)
    return DecodingSpeed(
        sentences_per_second=len(lines) / middle,
        tokens_per_second=num_tokens / middle,
        p50_seconds=quantile(singles, 0.5),
        p95_seconds=quantile(singles, 0.95),
        seconds=middle,
        passes=passes,
        num_sentences=len(lines),
        num_tokens=num_tokens,
        num_singles=len(singles),
    )


def evenly(lines: Sequence[str], number: int) -> list[str]:
    """Choose at most `number` lines, at equal distances, the first one included."""
    return list(lines[:: math.ceil(len(lines) / number)])


def quantile(values: Sequence[float], share: float) -> float:
    """Return the least of the values that at least this share of them does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
