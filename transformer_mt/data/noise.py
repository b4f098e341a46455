"""Noise on token ids for denoising: masked spans, deletion, local shuffling."""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from transformer_mt.config.sources import HeldOutSource, MonolingualSource
from transformer_mt.data.pair_source import PairSource, hash_values
from transformer_mt.data.pairs import Ints
from transformer_mt.storage.hashes import NO_HASHES, FileHashes
from transformer_mt.text.tokenizer import Tokenizer


class Noise:
    """Noise that depends on a generator alone, and leaves one token at least as it is.

    Source: Lewis et al. 2020, section 2.2; Lample et al. 2018, "Unsupervised machine translation
    using monolingual corpora only", section 2.3. differs: on tokens, not words; no spans of length
    0, and lengths are 1 + Poisson(span - 1).

    Args:
        mask_id: Token that stands for what is masked.
        num_fixed: Tokens at the beginning that stay as they are.
        mask: Share of the tokens that are masked.
        span: Mean length of a masked span.
        masks: One mask for a span, or one for each of its tokens.
        delete: Probability of each token to be left out.
        shuffle: Most places that a token moves.
    """

    def __init__(
        self,
        *,
        mask_id: int,
        num_fixed: int = 0,
        mask: float,
        span: float,
        masks: Literal["one", "each"],
        delete: float,
        shuffle: int,
    ) -> None:
        self._mask_id, self._num_fixed = mask_id, num_fixed
        self._mask, self._span, self._masks = mask, span, masks
        self._delete, self._shuffle = delete, shuffle

    def __call__(self, ids: Sequence[int], rng: np.random.Generator) -> list[int]:
        """Return a sentence with noise, never longer than it was."""
        tokens = np.array(ids[self._num_fixed :], dtype=np.int64)
        if self._shuffle:
            order = np.arange(len(tokens)) + rng.uniform(0, self._shuffle + 1, len(tokens))
            tokens = tokens[order.argsort(kind="stable")]
        if self._delete and len(tokens):
            is_kept = rng.random(len(tokens)) >= self._delete
            is_kept[rng.integers(len(tokens))] |= not is_kept.any()
            tokens = tokens[is_kept]
        return [*ids[: self._num_fixed], *self._masked(tokens, rng).tolist()]

    def _masked(self, tokens: Ints, rng: np.random.Generator) -> Ints:
        """Mask spans, at places of which none is likelier than another."""
        num_masked = min(int(self._mask * len(tokens) + rng.random()), len(tokens) - 1)
        lengths: list[int] = []
        while (missing := num_masked - sum(lengths)) > 0:
            lengths.append(min(1 + int(rng.poisson(self._span - 1)), missing))
        if not lengths:
            return tokens
        num_items = len(tokens) - num_masked + len(lengths)  # tokens that stay, and spans
        is_span = np.zeros(num_items, dtype=bool)
        is_span[rng.choice(num_items, len(lengths), replace=False)] = True
        widths = np.ones(num_items, dtype=np.int64)
        widths[is_span] = lengths
        if self._masks == "each":
            return np.where(is_span.repeat(widths), self._mask_id, tokens)
        return np.where(is_span, self._mask_id, tokens[widths.cumsum() - widths])


def noise_of(source: MonolingualSource, tokenizer: Tokenizer, *, num_tags: int = 0) -> Noise:
    """Build the noise of a source; its mask and its tag are user symbols of the tokenizer.

    Args:
        source: The source.
        tokenizer: Of the source.
        num_tags: Language tags before each sentence.
    """
    settings = source.noise.model_dump(exclude={"symbol"})
    num_fixed = num_tags + (0 if source.tag is None else len(tokenizer.encode(source.tag)))
    # A source without masks needs no symbol.
    mask_id = tokenizer.ids.get(source.noise.symbol, -1)
    return Noise(mask_id=mask_id, num_fixed=num_fixed, **settings)


def noised_lines(lines: Sequence[str], noise: Noise, tokenizer: Tokenizer) -> list[str]:
    """Return lines with noise, the same in all runs: the source side of a validation set."""
    return [
        tokenizer.decode(noise(ids, np.random.default_rng((0, number))))
        for number, ids in enumerate(tokenizer.encode_batch(lines))
    ]


def tagged(source: PairSource, settings: HeldOutSource) -> PairSource:
    """Put the tag of a source before its source texts, if it has one."""
    tag: str | None = getattr(settings, "tag", None)
    return source if tag is None else TaggedPairs(source, tag)


class TaggedPairs:
    """The pairs of another source, with a token before each source text."""

    def __init__(self, source: PairSource, tag: str) -> None:
        self._source, self._tag = source, tag

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs; a blank source stays blank."""
        for src, tgt in self._source:
            yield f"{self._tag} {src}" if src.strip() else src, tgt

    def describe(self) -> str:
        """Name the source."""
        return self._source.describe()

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Hash the source and the tag."""
        return hash_values("tagged", self._source.fingerprint(hashes), self._tag)
