"""Translation service: what all endpoints of a server call.

An endpoint has the service in `request.app.state.service`, and does one of these:

    found = await service.translate(texts, "en", "de", alternatives=2)      # found[0].text
    guesses = await service.detect(text)                                    # [(code, probability)]
    results = await service.compute(task, sentences)  # in the queue: see `Task`
    direction = service.direction("en", "de")         # one model: no pivot; else `Refused`
    result = await service.run(function, direction)   # in a thread: `direction.translate(..)`,
                                                      # `direction.model` for attention, ..

All raise `limits.Refused`, which the server turns into `{"error": ..}`, and obey `service.limits`.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from transformer_mt.serving.batching import Batcher
from transformer_mt.serving.catalogue import Catalogue, Direction
from transformer_mt.serving.detection import Detector
from transformer_mt.serving.limits import DEFAULT_LIMITS, Limits, Refused
from transformer_mt.serving.metrics import Metrics
from transformer_mt.serving.pieces import joined, pieces_of

if TYPE_CHECKING:
    from transformer_mt.translation.keywords import SearchKeywords

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class Task(Hashable, Protocol[Result_co]):
    """What is computed for sentences; those of equal tasks share batches."""

    def __call__(self, sentences: Sequence[str], /) -> Sequence[Result_co]:
        """Return the result of each sentence; runs in a thread."""
        ...


MOST_CALLS = 32
"""Calls of `Service.run` that may wait or run."""


class Search(NamedTuple):
    """Task: candidates for the translation of each sentence.

    Attributes:
        direction: The model.
        beam_size: Of the search.
        n_best: Candidates of each sentence.
        protect: Whether tags and placeholders are brought through unchanged.
    """

    direction: Direction
    beam_size: int
    n_best: int
    protect: bool

    def __call__(self, sentences: Sequence[str], /) -> list[list[str]]:
        """Return the candidates of each sentence, best first."""
        config = self.direction.model.config
        options: SearchKeywords = {"n_best": self.n_best}
        options["beam_size"] = max(self.beam_size, self.n_best)
        if config.data.document is not None:  # a blank line ends what a sentence is read with
            sentences = [line for sentence in sentences for line in (sentence, "")]
        found = self.direction.translate(
            sentences, split_sentences=False, protect=self.protect, **options
        )
        if config.data.document is not None:
            found = found[::2]
        return [[candidate.text for candidate in own.n_best] for own in found]


@dataclass(frozen=True)
class Translated:
    """A translation of a text.

    Attributes:
        text: The best.
        alternatives: Others, best first.
    """

    text: str
    alternatives: list[str]


class Service:
    """Translates texts for many requests at a time.

    Args:
        catalogue: The models.
        limits: Of requests.
        num_threads: Batches, and other computations, at a time.
        batch_size: Sentences in a batch.
        batch_wait: Seconds that a batch waits for more sentences.
        beam_size: Of the search; None: as in the config of each model.

    Attributes:
        metrics: What is counted.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        limits: Limits = DEFAULT_LIMITS,
        num_threads: int = 1,
        batch_size: int = 32,
        batch_wait: float = 0.005,
        beam_size: int | None = None,
    ) -> None:
        self.catalogue = catalogue
        self.limits = limits
        self._beam_size = beam_size
        self._executor = ThreadPoolExecutor(num_threads, thread_name_prefix="translate")
        self._num_calls = 0
        self.detector = Detector()
        self.metrics = Metrics()
        self.batcher: Batcher[Task[Any], Any] = Batcher(
            lambda task, sentences: list(task(sentences)),
            self._executor,
            num_workers=num_threads,
            size=batch_size,
            wait=batch_wait,
            capacity=limits.waiting,
            on_batch=self.metrics.count_batch,
            on_abandoned=self.metrics.count_abandoned,
        )

    async def translate(
        self,
        texts: Sequence[str],
        source: str,
        target: str,
        *,
        alternatives: int = 0,
        protect: bool = False,
    ) -> list[Translated]:
        """Translate texts; line breaks and the white space around sentences stay.

        Args:
            texts: Of any number of lines and sentences.
            source: Code of their language.
            target: Code of the language to translate into.
            alternatives: Further translations of each text, if there are any.
            protect: Whether to bring tags and placeholders through unchanged.

        Raises:
            Refused: If there is no model for the pair, or too much is asked.
        """
        candidates = [[text] for text in texts]
        way = self.catalogue.way(source, target)
        for direction in way:
            n_best = 1 + alternatives if direction is way[-1] else 1
            best = [own[0] for own in candidates]
            search = Search(direction, self.beam_of(direction), n_best, protect)
            candidates = await self._through(best, search)
        return [
            Translated(own[0], [other for other in dict.fromkeys(own) if other != own[0]])
            for own in candidates
        ]

    async def _through(self, texts: Sequence[str], search: Search) -> list[list[str]]:
        """Return the candidates for each text of one model."""
        direction = search.direction
        split = direction.model.config.data.document is None
        pieces = [pieces_of(t, direction.source, direction.target, split=split) for t in texts]
        sentences = list(dict.fromkeys(p.sentence for own in pieces for p in own if p.sentence))
        results = await self.compute(search, sentences)
        found = dict(zip(sentences, results, strict=True))
        return [[joined(own, found, rank) for rank in range(search.n_best)] for own in pieces]

    def beam_of(self, direction: Direction) -> int:
        """Return the beam size for a model."""
        own = self._beam_size or direction.model.config.decoding.beam_size
        return min(own, self.limits.beam)

    async def compute(self, task: Task[Result], sentences: Sequence[str]) -> list[Result]:
        """Compute a task in the queue of the translations.

        Raises:
            Refused: If there are too many sentences, or too many wait.
        """
        if len(sentences) > self.limits.sentences:
            raise Refused(
                400,
                f"Invalid request: request ({len(sentences)} sentences) exceeds text limit "
                f"({self.limits.sentences})",
            )
        return await self.batcher.results(task, sentences)

    def direction(self, source: str, target: str) -> Direction:
        """Return the one model that translates from one language into another.

        Raises:
            Refused: If there is none.
        """
        way = self.catalogue.way(source, target)
        if len(way) != 1:
            raise Refused(400, f"there is no single model from {source} to {target}")
        return way[0]

    async def run(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Call a function in one of the threads that translate.

        Raises:
            Refused: If too many such calls wait.
        """
        if self._num_calls >= MOST_CALLS:
            raise Refused(503, "The server is busy: try again later", retry_after=1)
        self._num_calls += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._executor, function, *arguments)
        finally:
            self._num_calls -= 1

    async def detect(self, text: str) -> list[tuple[str, float]]:
        """Return the languages of the models with the probability of each, the likeliest first.

        Raises:
            Refused: If no detector is installed.
        """
        await asyncio.to_thread(self.detector.load)
        return self.detector.rank(text, self.catalogue.languages)

    @property
    def is_ready(self) -> bool:
        """Whether batches come to an end, as far as is known."""
        return self.batcher.longest_run() < self.limits.seconds
