"""Activation checkpointing: same gradients, less memory, for any stack of layers."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.tiny_runs import assert_same_weights
from transformer_mt.data.batches import eval_batches
from transformer_mt.data.pairs import pack_pairs
from transformer_mt.models.batch_loss import batch_loss
from transformer_mt.models.build import build_model
from transformer_mt.nn.dropout import Dropout
from transformer_mt.training.activation_checkpointing import recompute_layers
from transformer_mt.training.trainer import train

SIZES = {"d_model": 16, "num_encoder_layers": 2, "num_decoder_layers": 2}
TRANSFORMER = {"d_ff": 32, "num_heads": 2, "attention_dropout": 0.1, "activation_dropout": 0.1}


@pytest.fixture
def passes(run_config):
    """Make a model and a function that returns its loss, gradients and bytes kept meanwhile."""
    sentences = [[5, 6, 7, 8], [9, 10], [11, 12, 13, 14, 15]]
    (batch,) = eval_batches(pack_pairs(sentences, sentences[::-1]), max_tokens=100)

    def make(which, precision=torch.float32, model=TRANSFORMER):
        torch.manual_seed(1)
        settings = run_config(model={"dropout": 0.1, **SIZES, **model}).model
        model = build_model(settings, src_vocab_size=30, tgt_vocab_size=30).train()
        names = set(model.state_dict())
        if which != "none":
            recompute_layers(model, which)
        assert set(model.state_dict()) == names
        kept = []

        def keep(tensor):
            kept.append(tensor.untyped_storage().nbytes())
            return tensor

        torch.manual_seed(2)
        with (
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
            torch.autocast("cpu", dtype=precision, enabled=precision != torch.float32),
        ):
            loss, _ = batch_loss(model, batch, label_smoothing=0.1)
        loss.backward()
        gradients = {name: weight.grad for name, weight in model.named_parameters()}
        return loss.detach(), gradients, sum(kept), torch.rand(3)

    return make


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("which", ["layers", "selective"])
def test_gradients_are_the_same_to_the_bit_with_dropout(passes, which, precision):
    loss, expected, bytes_kept, randoms = passes("none", precision)
    found_loss, found, found_bytes, found_randoms = passes(which, precision)
    assert torch.equal(found_loss, loss)
    assert all(torch.equal(found[name], gradient) for name, gradient in expected.items())
    assert torch.equal(found_randoms, randoms)  # the numbers after the pass are the same, too
    assert found_bytes < 0.5 * bytes_kept


@pytest.mark.parametrize(
    "model",
    [
        TRANSFORMER | {"share_layers": True},
        {"type": "recurrent", "cell": "lstm", "attention": "none"},
        {"type": "convolutional", "dropout": 0.2},
    ],
    ids=["shared layers", "recurrent", "convolutional"],
)
@pytest.mark.parametrize("which", ["layers", "selective"])
def test_gradients_of_other_models_are_the_same_to_the_bit(passes, which, model):
    _, expected, _, randoms = passes("none", model=model)
    _, found, _, found_randoms = passes(which, model=model)
    assert all(torch.equal(found[name], gradient) for name, gradient in expected.items())
    assert torch.equal(found_randoms, randoms)


class Products(TorchDispatchMode):
    """Counts products with a bias: those of forward passes."""

    def __init__(self):
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        """Count, and do what was asked for."""
        self.number += function is torch.ops.aten.addmm.default
        return function(*args, **(kwargs or {}))


def test_products_are_not_computed_again_when_selective():
    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Dropout(0.5))])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    counts = {}
    for which in ("none", "layers", "selective"):
        stack = Stack()
        if which != "none":
            recompute_layers(stack, which)
        loss = stack(torch.randn(3, 4)).sum()
        with Products() as products:
            loss.backward()
        counts[which] = products.number
    assert counts == {"none": 0, "layers": 1, "selective": 0}


def test_a_run_with_the_setting_ends_with_the_same_weights(run_config):
    plain = Path(train(run_config("plain")).run_dir)
    settings = run_config("saving", training__activation_checkpointing="selective")
    assert_same_weights(Path(train(settings).run_dir), plain, 6)
