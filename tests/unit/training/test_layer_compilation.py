"""Compiled layers and loss equal plain ones; where compiling fails, training continues without.

The compiler here is the first half of `torch.compile`, which takes programs apart; the second half,
which makes machine code of them, takes half a minute.
"""

import logging
from functools import partial

import pytest
import torch
import torch._dynamo

from tests.updates import fresh_model, some_pairs, updater_for
from transformer_mt.data.batches import eval_batches
from transformer_mt.nn import loss
from transformer_mt.training.trainer import train


@pytest.fixture
def compiler(monkeypatch):
    """Replace the second half of the compiler."""

    def use(backend):
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
        torch._dynamo.reset()
        loss._compiled.cache_clear()

    yield use
    loss._compiled.cache_clear()


def batches(row_multiple=16):
    return list(eval_batches(some_pairs(), max_tokens=80, row_multiple=row_multiple))


def losses_and_gradients(updater, row_multiple=16):
    """Accumulate all batches; return the loss sums of each, and all gradients."""
    accumulate = updater.gradients.accumulate
    losses = [accumulate([batch], num_tokens=17) for batch in batches(row_multiple)]
    return torch.stack(losses), {name: w.grad for name, w in updater.trained.named_parameters()}


def test_compiled_layers_and_loss_equal_plain_ones_and_are_compiled_once(run_config, compiler):
    settings = run_config(model__dropout=0.0).model
    expected, gradients = losses_and_gradients(updater_for(fresh_model(settings)), None)
    compiler("eager")
    updater = updater_for(fresh_model(settings), compiled=True)
    assert updater.gradients.with_loss.compiled
    assert all(weight.grad is None for weight in updater.trained.parameters())
    assert len({batch.num_tgt_tokens for batch in batches()}) > 2
    with torch._dynamo.config.patch(error_on_recompile=True):
        found, found_gradients = losses_and_gradients(updater)
    torch.testing.assert_close(found, expected)
    for name, gradient in gradients.items():
        torch.testing.assert_close(found_gradients[name], gradient, rtol=1e-4, atol=1e-6)


def test_where_compiling_fails_one_warning_says_why_and_training_continues(
    run_config, compiler, caplog
):
    def broken(graph, inputs):
        raise FileNotFoundError("no C++ compiler was found\nand more")

    compiler(broken)
    settings = run_config(model__dropout=0.0).model
    with caplog.at_level(logging.WARNING, logger="transformer_mt"):
        updater = updater_for(fresh_model(settings), compiled=True)
        found, _ = losses_and_gradients(updater)
    assert not updater.gradients.with_loss.compiled
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert "no C++ compiler was found" in warnings[0]
    expected, _ = losses_and_gradients(updater_for(fresh_model(settings)))
    torch.testing.assert_close(found, expected)


def test_validation_compiles_nothing(run_config, compiler):
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiler(counting)
    validation = {"every_steps": 1, "num_samples": 1, "beam_size": 1}
    kinds = ("dropout", "attention_dropout", "activation_dropout")
    changes = {f"model__{kind}": 0.1 for kind in kinds}
    changes |= {"training__compile": "layers", "training__max_steps": 2}
    train(run_config(training__validation=validation, **changes))
    # An encoder layer, a decoder layer, the loss.
    assert len(graphs) == 3
