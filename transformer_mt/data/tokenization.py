"""Parallel tokenization of filtered pairs, in their order and in bounded memory."""

import logging
import os
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, islice
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from transformer_mt.data.filters import (
    FilterReport,
    Filters,
    HashSet,
    Reason,
    hash_pair,
    length_reasons,
    text_reasons,
)
from transformer_mt.data.pairs import Ints, pack_sentences
from transformer_mt.data.word_cache import WordCache
from transformer_mt.errors import DataError
from transformer_mt.processes import serve_parent
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.text.tokenizer_pair import NO_TAGS, Tags, Tokenizers

_CHUNK_PAIRS = 8192
_CHUNK_CHARACTERS = 1 << 20
_CHUNKS_WITHOUT_WORKERS = 8
_CHUNKS_AHEAD = 3
_MAX_RESTARTS = 2  # without a chunk in between

logger = logging.getLogger(__name__)

Texts = list[tuple[str, str]]


@dataclass(frozen=True)
class EncodedPairs:
    """The kept pairs of a chunk as packed tokens, and what became of all of them.

    Attributes:
        src: Source tokens (Ns,), each sentence ended by eos, in the least type for the vocabulary.
        tgt: Target tokens (Nt,).
        lengths: Source and target lengths (B, 2), uint16.
        report: Counts of the whole chunk.
    """

    src: NDArray[Any]
    tgt: NDArray[Any]
    lengths: NDArray[np.uint16]
    report: FilterReport


def encode_pairs(
    pairs: Iterable[tuple[str, str]],
    tokenizers: Tokenizers,
    *,
    filters: Filters,
    num_workers: int,
    first: int = 0,
    tags: Tags = NO_TAGS,
) -> Generator[EncodedPairs, None, None]:
    """Filter and tokenize pairs, a chunk at a time, in their order.

    The calling process reads, filters by text and finds duplicates; workers tokenize and filter by
    length. A few chunks are tokenized without workers.

    Args:
        pairs: The texts.
        tokenizers: Give the token ids.
        filters: Which pairs are kept.
        num_workers: Processes that tokenize.
        first: Number of pairs to skip, as they are tokenized already.
        tags: What stands before each source and each target.

    Raises:
        DataError: From the source, unchanged; or when workers die again and again.
    """
    chunks = _text_chunks(pairs, filters, first)
    encoder = _Encoder(tokenizers, filters, tags)
    head = list(islice(chunks, _CHUNKS_WITHOUT_WORKERS)) if num_workers > 1 else []
    if num_workers == 1 or len(head) < _CHUNKS_WITHOUT_WORKERS:
        for texts, report in chain(head, chunks):
            yield encoder.encode(texts, report)
        return
    yield from _encode_in_processes(encoder, chain(head, chunks), num_workers)


def _encode_in_processes(
    encoder: "_Encoder", chunks: Iterable[tuple[Texts, FilterReport]], num_workers: int
) -> Iterator[EncodedPairs]:
    """Encode chunks in their order."""
    with closing(_Workers(encoder, num_workers)) as workers:
        for texts, report in chunks:
            # Workers take a second or two to start: meanwhile this process does what it can.
            if not workers.pending and not workers.are_up():
                yield encoder.encode(texts, report)
                continue
            workers.submit(texts, report)
            if len(workers.pending) > _CHUNKS_AHEAD * num_workers:
                yield workers.oldest()
        while workers.pending:
            yield workers.oldest()


class _Workers:
    """Processes that tokenize. Where one dies, new ones get all that is not finished.

    Attributes:
        pending: Chunks that are not taken back yet, oldest first.
    """

    def __init__(self, encoder: "_Encoder", num_workers: int) -> None:
        self._encoder, self._num_workers = encoder, num_workers
        self._num_restarts = 0
        self.pending: deque[tuple[Texts, FilterReport, Future[EncodedPairs]]] = deque()
        self._start()

    def are_up(self) -> bool:
        """Return whether all processes have started."""
        return all(future.done() for future in self._starting)

    def submit(self, texts: Texts, report: FilterReport) -> None:
        """Give a chunk to the processes."""
        try:
            future = self._pool.submit(_encode_in_worker, texts, report)
        except BrokenProcessPool as error:  # a process died before anybody waited for it
            future = Future()
            future.set_exception(error)
        self.pending.append((texts, report, future))

    def oldest(self) -> EncodedPairs:
        """Wait for the oldest chunk and take it.

        Raises:
            DataError: If processes die again and again.
        """
        while True:
            try:
                result = self.pending[0][2].result()
            except BrokenProcessPool as error:
                self._restart(error)
            else:
                self._num_restarts = 0
                self.pending.popleft()
                return result

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)

    def _start(self) -> None:
        # Spawned, not forked: the threads of torch and of a progress bar do not survive a fork.
        self._pool = ProcessPoolExecutor(
            self._num_workers,
            mp_context=get_context("spawn"),
            initializer=_start_worker,
            initargs=(self._encoder,),
        )
        self._starting = [self._pool.submit(os.getpid) for _ in range(self._num_workers)]

    def _restart(self, error: BrokenProcessPool) -> None:
        self._num_restarts += 1
        if self._num_restarts > _MAX_RESTARTS:
            raise DataError(
                "processes that tokenize end unexpectedly, perhaps for lack of memory: "
                "set data.num_workers lower (in a script of your own, also put what it "
                'runs under `if __name__ == "__main__":`)'
            ) from error
        logger.warning("a process that tokenizes was killed: starting new ones")
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._start()
        for _ in range(len(self.pending)):
            texts, report, _ = self.pending.popleft()
            self.submit(texts, report)


def token_type(vocab_size: int) -> DTypeLike:
    """Return the least integer type for token ids."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def _text_chunks(
    pairs: Iterable[tuple[str, str]], filters: Filters, first: int
) -> Iterator[tuple[Texts, FilterReport]]:
    """Yield the texts that pass the filters on text, and the counts of those that do not."""
    seen = HashSet()
    pairs = iter(pairs)
    for chunk in _chunks(islice(pairs, first)):
        if filters.drop_duplicates:
            _drop_duplicates(_passing(chunk, filters)[0], seen)
    for chunk in _chunks(pairs):
        texts, counts = _passing(chunk, filters)
        if filters.drop_duplicates:
            num_texts = len(texts)
            texts = _drop_duplicates(texts, seen)
            counts["duplicate"] += num_texts - len(texts)
        yield texts, FilterReport(len(chunk), counts)


def _passing(chunk: Texts, filters: Filters) -> tuple[Texts, Counter[Reason]]:
    reasons = text_reasons(chunk, drop_copies=filters.drop_copies)
    if not any(reasons):
        return chunk, Counter()
    texts = [pair for pair, reason in zip(chunk, reasons, strict=True) if reason is None]
    return texts, Counter(reason for reason in reasons if reason is not None)


def _drop_duplicates(texts: Texts, seen: HashSet) -> Texts:
    hashes = [hash_pair(src, tgt) for src, tgt in texts]
    is_new = seen.add(np.array(hashes, dtype=np.uint64)).tolist()
    return [pair for pair, new in zip(texts, is_new, strict=True) if new]


def _chunks(pairs: Iterable[tuple[str, str]]) -> Iterator[Texts]:
    chunk: Texts = []
    num_characters = 0
    for src, tgt in pairs:
        chunk.append((src, tgt))
        num_characters += len(src) + len(tgt)
        if len(chunk) == _CHUNK_PAIRS or num_characters > _CHUNK_CHARACTERS:
            yield chunk
            chunk, num_characters = [], 0
    if chunk:
        yield chunk


class _Encoder:
    """Tokenizers with what they remember, and the filters on lengths."""

    def __init__(self, tokenizers: Tokenizers, filters: Filters, tags: Tags) -> None:
        longest = filters.max_length - max(len(tags.src), len(tags.tgt))
        self._filters, self._tags = replace(filters, max_length=longest), tags
        self._src = _Side(tokenizers.src)
        self._tgt = self._src if tokenizers.joint else _Side(tokenizers.tgt)

    def encode(self, texts: Texts, report: FilterReport) -> EncodedPairs:
        """Tokenize the pairs of a chunk and keep those of the right lengths."""
        src, src_lengths = self._src.encode([src for src, _ in texts])
        tgt, tgt_lengths = self._tgt.encode([tgt for _, tgt in texts])
        lengths = np.stack([src_lengths, tgt_lengths], axis=1)
        reasons = length_reasons(lengths - 1, self._filters)
        dropped = Counter(reason for reason in reasons if reason is not None)
        if dropped:
            is_kept = np.array([reason is None for reason in reasons])
            src, tgt = src[is_kept.repeat(src_lengths)], tgt[is_kept.repeat(tgt_lengths)]
            lengths = lengths[is_kept]
        src, tgt = (
            _after(self._tags.src, src, lengths[:, 0]),
            _after(self._tags.tgt, tgt, lengths[:, 1]),
        )
        lengths += np.array([len(self._tags.src), len(self._tags.tgt)])
        return EncodedPairs(src, tgt, lengths.astype(np.uint16), report + FilterReport(0, dropped))


class _Side:
    """One tokenizer, word by word where it can be."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._type = np.dtype(token_type(tokenizer.vocab_size))
        self._words = WordCache(tokenizer, self._type) if tokenizer.cuts_words_alone else None

    def encode(self, lines: list[str]) -> tuple[NDArray[Any], Ints]:
        """Return packed tokens with eos after each line (N,), and lengths with eos (B,)."""
        if self._words is not None and lines:
            return self._words.encode(lines)
        tokens, lengths = pack_sentences(self._tokenizer.encode_batch(lines))
        return tokens.astype(self._type), lengths


def _after(tags: Sequence[int], tokens: NDArray[Any], lengths: Ints) -> NDArray[Any]:
    """Put tags before each of some packed sentences."""
    if not tags:
        return tokens
    starts = np.cumsum(lengths) - lengths
    return np.insert(tokens, np.repeat(starts, len(tags)), np.tile(tags, len(lengths)))


_encoder: _Encoder
"""What a worker process was started with."""


def _start_worker(encoder: _Encoder) -> None:
    global _encoder
    _encoder = encoder
    serve_parent()


def _encode_in_worker(texts: Texts, report: FilterReport) -> EncodedPairs:
    return _encoder.encode(texts, report)
