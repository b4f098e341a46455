"""Chunks of lines from files and streams."""

import itertools
import threading

import pytest

from transformer_mt.cli import streaming
from transformer_mt.errors import DataError


def test_chunks_grow_and_keep_all_lines():
    lines = [str(i) for i in range(3000)]
    sizes = [len(chunk) for chunk in streaming.chunks_of(lines)]
    assert sizes == [64, 256, 1024, 1024, 632]
    assert [len(chunk) for chunk in streaming.chunks_of(lines, 1500)] == [64, 256, 1024, 1500, 156]
    assert streaming.fitting_size(None, for_many=False) == streaming.LAST_SIZE
    assert streaming.fitting_size(64 * 1024, for_many=False) == 8 * streaming.LAST_SIZE
    assert streaming.fitting_size(512, for_many=True) == 8 * streaming.LAST_SIZE
    assert list(itertools.chain(*streaming.chunks_of(lines))) == lines
    assert list(itertools.chain(*streaming.chunks_as_they_come(lines))) == lines


@pytest.mark.parametrize("cut", [streaming.chunks_of, streaming.chunks_as_they_come])
def test_chunks_of_long_lines_are_small(cut, monkeypatch):
    monkeypatch.setattr(streaming, "MAX_CHARACTERS", 1000)
    lines = ["x" * 400] * 10 + ["y" * 5000] * 2 + ["z"]
    found = list(cut(lines))
    assert list(itertools.chain(*found)) == lines
    assert max(map(len, found)) <= 3


def test_streams_are_read_no_further_than_the_chunk_at_work():
    read = []

    def lines():
        for number in itertools.count():
            read.append(number)
            yield str(number)

    next(streaming.chunks_of(lines()))
    assert len(read) == streaming.FIRST_SIZE


def test_a_line_that_comes_alone_is_given_at_once():
    answered = threading.Event()

    def lines():
        yield "first"
        assert answered.wait(10), "the second line was waited for"
        yield "second"

    stream = streaming.chunks_as_they_come(lines())
    assert next(stream) == ["first"]
    answered.set()
    assert list(stream) == [["second"]]


def test_lines_are_read_ahead_from_the_start():
    started = threading.Event()

    def lines():
        started.set()
        yield "first"

    stream = streaming.chunks_as_they_come(lines())
    assert started.wait(300)
    assert list(stream) == [["first"]]


def test_a_slow_writer_does_not_hold_up_its_first_lines(monkeypatch):
    monkeypatch.setattr(streaming, "LINGER_SECONDS", 0.0)

    taken = threading.Semaphore(1)

    def lines():
        for i in range(5):
            assert taken.acquire(timeout=300)
            yield str(i)

    for i, chunk in enumerate(streaming.chunks_as_they_come(lines())):
        assert chunk == [str(i)]
        taken.release()


@pytest.mark.parametrize("cut", [streaming.chunks_of, streaming.chunks_as_they_come])
def test_errors_of_the_reader_arrive(cut):
    def lines():
        yield "good"
        raise DataError("stdin:2: bad")

    found = cut(lines())
    assert next(found) == ["good"]
    with pytest.raises(DataError, match="stdin:2: bad"):
        next(found)
