"""Batches of sentences across requests."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from transformer_mt.serving.batching import Batcher
from transformer_mt.serving.limits import Refused


class Upper:
    """Computes capitals, and keeps the batches; the first waits for `go`."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[str]]] = []
        self.go = threading.Event()

    def __call__(self, key: str, sentences: list[str]) -> list[str]:
        self.batches.append((key, sentences))
        self.go.wait(5)
        if "bad" in sentences:
            raise ValueError("bad")
        return [sentence.upper() for sentence in sentences]


def run(compute: Upper, what: Any, **options: Any) -> Any:
    chosen = {"num_workers": 1, "size": 4, "wait": 0.0, "capacity": 20, **options}

    async def session() -> Any:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher[str, str](compute, executor, **chosen)
            try:
                return await what(batcher)
            finally:
                compute.go.set()

    return asyncio.run(session())


async def started(*coroutines: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
    tasks = list(map(asyncio.ensure_future, coroutines))
    await asyncio.sleep(0.01)
    return tasks


def test_requests_share_batches_in_turn_and_get_their_own_results() -> None:
    compute = Upper()

    async def what(batcher: Batcher[str, str]) -> None:
        tasks = await started(
            batcher.results("x", ["first"]),
            batcher.results("x", list("abcdef")),
            batcher.results("y", ["other"]),
            batcher.results("x", ["short"]),
        )
        assert batcher.waiting == 8
        compute.go.set()
        found = await asyncio.gather(*tasks)
        assert found == [["FIRST"], list("ABCDEF"), ["OTHER"], ["SHORT"]]
        assert batcher.waiting == 0

    run(compute, what)
    assert compute.batches == [
        ("x", ["first"]),
        ("x", ["a", "short", "b", "c"]),
        ("y", ["other"]),
        ("x", ["d", "e", "f"]),
    ]


def test_long_sentences_make_small_batches() -> None:
    compute = Upper()
    compute.go.set()
    sentences = ["a" * 30, "b" * 90, "c" * 10, "d" * 300, "e"]
    run(compute, lambda batcher: batcher.results("x", sentences), characters=100)
    assert [len(own) for _, own in compute.batches] == [1, 2, 1, 1]


def test_a_sentence_that_fails_fails_its_own_request() -> None:
    compute = Upper()

    async def what(batcher: Batcher[str, str]) -> None:
        tasks = await started(*(batcher.results("x", [s]) for s in ("first", "good", "bad")))
        compute.go.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert found[:2] == [["FIRST"], ["GOOD"]]
        assert isinstance(found[2], ValueError)
        assert await batcher.results("x", ["again"]) == ["AGAIN"]

    run(compute, what)


def test_what_was_given_up_is_not_computed_and_does_not_fill_the_queue() -> None:
    compute, abandoned = Upper(), []

    async def what(batcher: Batcher[str, str]) -> None:
        tasks = await started(batcher.results("x", ["first"]), batcher.results("x", ["gone"] * 9))
        tasks[1].cancel()
        await asyncio.wait(tasks, timeout=0.01)
        assert batcher.waiting == 0
        compute.go.set()
        assert await tasks[0] == ["FIRST"]

    run(compute, what, on_abandoned=abandoned.append)
    assert (compute.batches, abandoned) == ([("x", ["first"])], [9])


def test_a_full_queue_refuses_and_says_when_to_come_back() -> None:
    compute = Upper()

    async def what(batcher: Batcher[str, str]) -> None:
        tasks = await started(batcher.results("x", ["first"]), batcher.results("x", ["a"] * 20))
        with pytest.raises(Refused) as refusal:
            await batcher.results("x", ["b"])
        assert refusal.value.status == 503
        assert refusal.value.retry_after is not None
        compute.go.set()
        await asyncio.gather(*tasks)

    run(compute, what)


def test_while_several_ask_a_batch_waits_for_more_sentences() -> None:
    compute = Upper()
    compute.go.set()

    async def what(batcher: Batcher[str, str]) -> None:
        for _ in range(3):
            await asyncio.gather(*(batcher.results("x", [s]) for s in "abc"))

    run(compute, what, wait=0.05)
    sizes = [len(own) for _, own in compute.batches]
    assert sizes == [1, 2, 3, 3]
