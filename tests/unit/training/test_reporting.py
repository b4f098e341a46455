"""What `metrics.jsonl` says about the updates is true."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from transformer_mt.log import read_metrics
from transformer_mt.training.state import Stopwatch
from transformer_mt.training.trainer import train
from transformer_mt.training.update import Updater

SMOOTHING = 0.3


@torch.no_grad()
def plain_losses(model, batch):
    """Smoothed and plain loss of each token, by torch's own function."""
    batch = batch.part(0, batch.num_pairs)  # without its tail
    states = model(batch.src, batch.src_segments, batch.tgt_in, batch.tgt_segments)
    logits = (states @ model.decoder.output.weight.T).double()
    return [
        F.cross_entropy(logits, batch.tgt_out, label_smoothing=share, reduction="none")
        for share in (SMOOTHING, 0.0)
    ]


@pytest.fixture
def seen(monkeypatch):
    """Collects of each update: losses of its tokens, its pairs, its learning rate."""
    updates = []
    original = Updater.__call__

    def update(self, micro_batches, **arguments):
        losses = [plain_losses(self.trained, batch) for batch in micro_batches]
        updates.append(
            (
                torch.cat([smoothed for smoothed, _ in losses]),
                torch.cat([nll for _, nll in losses]),
                sum(batch.num_pairs for batch in micro_batches),
            )
        )
        original(self, micro_batches, **arguments)
        updates[-1] += (self.optimizer.param_groups[0]["lr"],)

    monkeypatch.setattr(Updater, "__call__", update)
    return updates


def test_losses_counts_rates_and_speed_are_those_of_the_updates(run_config, seen, monkeypatch):
    monkeypatch.setattr(Stopwatch, "restart", lambda self: 0.25)
    config = run_config(
        model__dropout=0.0,
        training__label_smoothing=SMOOTHING,
        training__micro_batch_tokens=100,
        training__max_steps=13,
        training__log_every_steps=3,
        training__checkpoints={"average": "none"},
    )
    run = Path(train(config).run_dir)
    assert len(seen) == 13
    records = [r for r in read_metrics(run / "metrics.jsonl") if "loss_nats" in r]
    assert [r["step"] for r in records] == [3, 6, 9, 12]
    num_pairs = 300 - sum(dropped_pairs(run))
    for record in records:
        step = record["step"]
        window = seen[step - 3 : step]
        smoothed, nll = (torch.cat([update[i] for update in window]) for i in (0, 1))
        assert record["loss_nats"] == pytest.approx(smoothed.mean().item(), rel=1e-4)
        assert record["nll_nats"] == pytest.approx(nll.mean().item(), rel=1e-4)
        assert record["num_tokens"] == sum(len(update[0]) for update in seen[:step])
        assert record["tokens_per_second"] == pytest.approx(len(smoothed) / (3 * 0.25))
        pairs = sum(update[2] for update in seen[:step])
        assert record["epoch"] == pytest.approx(pairs / num_pairs)
        # inverse_sqrt: update n has the learning rate of step n.
        expected = 0.003 * min(step / 10, (10 / step) ** 0.5)
        assert record["lr"] == pytest.approx(expected)
        assert window[-1][3] == pytest.approx(expected)


def dropped_pairs(run):
    facts = json.loads((run / "preparation.json").read_text())
    return facts["train"][0]["report"]["dropped"].values()


def test_every_update_drops_out_also_after_a_validation(run_config, monkeypatch):
    dropped = []
    original = Updater.__call__

    def update(self, micro_batches, **arguments):
        first, again = (self.gradients.with_loss(micro_batches[0])[0].item() for _ in range(2))
        dropped.append(first != again)
        original(self, micro_batches, **arguments)

    monkeypatch.setattr(Updater, "__call__", update)
    validation = {"every_steps": 2, "num_samples": 1, "beam_size": 1}
    train(run_config(training__max_steps=5, training__validation=validation))
    assert dropped == [True] * 5
