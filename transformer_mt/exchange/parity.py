"""Parity of an exported or imported model: the same scores and translations as its twin here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from transformer_mt.bundle import Bundle
from transformer_mt.errors import DataError, TmtError
from transformer_mt.metrics.scores import score
from transformer_mt.translation.batch_search import BatchSearch
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.requests import Request
from transformer_mt.translation.scoring import Pair, token_log_probs

TOLERANCE = 1e-4
"""Greatest difference of a log-probability in float32, in nats."""
LEAST_IDENTICAL = 0.99
"""Share of translations that are the same; ties may differ."""
SENTENCES_AT_ONCE = 32

Item = TypeVar("Item")


class Twin(Protocol):
    """The same model in another program; all in tokens of ours, without bos and eos."""

    def log_probs(self, pairs: Sequence[Pair]) -> list[list[float]]:
        """Return the log-probability of each token of the targets, eos last, in nats."""
        ...

    def search(
        self,
        sources: Sequence[Sequence[int]],
        *,
        prefix: Sequence[int],
        beam_size: int,
        exponent: float,
        max_length: int,
    ) -> list[list[int]]:
        """Return the best targets.

        Args:
            sources: At least one.
            prefix: What all targets begin with: language tags.
            beam_size: 1 is greedy search.
            exponent: Scores are log-probabilities divided by length^exponent.
            max_length: Maximum number of tokens, prefix and eos included.
        """
        ...


@dataclass(frozen=True)
class Parity:
    """How far two programs agree on a model.

    Attributes:
        num_sentences: Sentences they were compared on.
        beam_size: Of the beam search.
        exponent: Its length penalty: see `Twin.search`.
        max_difference: Greatest difference of the log-probability of a token, in nats.
        mean_difference: The mean difference.
        greedy_identical: Share of greedy translations that are the same.
        beam_identical: The same for beam search.
        bleu: Of beam search here and there, where there are references; else None.
    """

    num_sentences: int
    beam_size: int
    exponent: float
    max_difference: float
    mean_difference: float
    greedy_identical: float
    beam_identical: float
    bleu: tuple[float, ...] | None

    def as_json(self) -> dict[str, Any]:
        """Return the numbers by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def summary(self) -> str:
        """Return one line for people."""
        bleu = (
            "" if self.bleu is None else f"; BLEU {self.bleu[0]:.2f} here, {self.bleu[1]:.2f} there"
        )
        return (
            f"{self.num_sentences} sentences: log-probabilities differ by at most "
            f"{self.max_difference:.1e}; greedy search {self.greedy_identical:.1%} identical, "
            f"beam {self.beam_size} {self.beam_identical:.1%}{bleu}"
        )


def compare(
    bundle: Bundle,
    twin: Twin,
    sources: Sequence[str],
    references: Sequence[str] | None,
    *,
    beam_size: int,
    exponent: float,
    max_length: int,
) -> Parity:
    """Compare a model with its twin in another program.

    Args:
        bundle: The model, on the CPU in float32.
        twin: The twin.
        sources: Sentences; those that are blank or longer than `max_length` are left out.
        references: Their translations; None: no BLEU.
        beam_size: See `Twin.search`, also for the next two.
        exponent: See `beam_size`.
        max_length: See `beam_size`.

    Raises:
        DataError: If no sentence is left.
    """
    tokenizers = bundle.tokenizers
    ids = tokenizers.src.encode_batch(list(sources))
    kept = [i for i, text in enumerate(sources) if text.strip() and len(ids[i]) < max_length]
    if not kept:
        raise DataError(
            f"no sentences to compare on: all {len(sources)} lines are blank or too long"
        )
    chosen = [ids[i] for i in kept]
    search = _Search(bundle, twin, chosen, exponent, max_length)
    greedy, beam = search(1), search(beam_size)
    pairs: list[Pair] = list(zip(chosen, greedy.ours, strict=True))
    differences = [_differences(bundle, twin, some) for some in _batches(pairs)]
    bleu = None
    if references is not None:
        kept_references = [references[i] for i in kept]
        bleu = tuple(_bleu(bundle, found, kept_references) for found in (beam.ours, beam.theirs))
    return Parity(
        num_sentences=len(kept),
        beam_size=beam_size,
        exponent=exponent,
        max_difference=float(np.concatenate(differences).max()),
        mean_difference=float(np.concatenate(differences).mean()),
        greedy_identical=greedy.identical,
        beam_identical=beam.identical,
        bleu=bleu,
    )


def _differences(bundle: Bundle, twin: Twin, pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """Return the differences of the log-probabilities of all tokens, but those of tags."""
    tags = bundle.tags
    tagged = [((*tags.src, *source), (*tags.tgt, *target)) for source, target in pairs]
    theirs = [found[len(tags.tgt) :] for found in twin.log_probs(tagged)]
    ours = token_log_probs(bundle, pairs)
    found: NDArray[np.float64] = np.abs(np.concatenate(ours) - np.concatenate(theirs))
    return found


@dataclass(frozen=True)
class _Found:
    """The best targets of both programs."""

    ours: list[list[int]]
    theirs: list[list[int]]

    @property
    def identical(self) -> float:
        """Share that is the same."""
        return float(np.mean([a == b for a, b in zip(self.ours, self.theirs, strict=True)]))


@dataclass(frozen=True)
class _Search:
    """Searches with both programs, in equal settings: see `Twin.search`."""

    bundle: Bundle
    twin: Twin
    sources: Sequence[Sequence[int]]
    exponent: float
    max_length: int

    def __call__(self, beam_size: int) -> _Found:
        """Search with a beam."""
        options = SearchOptions(
            beam_size=beam_size,
            length_penalty_kind="average",
            length_penalty=self.exponent,
            max_length_factor=0.0,
            max_length_offset=self.max_length,
        )
        search, tags = BatchSearch(self.bundle, options, None), self.bundle.tags
        found = _Found([], [])
        for some in _batches(self.sources):
            requests = [Request(tuple(source)) for source in some]
            found.ours.extend(own[0].tokens for own in search(requests))
            theirs = self.twin.search(
                [[*tags.src, *source] for source in some],
                prefix=tags.tgt,
                beam_size=beam_size,
                exponent=self.exponent,
                max_length=self.max_length + len(tags.tgt),
            )
            found.theirs.extend(target[len(tags.tgt) :] for target in theirs)
        return found


def check(parity: Parity, target: str) -> None:
    """Refuse a model that is not the same there.

    Raises:
        TmtError: If scores differ by more than `TOLERANCE`, or fewer than `LEAST_IDENTICAL`
            greedy translations are the same.
    """
    if parity.max_difference > TOLERANCE or parity.greedy_identical < LEAST_IDENTICAL:
        raise TmtError(
            f"{target} does not compute the same, nothing was written: {parity.summary()}"
        )


def _batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), SENTENCES_AT_ONCE):
        yield items[start : start + SENTENCES_AT_ONCE]


def _bleu(bundle: Bundle, targets: Sequence[Sequence[int]], references: Sequence[str]) -> float:
    texts = list(map(bundle.tokenizers.tgt.decode, targets))
    language = bundle.config.data.tgt_lang
    return score(texts, references, metrics=["bleu"], tgt_lang=language)[0].value
