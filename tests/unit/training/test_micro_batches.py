"""Micro-batches: an update has the size that is asked for, whatever the devices can take."""

from pathlib import Path

import pytest
import torch

from tests.tiny_runs import (
    assert_resumes,
    assert_same_weights,
    interrupt_at,
    metrics_without_times,
    train_whole,
)
from transformer_mt.config.training import BatchWarmupSettings
from transformer_mt.data.batches import uniform_batch
from transformer_mt.errors import ConfigError, DataError, InterruptedRun
from transformer_mt.training.micro_batches import (
    Split,
    largest_micro_batch,
    split_update,
    update_tokens,
)
from transformer_mt.training.trainer import train
from transformer_mt.training.update import Updater


def test_an_update_is_equally_large_for_every_number_of_ranks():
    assert split_update(25_000, micro_batch_tokens=None, num_ranks=1) == Split(1, 25_000)
    assert split_update(25_000, micro_batch_tokens=None, num_ranks=4) == Split(1, 6_250)
    assert split_update(25_000, micro_batch_tokens=4_000, num_ranks=1) == Split(7, 3_571)
    assert split_update(25_000, micro_batch_tokens=4_000, num_ranks=2) == Split(4, 3_125)
    assert split_update(1024, micro_batch_tokens=1024, num_ranks=8) == Split(1, 128)


@pytest.mark.parametrize("num_ranks", [1, 2, 8])
@pytest.mark.parametrize("room", [700, 3_000, 24_999, 25_000, 99_000])
def test_the_fewest_micro_batches_that_fit_are_found(num_ranks, room):
    tried = []

    def fits(num_tokens):
        tried.append(num_tokens)
        return num_tokens <= room

    found = largest_micro_batch(25_000, num_ranks=num_ranks, least=100, fits=fits)
    assert found <= room
    split = split_update(25_000, micro_batch_tokens=found, num_ranks=num_ranks)
    assert split.tokens <= found
    assert split.accumulation == 1 or 25_000 / ((split.accumulation - 1) * num_ranks) > room
    assert len(tried) < 14


def test_a_device_too_small_for_the_longest_pair_is_an_error():
    with pytest.raises(
        ConfigError, match="313 tokens per micro-batch, but the longest pair has 200"
    ):
        largest_micro_batch(2500, num_ranks=1, least=200, fits=lambda num_tokens: num_tokens < 200)


def test_warm_up_doubles_the_updates_at_equal_intervals_and_never_exceeds_the_whole():
    warmup = BatchWarmupSettings(start_tokens=3_000, steps=8)
    sizes = [update_tokens(step, 25_000, warmup) for step in range(1, 12)]
    assert sizes == [3_000] * 2 + [6_000] * 2 + [12_000] * 2 + [24_000] * 2 + [25_000] * 3
    assert update_tokens(1, 25_000, None) == 25_000
    halfway = BatchWarmupSettings(start_tokens=24_999, steps=100)
    assert {update_tokens(step, 25_000, halfway) for step in range(1, 101)} == {24_999}


def test_a_run_with_warm_up_resumes_to_the_bit_at_any_step(run_config, monkeypatch):
    changes = {
        "training__max_steps": 12,
        "training__micro_batch_tokens": 128,
        "training__batch_warmup": {"start_tokens": 64, "steps": 6},
    }
    whole, batches = train_whole(run_config, monkeypatch, **changes)
    sizes = [sum(map(len, micro_batches)) for micro_batches in batches]
    assert all(40 < size <= 64 for size in sizes[:3])
    assert all(100 < size <= 128 for size in sizes[3:6])
    assert all(200 < size <= 256 for size in sizes[6:])
    assert [len(micro_batches) for micro_batches in batches] == [1] * 6 + [2] * 6
    assert_resumes(run_config, monkeypatch, (whole, batches), 2, 3, 7, **changes)


def test_auto_takes_what_fits_and_a_resumed_run_takes_the_same(run_config, monkeypatch, caplog):
    caplog.set_level("INFO")
    room = 100
    monkeypatch.setattr("transformer_mt.training.micro_batches.ENOUGH_TOKENS_CPU", room)
    settings = run_config(training__micro_batch_tokens="auto")
    with monkeypatch.context() as patch:
        batches = interrupt_at(patch, 3)
        with pytest.raises(InterruptedRun):
            train(settings)
    assert [len(micro_batches) for micro_batches in batches] == [3, 3, 3]
    assert "micro-batches of 86 target tokens fit" in caplog.text
    assert "update: 256 target tokens (ranks x micro-batches x tokens: 1 x 3 x 85)" in caplog.text
    monkeypatch.setattr("transformer_mt.training.micro_batches.ENOUGH_TOKENS_CPU", 256)
    with monkeypatch.context() as patch:
        batches = interrupt_at(patch)
        train(settings)
    assert [len(micro_batches) for micro_batches in batches] == [3, 3, 3]


def test_a_try_changes_neither_weights_nor_random_numbers(run_config, monkeypatch):
    from tests.unit.training.test_out_of_memory import SmallDevice

    seen = []
    original = Updater.__call__

    def update(self, micro_batches, **arguments):
        device = SmallDevice(patch, most_tokens=64)
        before = torch.get_rng_state()
        seen.append([self.has_room_for(uniform_batch(n, length=8)) for n in (32, 64, 72)])
        assert torch.equal(torch.get_rng_state(), before)
        assert device.num_failures == 1
        device.most_tokens = 10**9
        original(self, micro_batches, **arguments)

    expected = Path(train(run_config("plain")).run_dir)
    with monkeypatch.context() as patch:
        patch.setattr(Updater, "__call__", update)
        found = Path(train(run_config("tried")).run_dir)
    assert seen == [[True, True, False]] * 6
    assert_same_weights(found, expected, 6)


@pytest.mark.parametrize(
    "changes",
    [
        {"training__max_tokens": 4},
        {"training__micro_batch_tokens": 4},
        {"training__batch_warmup": {"start_tokens": 4, "steps": 5}},
    ],
)
def test_a_pair_longer_than_a_batch_is_named_before_a_model_is_built(
    run_config, monkeypatch, changes
):
    monkeypatch.setattr("transformer_mt.training.trainer.Trainer", None)
    with pytest.raises(
        DataError,
        match=r"pair \d+ of those that are kept has \d+ source and \d+ target tokens, more than ",
    ):
        train(run_config(**changes))


@pytest.mark.slow  # fp16 is emulated on processors
def test_a_run_resumes_where_auto_is_another_precision(run_config, monkeypatch):
    settings = run_config(training__precision="auto", training__max_steps=3)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2)
        with pytest.raises(InterruptedRun):
            train(settings)
    monkeypatch.setattr("transformer_mt.training.run.choose_precision", lambda *_: "fp16")
    assert metrics_without_times(Path(train(settings).run_dir))[-1]["step"] == 3
