"""Texts to tokens: filtered and tokenized in parallel processes, in order, in bounded memory."""

import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain, islice
from multiprocessing import get_context, parent_process
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
from transformer_mt.data.pairs import pack_sentences
from transformer_mt.errors import DataError
from transformer_mt.text.tokenizer import Tokenizer, Tokenizers

_CHUNK_PAIRS = 2048
_CHUNK_CHARACTERS = 1 << 20
_CHUNKS_WITHOUT_WORKERS = 8
_CHUNKS_AHEAD = 3

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
) -> Generator[EncodedPairs, None, None]:
    """Filter and tokenize pairs, a chunk at a time, in their order.

    Reading, text filters and duplicates are the caller's process, tokenizing and length filters
    are the workers'. What fits in a few chunks is done here: starting workers takes longer.

    Raises:
        DataError: From the source, unchanged; or when a worker dies.
    """
    chunks = _text_chunks(pairs, filters)
    head = list(islice(chunks, _CHUNKS_WITHOUT_WORKERS)) if num_workers > 1 else []
    if num_workers == 1 or len(head) < _CHUNKS_WITHOUT_WORKERS:
        for texts, report in chain(head, chunks):
            yield _encode(texts, report, tokenizers, filters)
        return
    # Spawned, not forked: the threads of torch and of a progress bar do not survive a fork.
    pool = ProcessPoolExecutor(
        num_workers,
        mp_context=get_context("spawn"),
        initializer=_start_worker,
        initargs=(tokenizers, filters),
    )
    try:
        pending: deque[Future[EncodedPairs]] = deque()
        for texts, report in chain(head, chunks):
            pending.append(pool.submit(_encode_in_worker, texts, report))
            if len(pending) > _CHUNKS_AHEAD * num_workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise DataError(
            "a process that tokenizes ended unexpectedly, perhaps for lack of memory: "
            "set data.num_workers lower (in a script of your own, also put what it runs under "
            '`if __name__ == "__main__":`)'
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def token_type(vocab_size: int) -> DTypeLike:
    """Return the least integer type for token ids."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def _text_chunks(
    pairs: Iterable[tuple[str, str]], filters: Filters
) -> Iterator[tuple[Texts, FilterReport]]:
    """Yield the texts that pass the filters on text, and the counts of those that do not."""
    seen = HashSet()
    for chunk in _chunks(pairs):
        reasons = text_reasons(chunk, drop_copies=filters.drop_copies)
        texts = [pair for pair, reason in zip(chunk, reasons, strict=True) if reason is None]
        counts = Counter(reason for reason in reasons if reason is not None)
        if filters.drop_duplicates:
            hashes = [hash_pair(src, tgt) for src, tgt in texts]
            is_new = seen.add(np.array(hashes, dtype=np.uint64)).tolist()
            counts["duplicate"] += len(texts) - sum(is_new)
            texts = [pair for pair, new in zip(texts, is_new, strict=True) if new]
        yield texts, FilterReport(len(chunk), counts)


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


def _encode(
    texts: Texts, report: FilterReport, tokenizers: Tokenizers, filters: Filters
) -> EncodedPairs:
    src = tokenizers.src.encode_batch([src for src, _ in texts])
    tgt = tokenizers.tgt.encode_batch([tgt for _, tgt in texts])
    lengths = np.array([list(map(len, src)), list(map(len, tgt))], dtype=np.int64).T
    reasons = length_reasons(lengths, filters)
    src_tokens, src_lengths = _pack_kept(src, reasons, tokenizers.src)
    tgt_tokens, tgt_lengths = _pack_kept(tgt, reasons, tokenizers.tgt)
    dropped = Counter(reason for reason in reasons if reason is not None)
    return EncodedPairs(
        src_tokens,
        tgt_tokens,
        np.stack([src_lengths, tgt_lengths], axis=1).astype(np.uint16),
        report + FilterReport(0, dropped),
    )


def _pack_kept(
    sentences: list[list[int]], reasons: list[Reason | None], tokenizer: Tokenizer
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    kept = [ids for ids, reason in zip(sentences, reasons, strict=True) if reason is None]
    tokens, lengths = pack_sentences(kept)
    return tokens.astype(token_type(tokenizer.vocab_size)), lengths


_work: tuple[Tokenizers, Filters]
"""What a worker process was started with."""


def _start_worker(tokenizers: Tokenizers, filters: Filters) -> None:
    global _work
    _work = tokenizers, filters
    # Ctrl-C reaches the whole group: the parent alone answers it, and ends the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Leave no orphan when the parent is killed: the pool's pipes alone would wait for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode_in_worker(texts: Texts, report: FilterReport) -> EncodedPairs:
    return _encode(texts, report, *_work)
