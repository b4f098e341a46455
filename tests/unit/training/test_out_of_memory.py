"""Out of memory: the work is done in smaller parts with the same result, counted, and bounded."""

import sys
from operator import attrgetter
from pathlib import Path

import pytest
import torch

from tests.faults.dying import run_ranks
from tests.tiny_runs import metrics_without_times
from tests.updates import fresh_model, some_pairs, updater_for
from transformer_mt.data.batches import eval_batches
from transformer_mt.errors import TmtError
from transformer_mt.evaluation import validation_loss
from transformer_mt.log import read_metrics
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.training.trainer import train
from transformer_mt.training.update import Updater

ROOT = Path(__file__).resolve().parents[3]


class SmallDevice:
    """Lets all models run out of memory in the forward or the backward pass of many tokens."""

    def __init__(self, monkeypatch, *, where="forward", most_tokens=sys.maxsize):
        self.most_tokens, self.where, self.num_failures = most_tokens, where, 0
        original = Seq2Seq.forward

        def forward(model, src, src_segments, tgt_in, tgt_segments):
            states = original(model, src, src_segments, tgt_in, tgt_segments)
            if len(tgt_in) > self.most_tokens:
                if self.where == "forward":
                    self.fail()
                # The gradients of the layers above have been added by then.
                states.register_hook(lambda _: self.fail())
            return states

        monkeypatch.setattr(Seq2Seq, "forward", forward)

    def fail(self):
        self.num_failures += 1
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


@pytest.fixture
def some_batches():
    return list(eval_batches(some_pairs(), max_tokens=100))


def losses_of(run):
    """Of training and validation, in the order of the records."""
    names = ("loss_nats", "valid_loss_nats")
    return [r[name] for r in metrics_without_times(run) for name in names if name in r]


def gradients_of(config, batches):
    model = fresh_model(config.model)
    updater = updater_for(model)
    num_tokens = sum(batch.num_tgt_tokens for batch in batches)
    losses = updater.gradients.accumulate(batches, num_tokens=num_tokens)
    return losses, {name: weight.grad for name, weight in model.named_parameters()}, updater


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_an_update_in_smaller_parts_has_the_same_gradient(
    run_config, some_batches, monkeypatch, where
):
    config = run_config(model__dropout=0.0)
    expected_losses, expected, updater = gradients_of(config, some_batches)
    assert updater.gradients.splits_in_a_row == 0
    device = SmallDevice(monkeypatch, where=where, most_tokens=40)
    losses, found, updater = gradients_of(config, some_batches)
    assert device.num_failures >= 2
    assert updater.gradients.splits_in_a_row == 1
    torch.testing.assert_close(losses, expected_losses, rtol=1e-5, atol=1e-5)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-5, atol=1e-6)


def test_the_halves_of_a_batch_are_the_batch(some_batches):
    for batch in some_batches[:-1]:  # the last one is a single pair
        first, second = batch.halves()
        for name in ("src", "src_segments.lengths", "tgt_in", "tgt_out", "tgt_segments.lengths"):
            whole, *halves = map(attrgetter(name), (batch, first, second))
            assert torch.equal(torch.cat(halves), whole)
        for half in (first, second):
            assert half.num_tgt_tokens == len(half.tgt_in) == half.tgt_segments.lengths.sum()
            assert half.src_segments.max_length == half.src_segments.lengths.max()
    (alone,) = some_batches[0].part(0, 1).halves()
    assert alone.num_pairs == 1


def test_a_single_pair_that_does_not_fit_is_an_error(run_config, some_batches, monkeypatch):
    SmallDevice(monkeypatch, most_tokens=5)
    with pytest.raises(TmtError, match=r"out of memory with \d+ target tokens at once: lower"):
        gradients_of(run_config(), some_batches)


def test_validation_in_smaller_parts_finds_the_same_loss(run_config, some_batches, monkeypatch):
    from transformer_mt.models.build import build_model

    model = build_model(run_config().model, src_vocab_size=30, tgt_vocab_size=30)

    def loss():
        device = torch.device("cpu")
        return validation_loss(model, some_batches, device=device, label_smoothing=0.1)

    expected = loss()
    device = SmallDevice(monkeypatch, most_tokens=40)
    found = loss()
    assert device.num_failures > 0
    assert found.num_tokens == expected.num_tokens
    assert found.loss_nats == pytest.approx(expected.loss_nats, rel=1e-5)


def test_a_run_counts_split_updates_and_continues(run_config, monkeypatch, caplog):
    config = run_config(model__dropout=0.0)
    expected = losses_of(Path(train(config).run_dir))
    device = SmallDevice(monkeypatch)
    original = Updater.__call__
    steps = iter(range(1, 7))

    def update(self, micro_batches, **arguments):
        device.most_tokens = 150 if next(steps) in (2, 3, 5) else sys.maxsize
        original(self, micro_batches, **arguments)

    monkeypatch.setattr(Updater, "__call__", update)
    run = Path(train(config, fresh=True).run_dir)
    records = [record for record in metrics_without_times(run) if "num_split" in record]
    assert [record["num_split"] for record in records] == [1, 2, 3]
    assert "step 2: out of memory: repeated with smaller micro-batches" in caplog.text
    events = [record for record in read_metrics(run / "events.jsonl") if record["event"] == "split"]
    assert [event["step"] for event in events] == [2, 3, 5]
    assert losses_of(run) == pytest.approx(expected, rel=1e-4)


def test_three_split_updates_in_a_row_end_the_run_with_advice(run_config, monkeypatch):
    device = SmallDevice(monkeypatch, most_tokens=150)
    with pytest.raises(TmtError, match=r"3 updates in a row, saved at step 3: set training\.micro"):
        train(run_config())
    device.most_tokens = 140
    assert train(run_config(training__micro_batch_tokens=128)).step == 6


def test_two_ranks_agree_when_one_of_them_is_out_of_memory(run_config, tmp_path, monkeypatch):
    def run(name, most_tokens):
        config = run_config(
            name,
            model__dropout=0.0,
            training__max_steps=2,
            training__micro_batch_tokens=64,
            training__validation={"every_steps": 2, "metrics": [], "select_by": "loss"},
            training__checkpoints={"average": "none"},
        )

        def act(rank):
            device = SmallDevice(monkeypatch, most_tokens=most_tokens if rank else sys.maxsize)
            train(config)
            (tmp_path / f"{name}-{rank}").write_text(str(device.num_failures))

        assert run_ranks(2, act) == [0, 0]
        num_failures = int((tmp_path / f"{name}-1").read_text())
        return num_failures, losses_of(Path(config.training.runs_dir) / "tiny")

    (none, free), (some, small) = run("free", sys.maxsize), run("small", 40)
    assert (none, some > 0) == (0, True)
    assert small == pytest.approx(free, rel=1e-4)
