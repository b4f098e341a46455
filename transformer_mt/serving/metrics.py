"""Counts of a server in the text format of Prometheus, without text, keys or addresses."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SENTENCES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_Sample: TypeAlias = tuple[str, float]
"""Suffix and labels of a sample, and its value."""


class Histogram:
    """Counts values by their size.

    Args:
        bounds: Largest value of each bucket but the last, which is open.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def samples(self, label: str = "") -> Iterator[_Sample]:
        """Yield the samples.

        Args:
            label: Such as `route="/detect"`.
        """
        total = 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            yield f'_bucket{{{label}{"," if label else ""}le="{bound}"}}', total
        own = f"{{{label}}}" if label else ""
        yield f"_sum{own}", self._sum
        yield f"_count{own}", total


class Metrics:
    """What a server counts.

    Attributes:
        sentences: Translated, in batches.
        abandoned: Not translated, as their request was given up.
        refused: Requests by the reason for which they got no answer.
        in_flight: Requests that are being answered.
    """

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(SECONDS))
        self._batches = Histogram(SENTENCES)
        self._batch_seconds = Histogram(SECONDS)
        self.sentences = 0
        self.abandoned = 0
        self.refused: Counter[str] = Counter()
        self.in_flight = 0

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that has been answered."""
        self._requests[route, status] += 1
        self._seconds[route].add(seconds)

    def count_batch(self, size: int, seconds: float) -> None:
        """Count a batch."""
        self.sentences += size
        self._batches.add(size)
        self._batch_seconds.add(seconds)

    def count_abandoned(self, size: int) -> None:
        """Count sentences of a request that was given up."""
        self.abandoned += size

    def text(self, *, waiting: int) -> str:
        """Return all counts.

        Args:
            waiting: Sentences in the queue.
        """
        requests = (
            (f'{{route="{route}",code="{code}"}}', n) for (route, code), n in self._requests.items()
        )
        seconds = (
            sample
            for route, histogram in self._seconds.items()
            for sample in histogram.samples(f'route="{route}"')
        )
        refused = ((f'{{reason="{reason}"}}', n) for reason, n in self.refused.items())
        return "".join(
            [
                _family("requests_total", "counter", requests),
                _family("request_seconds", "histogram", seconds),
                _family("requests_in_flight", "gauge", [("", self.in_flight)]),
                _family("refused_total", "counter", refused),
                _family("queue_sentences", "gauge", [("", waiting)]),
                _family("batch_sentences", "histogram", self._batches.samples()),
                _family("batch_seconds", "histogram", self._batch_seconds.samples()),
                _family("sentences_total", "counter", [("", self.sentences)]),
                _family("abandoned_sentences_total", "counter", [("", self.abandoned)]),
            ]
        )


def _family(name: str, kind: str, samples: Iterable[_Sample]) -> str:
    lines = [f"tmt_{name}{suffix} {value:g}\n" for suffix, value in samples]
    return f"# TYPE tmt_{name} {kind}\n{''.join(lines)}"
