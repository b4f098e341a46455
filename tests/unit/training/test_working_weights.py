"""Weights in bf16 that compute for weights in fp32: as exact as autocast, and nothing is lost."""

import pytest
import torch

from tests.unit.training.test_out_of_memory import SmallDevice
from tests.updates import fresh_model, some_pairs, updater_for
from transformer_mt.config.convolutional import ConvolutionalSettings
from transformer_mt.config.model import TransformerSettings
from transformer_mt.config.recurrent import RecurrentSettings
from transformer_mt.data.batches import eval_batches
from transformer_mt.training.build import build_updater
from transformer_mt.training.distributed import World
from transformer_mt.training.state import TrainState
from transformer_mt.training.working_weights import WorkingWeights

SIZES = {"d_model": 16, "num_encoder_layers": 1, "num_decoder_layers": 1, "dropout": 0.0}
MODELS = {
    "post-norm": TransformerSettings(**SIZES, d_ff=32, num_heads=2),
    "pre-norm": TransformerSettings(**SIZES, d_ff=32, num_heads=2, norm="pre"),
    **{
        scheme: TransformerSettings(**SIZES, d_ff=32, num_heads=2, positions={"type": scheme})
        for scheme in ("rotary", "relative", "relative_bias", "alibi")
    },
    "recurrent": RecurrentSettings(**SIZES, type="recurrent"),
    "convolutional": ConvolutionalSettings(**SIZES, type="convolutional"),
}


def updater_with(model, weights="bf16", precision="bf16"):
    working = WorkingWeights(model) if weights == "bf16" else None
    return updater_for(model, precision=precision, working=working)


def gradients_of(config, batches, **precisions):
    model = fresh_model(config.model)
    updater = updater_with(model, **precisions)
    num_tokens = sum(batch.num_tgt_tokens for batch in batches)
    losses = updater.gradients.accumulate(batches, num_tokens=num_tokens)
    return losses, {name: weight.grad for name, weight in model.named_parameters()}


def distance(found, expected):
    """Of all gradients together, as a share of their norm."""
    differences = [(found[name] - gradient).norm() for name, gradient in expected.items()]
    norms = [gradient.norm() for gradient in expected.values()]
    return (torch.stack(differences).norm() / torch.stack(norms).norm()).item()


@pytest.mark.parametrize("model", MODELS)
def test_gradients_are_in_fp32_and_as_exact_as_those_of_autocast(run_config, model):
    config = run_config().model_copy(update={"model": MODELS[model]})
    batches = list(eval_batches(some_pairs(), max_tokens=60))
    losses, exact = gradients_of(config, batches, weights="fp32", precision="fp32")
    losses_of_autocast, of_autocast = gradients_of(config, batches, weights="fp32")
    found_losses, found = gradients_of(config, batches)
    assert all(gradient.dtype == torch.float32 for gradient in found.values())
    assert 0 < distance(found, exact) < max(0.02, 2 * distance(of_autocast, exact))
    torch.testing.assert_close(found_losses, losses, rtol=2e-3, atol=0)
    torch.testing.assert_close(losses_of_autocast, losses, rtol=2e-3, atol=0)


def test_gradients_of_many_micro_batches_add_up_in_fp32(run_config):
    config = run_config(model__dropout=0.0)
    (batch,) = eval_batches(some_pairs(), max_tokens=10_000)
    _, once = gradients_of(config, [batch])
    _, often = gradients_of(config, [batch] * 16)
    # In bf16 three times a number is already rounded. To be divided by 16 rounds nothing.
    assert distance(often, once) < 1e-5


def test_an_update_in_smaller_parts_has_the_same_gradient(run_config, monkeypatch):
    config = run_config(model__dropout=0.0)
    batches = list(eval_batches(some_pairs(), max_tokens=100))
    _, expected = gradients_of(config, batches)
    device = SmallDevice(monkeypatch, where="backward", most_tokens=40)
    _, found = gradients_of(config, batches)
    assert device.num_failures >= 2
    assert distance(found, expected) < 0.02


def test_updates_too_small_for_bf16_are_not_lost(run_config):
    config = run_config(model__dropout=0.0)
    (batch,) = eval_batches(some_pairs(), max_tokens=10_000)
    moved = {}
    for weights in ("fp32", "bf16"):
        model = fresh_model(config.model)
        updater = updater_with(model, weights)
        before = model.decoder.output.weight.detach().clone()
        for _ in range(20):
            updater([batch], num_tokens=batch.num_tgt_tokens, lr=1e-6)
        moved[weights] = model.decoder.output.weight.detach() - before
    norms = {weights: difference.norm().item() for weights, difference in moved.items()}
    assert norms["bf16"] == pytest.approx(norms["fp32"], rel=0.02)
    assert 0 < moved["bf16"].abs().max() < 2.5e-5


def test_the_loss_falls_as_under_autocast(run_config):
    config = run_config(model__dropout=0.1)
    (batch,) = eval_batches(some_pairs(), max_tokens=10_000, row_multiple=32)
    curves = {}
    for weights in ("fp32", "bf16"):
        updater = updater_with(fresh_model(config.model), weights)
        curves[weights] = []
        for _ in range(20):
            updater([batch], num_tokens=batch.num_tgt_tokens, lr=0.01)
            curves[weights].append(updater.facts()["loss_nats"])
            updater.stats.reset()
    assert curves["fp32"][-1] < curves["fp32"][0] - 0.5
    assert curves["bf16"] == pytest.approx(curves["fp32"], rel=0.02)


@pytest.mark.parametrize("recompute", ["none", "layers", "selective"])
def test_the_setting_makes_the_layers_compute_in_bf16(run_config, recompute):
    config = run_config(
        model__dropout=0.0,
        training__precision="bf16",
        training__weights="bf16",
        training__activation_checkpointing=recompute,
    )
    model = fresh_model(config.model)
    updater = build_updater(
        config,
        model,
        state=TrainState(),
        world=World(),
        device=torch.device("cpu"),
        precision="bf16",
    )
    seen = []
    for module in updater.gradients.with_loss.modules():
        module.register_forward_hook(lambda module, given, result: seen.append(result))
    (batch,) = eval_batches(some_pairs(), max_tokens=10_000)
    updater([batch], num_tokens=batch.num_tgt_tokens, lr=0.1)
    types = {result.dtype for result in seen if isinstance(result, torch.Tensor)}
    assert types == {torch.bfloat16}
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert all(weight.grad is None for weight in updater.gradients.with_loss.parameters())
