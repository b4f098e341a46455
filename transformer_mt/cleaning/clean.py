"""Cleaning of parallel text: pairs in; the good ones, the others with their reasons, and a report.

1. Rules on single pairs, shard by shard, in any number of processes (`shards`).
2. Duplicates and near duplicates among the pairs that passed (`similarity`), and a model's scores.
3. The folder of the result, in one step.

What stages 1 and 2 write lies in a folder beside the result, with all that decides it. A process
that was stopped continues there, and what is written in the end is the same to the byte.
"""

import json
import logging
import shutil
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

from transformer_mt.cleaning import shards
from transformer_mt.cleaning.decisions import Decisions, Scorer
from transformer_mt.cleaning.report import Report
from transformer_mt.cleaning.result import (
    FORMAT_VERSION,
    KIND,
    finished_report,
    write_result,
)
from transformer_mt.cleaning.shards import Checker, Pair, ShardMaker, in_shards, rows_of
from transformer_mt.data.pair_source import PairSource, hash_values
from transformer_mt.errors import UNREADABLE_JSON, DataError, TmtError
from transformer_mt.processes import end_pool, serve_parent
from transformer_mt.storage.folders import (
    MANIFEST,
    explain_write_errors,
    remove_leftovers,
    replace_json,
)
from transformer_mt.storage.locks import claimed
from transformer_mt.storage.overwriting import refuse_to_replace_others
from transformer_mt.storage.untrusted import read_json
from transformer_mt.versions import installed_versions

_SHARDS_AHEAD = 2  # for each process

Progress: TypeAlias = Callable[[int, int | None], None]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """What is cleaned, and how.

    Attributes:
        sources: The pairs.
        checker: The rules.
        about: What else decides the result, such as the models of `score`: JSON values.
        score: Computes what the rule `score` looks at, if it is on.
        num_workers: Processes.
        on_progress: Called with the number of pairs that are read, and None.
    """

    sources: Sequence[PairSource]
    checker: Checker
    about: dict[str, Any] = field(default_factory=dict)
    score: Scorer | None = None
    num_workers: int = 1
    on_progress: Progress = lambda done, total: None

    def identity(self) -> dict[str, Any]:
        """Return all that decides the result, as JSON has it."""
        return dict(
            json.loads(
                json.dumps(
                    {
                        "version": FORMAT_VERSION,
                        "shard_pairs": shards.SHARD_PAIRS,
                        "texts": [source.fingerprint() for source in self.sources],
                        "languages": self.checker.languages,
                        "rules": self.checker.rules.model_dump(),
                        "held_out": hash_values(sorted(self.checker.held_out)),
                        "unicode": unicodedata.unidata_version,
                        "program": installed_versions()["transformer_mt"],
                        **self.about,
                    }
                )
            )
        )


def clean(job: Job, folder: Path) -> Report:
    """Clean pairs, and write a folder of the result.

    Args:
        job: The pairs and the rules.
        folder: Where the result goes; one of an earlier call is replaced.

    Raises:
        ConfigError: If something else is in the folder.
        DataError: If the pairs cannot be read, or nothing is left of them.
        TmtError: If the disk refuses, or a process dies; the same call continues.
    """
    refuse_to_replace_others(folder, KIND)
    identity = job.identity()
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    with explain_write_errors(folder), claimed(unfinished):
        if (report := finished_report(folder, identity)) is not None:
            logger.info("%s: has the result of the same text and rules already", folder)
        else:
            _begin(unfinished, identity)
            try:
                num_shards = _make_shards(job, unfinished)
                decisions = Decisions(unfinished, num_shards, job.checker.rules, job.score)
                report = write_result(folder, decisions, job.checker, identity)
            except DataError:  # other text, or other rules, begin anew
                shutil.rmtree(unfinished, ignore_errors=True)
                raise
        shutil.rmtree(unfinished, ignore_errors=True)
    return report


def _begin(unfinished: Path, identity: dict[str, Any]) -> None:
    """Keep what an earlier call left for the same result, and nothing else."""
    remove_leftovers(unfinished)
    found: object = None
    with suppress(*UNREADABLE_JSON):
        found = read_json(unfinished / MANIFEST)
    if found == identity:
        logger.info("%s: continues what was stopped", unfinished)
        return
    for path in unfinished.iterdir():
        path.unlink()
    replace_json(unfinished / MANIFEST, identity)


def _make_shards(job: Job, folder: Path) -> int:
    """Write the shards that are not there; return how many there are."""
    num_pairs = 0

    def counted_shards() -> Iterator[list[Pair]]:
        nonlocal num_pairs
        for shard in in_shards(chain.from_iterable(job.sources)):
            yield shard
            num_pairs += len(shard)
            job.on_progress(num_pairs, None)

    remaining = counted_shards()
    head = list(islice(remaining, 2))
    if not head:
        names = ", ".join(source.describe() for source in job.sources)
        raise DataError(f"{names}: holds no sentence pairs")
    numbered = enumerate(chain(head, remaining))
    if job.num_workers > 1 and len(head) > 1:
        return _in_processes(job, folder, numbered)
    maker = ShardMaker(job.checker, folder)
    number = 0
    for number, shard in numbered:
        if not rows_of(folder, number).exists():
            maker.make(number, shard)
    return number + 1


def _in_processes(job: Job, folder: Path, numbered: Iterable[tuple[int, list[Pair]]]) -> int:
    # Spawned, not forked: threads do not survive a fork.
    pool = ProcessPoolExecutor(
        job.num_workers,
        mp_context=get_context("spawn"),
        initializer=_start_worker,
        initargs=(job.checker, folder),
    )
    pending: deque[Future[None]] = deque()
    number = 0
    try:
        for number, shard in numbered:
            if not rows_of(folder, number).exists():
                pending.append(pool.submit(_make_in_worker, number, shard))
            if len(pending) > _SHARDS_AHEAD * job.num_workers:
                pending.popleft().result()
        for future in pending:
            future.result()
    except BrokenProcessPool as error:
        raise TmtError(
            "a process that cleans ended unexpectedly, perhaps for lack of memory: repeat the "
            "command to continue, with a lower --workers"
        ) from error
    except BaseException:
        end_pool(pool)
        raise
    pool.shutdown()
    return number + 1


_maker: ShardMaker
"""Of a worker process."""


def _start_worker(checker: Checker, folder: Path) -> None:
    global _maker
    _maker = ShardMaker(checker, folder)
    serve_parent()


def _make_in_worker(number: int, pairs: list[Pair]) -> None:
    _maker.make(number, pairs)
