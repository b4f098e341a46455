"""Error rates of characters and words, and exact lines: metrics that sacrebleu can sample."""

from collections.abc import Sequence
from importlib.metadata import version

from sacrebleu.metrics.base import Metric, Score, Signature

from transformer_mt.errors import ConfigError


class _Signature(Signature):  # type: ignore[misc]
    def __init__(self, args: dict[str, object]) -> None:
        super().__init__(args)
        self.info |= args.get("info", {})


class _Ratio(Metric):  # type: ignore[misc]
    """A share of sums over lines, in percent; of several references, the best for each line."""

    _SIGNATURE_TYPE = _Signature
    info: dict[str, str] = {}  # noqa: RUF012 - as sacrebleu has its classes

    def _preprocess_segment(self, sent: str) -> str:
        return sent.rstrip()

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, list[str]]:
        return {"lines": list(map(self._preprocess_segment, refs))}

    def _aggregate_and_compute(self, stats: Sequence[Sequence[float]]) -> Score:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])

    def _compute_score_from_stats(self, stats: Sequence[float]) -> Score:
        return Score(type(self).__name__, 100 * stats[0] / max(stats[1], 1))


class CER(_Ratio):
    """Character error rate: edits that make lines their references, by characters of these.

    Raises:
        ConfigError: If the extra is not installed.
    """

    unit = "code points"

    def __init__(self) -> None:
        super().__init__()
        try:
            from rapidfuzz.distance import Levenshtein
        except ImportError as error:
            raise ConfigError(
                "error rates need rapidfuzz: pip install 'transformer_mt[images]'"
            ) from error
        self._distance = Levenshtein.distance
        self.info = {"unit": self.unit, "rapidfuzz": version("rapidfuzz")}

    def _units(self, line: str) -> Sequence[str]:
        return line

    def _compute_segment_statistics(
        self, hypothesis: str, ref_kwargs: dict[str, list[str]]
    ) -> list[int]:
        units = self._units(hypothesis)
        references = [self._units(line) for line in ref_kwargs["lines"]]
        found = [(self._distance(units, line), len(line)) for line in references]
        best = min(found, key=lambda pair: pair[0] / max(pair[1], 1))
        return list(best)


class WER(CER):
    """Word error rate: the same with what stands between blanks, such as the phonemes of a word."""

    unit = "words"

    def _units(self, line: str) -> Sequence[str]:
        return line.split()


class Exact(_Ratio):
    """Share of lines that equal a reference; white space at the end does not count."""

    def _compute_segment_statistics(
        self, hypothesis: str, ref_kwargs: dict[str, list[str]]
    ) -> list[int]:
        return [int(hypothesis in ref_kwargs["lines"]), 1]
