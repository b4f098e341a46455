"""Parity of an exported or imported model: the same scores and translations as its twin here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

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
        self, sources: Sequence[Sequence[int]], *, beam_size: int, exponent: float, max_length: int
    ) -> list[list[int]]:
        """Return the best targets.

        Args:
            sources: At least one.
            beam_size: 1 is greedy search.
            exponent: Scores are log-probabilities divided by length^exponent.
            max_length: Maximum number of tokens, eos included.
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
    bleu: tuple[float, float] | None

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
    ours: dict[int, list[list[int]]] = {}
    theirs: dict[int, list[list[int]]] = {}
    for width in {1, beam_size}:
        options = SearchOptions(
            beam_size=width,
            length_penalty_kind="average",
            length_penalty=exponent,
            max_length_factor=0.0,
            max_length_offset=max_length,
        )
        search = BatchSearch(bundle, options, None)
        ours[width], theirs[width] = [], []
        for some in _batches(chosen):
            ours[width] += [own[0].tokens for own in search([Request(tuple(s)) for s in some])]
            theirs[width] += twin.search(
                some, beam_size=width, exponent=exponent, max_length=max_length
            )
    pairs: list[Pair] = list(zip(chosen, ours[1], strict=True))
    differences = np.concatenate(
        [
            np.abs(np.subtract(here, there))
            for some in _batches(pairs)
            for here, there in zip(token_log_probs(bundle, some), twin.log_probs(some), strict=True)
        ]
    )
    return Parity(
        num_sentences=len(kept),
        beam_size=beam_size,
        exponent=exponent,
        max_difference=float(differences.max()),
        mean_difference=float(differences.mean()),
        greedy_identical=_identical(ours[1], theirs[1]),
        beam_identical=_identical(ours[beam_size], theirs[beam_size]),
        bleu=None
        if references is None
        else (
            _bleu(bundle, ours[beam_size], [references[i] for i in kept]),
            _bleu(bundle, theirs[beam_size], [references[i] for i in kept]),
        ),
    )


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


def _identical(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> float:
    return float(np.mean([list(a) == list(b) for a, b in zip(ours, theirs, strict=True)]))


def _bleu(bundle: Bundle, targets: Sequence[Sequence[int]], references: Sequence[str]) -> float:
    texts = list(map(bundle.tokenizers.tgt.decode, targets))
    language = bundle.config.data.tgt_lang
    return score(texts, references, metrics=["bleu"], tgt_lang=language)[0].value
