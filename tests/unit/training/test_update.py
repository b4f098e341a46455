"""One update: what it is made of, how it is bounded, and when it is left out."""

import pytest
import torch

from tests.updates import fresh_model, some_pairs, updater_for
from transformer_mt.data.batches import eval_batches
from transformer_mt.errors import DivergedError
from transformer_mt.models.batch_loss import batch_loss
from transformer_mt.training.update import MAX_UNUSABLE_IN_A_ROW


def gradients_of(config, micro_batches, monkeypatch, clip_norm=None):
    model = fresh_model(config.model)
    updater = updater_for(model, clip_norm=clip_norm)
    gradients = {}
    monkeypatch.setattr(
        torch.optim.Adam,
        "step",
        lambda self: gradients.update({n: w.grad.clone() for n, w in model.named_parameters()}),
    )
    updater(micro_batches, num_tokens=sum(b.num_tgt_tokens for b in micro_batches), lr=0.1)
    return gradients, updater.facts()


def test_k_micro_batches_equal_one_batch(run_config, monkeypatch):
    config = run_config(model__dropout=0.0)
    pairs = some_pairs()
    (whole,) = eval_batches(pairs, max_tokens=10_000)
    parts = list(eval_batches(pairs, max_tokens=40))
    assert len(parts) > 4
    assert len({part.num_tgt_tokens for part in parts}) > 2
    expected, tally = gradients_of(config, [whole], monkeypatch)
    found, tally_of_parts = gradients_of(config, parts, monkeypatch)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-7)
    assert tally_of_parts == pytest.approx(tally, rel=1e-5)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_tail_of_padding_changes_neither_loss_nor_gradients(
    run_config, monkeypatch, norm, padded
):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: padded)
    model = fresh_model(run_config(model__dropout=0.0, model__norm=norm).model)
    model.double()
    results = []
    for row_multiple in (None, 64):
        (batch,) = eval_batches(some_pairs(), max_tokens=1000, row_multiple=row_multiple)
        model.zero_grad()
        sums = batch_loss(model, batch, label_smoothing=0.1)
        sums[0].backward()
        gradients = {name: weight.grad for name, weight in model.named_parameters()}
        results.append((torch.stack(sums).detach(), gradients))
        assert (batch.src.numel() > batch.src_segments.num_tokens) == (row_multiple is not None)
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-12)


def test_clipping_bounds_the_global_norm(run_config, monkeypatch):
    config = run_config(model__dropout=0.0)
    batches = list(eval_batches(some_pairs(), max_tokens=10_000))
    free, tally = gradients_of(config, batches, monkeypatch)
    clipped, clipped_tally = gradients_of(config, batches, monkeypatch, clip_norm=0.01)
    norm = torch.stack([gradient.norm() for gradient in free.values()]).norm().item()
    assert tally["gradient_norm"] == pytest.approx(norm, rel=1e-5)
    assert clipped_tally["gradient_norm"] == pytest.approx(norm, rel=1e-5)
    norm = torch.stack([gradient.norm() for gradient in clipped.values()]).norm().item()
    assert norm == pytest.approx(0.01, rel=1e-3)


def test_clipping_under_fp16_bounds_the_gradient_not_its_scaled_form(run_config):
    config = run_config(model__dropout=0.0)
    batches = list(eval_batches(some_pairs(), max_tokens=10_000))
    norms, steps = {}, {}
    for precision in ("fp32", "fp16"):
        model = fresh_model(config.model)
        updater = updater_for(model, precision=precision, clip_norm=1e6)
        updater(batches, num_tokens=batches[0].num_tgt_tokens, lr=0.01)
        norms[precision] = updater.facts()["gradient_norm"]
        model = fresh_model(config.model)
        updater = updater_for(model, precision=precision, clip_norm=1e-6)
        # With a large eps Adam's step is proportional to the gradient.
        updater.optimizer.param_groups[0]["eps"] = updater.optimizer.param_groups[1]["eps"] = 1e-3
        before = [weight.detach().clone() for weight in model.parameters()]
        updater(batches, num_tokens=batches[0].num_tgt_tokens, lr=1.0)
        moves = [w.detach() - old for w, old in zip(model.parameters(), before, strict=True)]
        steps[precision] = torch.stack([move.norm() for move in moves]).norm().item()
    assert norms["fp16"] == pytest.approx(norms["fp32"], rel=0.01)
    assert steps["fp16"] == pytest.approx(steps["fp32"], rel=0.01)


def test_gradients_that_are_no_numbers_change_nothing_and_are_counted(run_config):
    model = fresh_model(run_config().model)
    updater = updater_for(model)
    batches = list(eval_batches(some_pairs(), max_tokens=10_000))
    num_tokens = batches[0].num_tgt_tokens
    updater(batches, num_tokens=num_tokens, lr=0.01)
    healthy = updater.facts()
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    broken = model.decoder.layers[0].feed_forward
    handle = broken.register_forward_hook(lambda *call: torch.full_like(call[-1], float("nan")))
    for _ in range(MAX_UNUSABLE_IN_A_ROW - 1):
        updater(batches, num_tokens=num_tokens, lr=0.01)
    updater.check()
    assert all(torch.equal(weight, before[n]) for n, weight in model.named_parameters())
    assert updater.facts() == healthy | {"num_unusable": MAX_UNUSABLE_IN_A_ROW - 1}
    updater(batches, num_tokens=num_tokens, lr=0.01)
    with pytest.raises(DivergedError, match="last 10 updates had gradients that are not finite"):
        updater.check()
    handle.remove()
    updater(batches, num_tokens=num_tokens, lr=0.01)
    updater.check()
    assert not all(torch.equal(weight, before[n]) for n, weight in model.named_parameters())


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_stays_close_to_full(run_config, precision):
    config = run_config(model__dropout=0.0)
    losses = {}
    batches = list(eval_batches(some_pairs(), max_tokens=10_000))
    for kind in ("fp32", precision):
        updater = updater_for(fresh_model(config.model), precision=kind)
        for _ in range(3):
            updater(batches, num_tokens=batches[0].num_tgt_tokens, lr=0.001)
        tally = updater.facts()
        assert tally["num_unusable"] == 0
        losses[kind] = tally["loss_nats"]
    assert losses[precision] == pytest.approx(losses["fp32"], rel=0.01)
