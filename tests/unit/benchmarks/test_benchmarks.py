"""Clocks, counts and arithmetic of `transformer_mt.benchmarks`; never how fast anything is."""

import mmap
from itertools import count
from pathlib import Path

import pytest
import torch

from transformer_mt.benchmarks import machine, phases, training
from transformer_mt.benchmarks.decoding import evenly, quantile
from transformer_mt.benchmarks.machine import (
    fastest_seconds,
    peak_memory_bytes,
    reset_peak_memory,
    run_for,
)
from transformer_mt.benchmarks.phases import PhaseClock
from transformer_mt.benchmarks.training import (
    PHASES,
    TrainingBench,
    Work,
    rate_of_products,
    read_data,
    work_of,
)
from transformer_mt.data.batches import Batch
from transformer_mt.models.build import build_model
from transformer_mt.packing import Segments

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the test moves."""

    class Clock:
        now = 100.0

        def perf_counter(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(machine, "time", clock)
    monkeypatch.setattr(phases, "time", clock)
    return clock


def test_updates_run_until_the_time_is_over(clock):
    def updates():
        for number in count():
            clock.now += 2
            yield number

    assert run_for(updates(), seconds=5, device=CPU) == ([0, 1, 2], 6)
    assert run_for(updates(), seconds=0, device=CPU) == ([0], 2)
    assert run_for(updates(), seconds=0, device=CPU, at_least=3) == ([0, 1, 2], 6)


def test_the_fastest_calls_count(clock):
    durations = iter([50, 4, 3, 5, 9, 9, 9])

    def call():
        clock.now += next(durations)

    assert fastest_seconds(call, seconds=10, device=CPU) == 3


def test_a_phase_lasts_from_the_end_of_the_one_before(clock):
    watched = PhaseClock(CPU)
    watched.start()
    for name, seconds in [("data", 1), ("forward", 2), ("data", 4)]:
        clock.now += seconds
        watched.end(name)
    assert watched.seconds == {"data": 5, "forward": 2}
    assert watched.total() == 7
    assert watched.last == "data"


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux forgets a peak")
def test_peak_memory_is_counted_from_the_last_reset():
    reset_peak_memory(CPU)
    before = peak_memory_bytes(CPU)
    # New to the process, as torch may reuse memory that earlier tests have left in its heap.
    with mmap.mmap(-1, 200_000_000) as memory:
        for page in range(0, len(memory), mmap.PAGESIZE):
            memory[page] = 1
    assert peak_memory_bytes(CPU) > before + 100_000_000
    reset_peak_memory(CPU)
    assert peak_memory_bytes(CPU) < before + 100_000_000


def padded_batch() -> Batch:
    """Two sentences of 3 and 2 source tokens, 2 and 2 target tokens, and 1 + 2 of padding."""
    return Batch(
        src=torch.tensor([5, 6, 3, 7, 3, 0]),
        src_segments=Segments.of([3, 2], num_tail_rows=1),
        tgt_in=torch.tensor([2, 8, 2, 9, 0, 0]),
        tgt_out=torch.tensor([8, 3, 9, 3, 0, 0]),
        tgt_segments=Segments.of([2, 2], num_tail_rows=2),
    )


def test_padding_is_what_is_computed_and_no_token():
    work = work_of([padded_batch(), padded_batch()])
    assert work == Work(src_tokens=10, tgt_tokens=8, positions=24)
    assert work.padding_share == pytest.approx(6 / 24)
    assert Work().padding_share == 1


def test_the_rate_of_products_is_that_of_all_matrices_of_the_model(run_config, monkeypatch):
    model = build_model(run_config().model, src_vocab_size=25, tgt_vocab_size=25)
    seen = []

    def product_seconds(num_out, num_in, *, num_rows, dtype, device, seconds):
        seen.append((num_out, num_in))
        assert (num_rows, dtype, device, seconds) == (10, torch.bfloat16, CPU, 2)
        return 6e-9 * num_out * num_in * num_rows  # a machine of 1 GFLOP/s

    monkeypatch.setattr(training, "product_seconds", product_seconds)
    found = rate_of_products(model, num_rows=10, dtype=torch.bfloat16, device=CPU, seconds=2)
    assert found == pytest.approx(1e9)
    assert len(seen) == len(set(seen)) > 2


def test_every_phase_of_every_micro_batch_is_seen(run_config, monkeypatch):
    config = run_config(training__micro_batch_tokens=128)
    bench = TrainingBench(config, read_data(config), device=CPU)
    seen = []
    monkeypatch.setattr(training, "LEAST_UPDATES", 1)
    original = PhaseClock.end

    def end(self, phase):
        seen.append(phase)
        original(self, phase)

    monkeypatch.setattr(PhaseClock, "end", end)
    assert list(bench.phase_seconds(seconds=0)) == list(PHASES)
    assert bench.accumulation == 2
    # The first wait for data is that for the batch, the second that for its copy to the device.
    assert seen == ["data", "data", "forward", "backward", "forward", "backward", "optimizer"]
    assert not bench.updater.gradients.replicated._forward_hooks
    assert not bench.updater.gradients.replicated._forward_pre_hooks


def test_lines_are_chosen_from_all_over_the_file():
    lines = [str(number) for number in range(10)]
    assert evenly(lines, 3) == ["0", "4", "8"]
    assert evenly(lines, 10) == evenly(lines, 99) == lines
    assert evenly(lines, 1) == ["0"]


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([3, 1, 2], 0.5, 2), ([7], 0.95, 7), (list(range(1, 101)), 0.95, 95), ([1, 2], 0.0, 1)],
)
def test_a_quantile_is_one_of_the_values(values, share, expected):
    assert quantile(values, share) == expected
