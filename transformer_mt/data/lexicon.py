"""Bilingual lexicon: likely target tokens of each source token, learned from sentence pairs.

Source: Brown et al. 1993, model 1 with the empty source word.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from tqdm import tqdm

from transformer_mt.data.pairs import Ids, Ints, ragged_index
from transformer_mt.errors import ModelError
from transformer_mt.storage.folders import replace_file
from transformer_mt.text.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.text.tokenizer_pair import Tokenizers

KIND = "transformer_mt lexicon"
FORMAT_VERSION = "1"
ROUNDS = 5
NO_WORD = PAD_ID
"""The empty source word, which explains targets that no other does; no text has it."""

# Pairs of a source and a target token that are looked at together; each takes some 60 bytes.
_LINKS_AT_ONCE = 1 << 21

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lexicon:
    """Likely target tokens.

    Attributes:
        candidates: Of each source token (V_src, K), most probable first; `NO_WORD` where there are
            fewer.
        frequent: Tokens that go with all (F,).
    """

    candidates: NDArray[np.int32]
    frequent: NDArray[np.int32]

    def tokens_for(self, source: Sequence[int]) -> Ints:
        """Return the tokens that a translation may use, in rising order, without special ones."""
        found = np.unique(np.concatenate((self.candidates[list(source)].ravel(), self.frequent)))
        return found[found > EOS_ID].astype(np.int64)

    def save(self, path: Path, tokenizers: Tokenizers) -> None:
        """Write one file, whole or not at all.

        Raises:
            TmtError: If the disk refuses.
        """
        about = {
            "kind": KIND,
            "format_version": FORMAT_VERSION,
            "tokenizers": tokenizers.fingerprint(),
            "checksum": self._checksum(),
        }
        arrays = {"candidates": self.candidates, "frequent": self.frequent}
        replace_file(path, save(arrays, metadata=about))

    @classmethod
    def load(cls, path: Path, tokenizers: Tokenizers) -> "Lexicon":
        """Read what `save` wrote.

        Raises:
            ModelError: If it cannot be read, is damaged, or is of other tokenizers.
        """
        remedy = "make one with `tmt shortlist`"
        try:
            with safe_open(path, framework="numpy") as file:
                about = file.metadata() or {}
                arrays: dict[str, Any] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise ModelError(
                f"{path}: cannot be read as a shortlist ({error}): {remedy}"
            ) from error
        if about.get("kind") != KIND or about.get("format_version") != FORMAT_VERSION:
            raise ModelError(f"{path}: no shortlist of this version: {remedy}")
        if about.get("tokenizers") != tokenizers.fingerprint():
            raise ModelError(
                f"{path}: made for another vocabulary than the model's: {remedy} for this model"
            )
        sizes = tokenizers.src.vocab_size, tokenizers.tgt.vocab_size
        if not _is_sound(arrays, *sizes):
            raise ModelError(f"{path}: damaged: its tables do not fit the vocabulary: {remedy}")
        lexicon = cls(**arrays)
        if about.get("checksum", lexicon._checksum()) != lexicon._checksum():
            raise ModelError(f"{path}: damaged: it does not match its own checksum: {remedy}")
        return lexicon

    def _checksum(self) -> str:
        return xxhash.xxh3_64_hexdigest(self.candidates.tobytes() + self.frequent.tobytes())


def _is_sound(arrays: Mapping[str, Any], src_vocab_size: int, tgt_vocab_size: int) -> bool:
    """Return whether arrays from a file are those of a lexicon."""
    shapes = {name: array.shape for name, array in arrays.items()}
    return (
        shapes.keys() == {"candidates", "frequent"}
        and len(shapes["candidates"]) == 2
        and len(shapes["frequent"]) == 1
        and len(arrays["candidates"]) == src_vocab_size
        and all(
            array.dtype == np.int32 and np.all((array >= 0) & (array < tgt_vocab_size))
            for array in arrays.values()
        )
    )


class Pairs(Protocol):
    """Random access to pairs of token ids; see `data.pairs.TokenPairs`."""

    def __len__(self) -> int:
        """Count the pairs."""

    def lengths(self, rows: Ints) -> Ints:
        """Return source and target lengths (B, 2) of the pairs numbered `rows` (B,)."""

    def gather(self, rows: Ints) -> tuple[Ids, Ids]:
        """Return the tokens of the pairs numbered `rows` (B,), packed: (Ns,) and (Nt,)."""


def learn_lexicon(
    corpora: Sequence[Pairs],
    tokenizers: Tokenizers,
    *,
    num_candidates: int,
    num_frequent: int,
    max_pairs: int,
    always: Sequence[int] = (),
) -> Lexicon:
    """Find the most probable target tokens of each source token.

    Where both sides have one vocabulary, each token is also a candidate of itself: names stay.

    Args:
        corpora: Sentence pairs.
        tokenizers: Of these pairs.
        num_candidates: For each source token, K.
        num_frequent: Tokens that go with all.
        max_pairs: To learn from; of more, this many are taken evenly.
        always: More tokens that go with all.
    """
    num_pairs = sum(map(len, corpora))
    step = -(-num_pairs // max_pairs)
    logger.info("learning from %s pairs of %s", f"{-(-num_pairs // step):,}", f"{num_pairs:,}")
    rows = [np.arange(0, len(corpus), step) for corpus in corpora]
    tgt_vocab_size = tokenizers.tgt.vocab_size
    links, probs = _model_1(corpora, rows, tgt_vocab_size=tgt_vocab_size)
    candidates = _best(
        links, probs, (tokenizers.src.vocab_size, tgt_vocab_size), num=num_candidates
    )
    if tokenizers.joint:
        itself = np.arange(len(candidates), dtype=np.int32)[:, None]
        candidates = np.concatenate((itself, candidates), axis=1)
    counts = np.zeros(tgt_vocab_size, dtype=np.int64)
    for corpus, own in zip(corpora, rows, strict=True):
        for some in np.array_split(own, -(-len(own) // 65536)):
            counts += np.bincount(corpus.gather(some)[1], minlength=tgt_vocab_size)
    counts[[PAD_ID, UNK_ID, BOS_ID, EOS_ID]] = 0
    frequent = np.argsort(-counts, kind="stable")[:num_frequent]
    frequent = np.append(frequent[counts[frequent] > 0], np.array(always, dtype=np.int64))
    return Lexicon(candidates, frequent.astype(np.int32))


def _model_1(
    corpora: Sequence[Pairs], rows: Sequence[Ints], *, tgt_vocab_size: int
) -> tuple[Ints, NDArray[np.float32]]:
    """Return links source * V + target (L,), rising, and the probability of target given source."""
    links = np.empty(0, dtype=np.int64)
    counts = np.empty(0, dtype=np.float32)
    more: list[tuple[Ints, NDArray[np.float32]]] = []
    for own, inverse, sizes in _links(corpora, rows, tgt_vocab_size, "count"):
        # The first round: all tokens of a source are equally probable.
        expected = np.bincount(inverse, weights=np.repeat(1.0 / sizes, sizes))
        more.append((own, expected.astype(np.float32)))
        if sum(len(own) for own, _ in more) > len(links):  # seldom: each time takes them all
            links, counts = _joined([(links, counts), *more])
            more = []
    links, counts = _joined([(links, counts), *more])
    for number in range(1, ROUNDS):
        probs = _normalised(links, counts, tgt_vocab_size)
        counts = np.zeros_like(probs)
        for own, inverse, sizes in _links(corpora, rows, tgt_vocab_size, f"round {number}"):
            places = np.searchsorted(links, own)
            shares = probs[places][inverse]
            starts = np.cumsum(sizes) - sizes
            shares /= np.repeat(np.add.reduceat(shares, starts), sizes)
            counts[places] += np.bincount(inverse, weights=shares)
    return links, _normalised(links, counts, tgt_vocab_size)


def _links(
    corpora: Sequence[Pairs], rows: Sequence[Ints], tgt_vocab_size: int, title: str
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield what target tokens can be linked to, some pairs at a time.

    Yields:
        The different links, rising; the place among them of each link, one target token after
        another; and how many links each target token has.
    """
    total = sum(map(len, rows))
    with tqdm(desc=title, total=total, unit=" pairs", unit_scale=True, disable=None) as bar:
        for corpus, own in zip(corpora, rows, strict=True):
            sizes = np.cumsum(corpus.lengths(own).prod(axis=1))
            cuts = np.searchsorted(sizes, np.arange(_LINKS_AT_ONCE, sizes[-1], _LINKS_AT_ONCE))
            for some in np.split(own, np.unique(cuts + 1)):
                if len(some):
                    yield _links_of(corpus, some, tgt_vocab_size)
                    bar.update(len(some))


def _links_of(corpus: Pairs, rows: Ints, tgt_vocab_size: int) -> tuple[Ints, Ints, Ints]:
    lengths = corpus.lengths(rows)
    src, tgt = (tokens.astype(np.int64) for tokens in corpus.gather(rows))
    # The end of each source becomes the empty word; that of the target needs no explanation.
    src[np.cumsum(lengths[:, 0]) - 1] = NO_WORD
    is_text = np.ones(len(tgt), dtype=bool)
    is_text[np.cumsum(lengths[:, 1]) - 1] = False
    src_starts = np.cumsum(lengths[:, 0]) - lengths[:, 0]
    sizes = np.repeat(lengths[:, 0], lengths[:, 1] - 1)
    sources = src[ragged_index(np.repeat(src_starts, lengths[:, 1] - 1), sizes)]
    links = sources * tgt_vocab_size + np.repeat(tgt[is_text], sizes)
    own, inverse = np.unique(links, return_inverse=True)
    return own, inverse, sizes


def _joined(
    parts: Sequence[tuple[Ints, NDArray[np.float32]]],
) -> tuple[Ints, NDArray[np.float32]]:
    """Join lists of links and add the counts of those that stand in several."""
    links, inverse = np.unique(np.concatenate([own for own, _ in parts]), return_inverse=True)
    sums = np.bincount(inverse, weights=np.concatenate([counts for _, counts in parts]))
    return links, sums.astype(np.float32)


def _normalised(
    links: Ints, counts: NDArray[np.float32], tgt_vocab_size: int
) -> NDArray[np.float32]:
    """Divide by the sum of each source token."""
    sources = links // tgt_vocab_size
    totals = np.bincount(sources, weights=counts)
    return (counts / totals[sources]).astype(np.float32)


def _best(
    links: Ints, probs: NDArray[np.float32], sizes: tuple[int, int], *, num: int
) -> NDArray[np.int32]:
    """Return the most probable targets (V_src, num) of each source, of equal ones the first."""
    sources, targets = np.divmod(links, sizes[1])
    order = np.lexsort((targets, -probs, sources))
    starts = np.searchsorted(sources, np.arange(sizes[0]))
    ranks = np.arange(len(links)) - starts[sources]
    kept = ranks < num
    best = np.full((sizes[0], num), NO_WORD, dtype=np.int32)
    best[sources[kept], ranks[kept]] = targets[order[kept]]
    return best
