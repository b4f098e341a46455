"""Layers over the operator for short sentences: autocast, compiled, and computed again.

A kernel of plain torch takes the place of Triton's, so that any processor can run it.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor

from tests.updates import fresh_model, some_pairs, updater_for
from transformer_mt.data.batches import eval_batches
from transformer_mt.nn import loss
from transformer_mt.nn.kernels import short_attention
from transformer_mt.nn.kernels.short_attention import CHOICE
from transformer_mt.training.activation_checkpointing import recompute_layers

NUM_ATTENTIONS = 3  # of an encoder layer and a decoder layer


def sentences(
    x: Tensor, memory: Tensor | None, q_offsets: Tensor, k_offsets: Tensor, seeds: Tensor,
    longest: int, causal: bool, p: float,
) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:  # fmt: skip
    """Yield rows of queries and of keys, weights (H, Q, S), and what dropout does to them."""
    q, k, _ = short_attention._parts(x, memory)
    numbers = torch.Generator().manual_seed(int(seeds[0]))
    ends = zip(*(x.tolist() for x in (q_offsets, q_offsets[1:], k_offsets, k_offsets[1:])),
               strict=False)  # fmt: skip
    for q_start, q_end, k_start, k_end in ends:
        queries, keys = slice(q_start, q_end), slice(k_start, k_end)
        scores = torch.einsum("qhd,khd->hqk", q[queries].float(), k[keys].float())
        if causal:
            scores += torch.full(scores.shape[1:], -torch.inf).triu(1)
        weights = (scores * q.shape[2] ** -0.5).softmax(-1)
        kept = torch.rand(weights.shape, generator=numbers) >= p
        yield queries, keys, weights, kept / (1 - p)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[torch.dtype]]:
    """Let a CPU take the operator; return the types in which it is called, forward."""
    found = []

    def forward(x: Tensor, memory: Tensor | None, *others: Any) -> tuple[Tensor, Tensor]:
        found.append(x.dtype)
        v = short_attention._parts(x, memory)[2]
        mixed, log_sums = short_attention._results(x)
        for queries, keys, weights, factors in sentences(x, memory, *others):
            mixed[queries] = torch.einsum("hqk,khd->qhd", weights * factors, v[keys].float())
        return mixed, log_sums

    def backward(
        grad: Tensor, x: Tensor, memory: Tensor | None, mixed: Tensor, log_sums: Tensor,
        *others: Any,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        q, k, v = short_attention._parts(x, memory)
        dx, of_memory = short_attention._gradients(x, memory)
        dq, dk, dv = short_attention._parts(dx, None if memory is None else of_memory)
        for queries, keys, weights, factors in sentences(x, memory, *others):
            upstream = grad[queries].float()
            dv[keys] = torch.einsum("hqk,qhd->khd", weights * factors, upstream)
            of_weights = torch.einsum("qhd,khd->hqk", upstream, v[keys].float()) * factors
            mean = (weights * of_weights).sum(-1, keepdim=True)
            of_scores = weights * (of_weights - mean) * q.shape[2] ** -0.5
            dq[queries] = torch.einsum("hqk,khd->qhd", of_scores, k[keys].float())
            dk[keys] = torch.einsum("hqk,qhd->khd", of_scores, q[queries].float())
        return dx, of_memory

    # Only compiled code of a CPU leaves its own ways.
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    monkeypatch.setattr(CHOICE, "dtype", torch.float32)
    monkeypatch.setattr(CHOICE, "is_taken", True)
    operators = (short_attention._forward, forward), (short_attention._backward, backward)
    with warnings.catch_warnings(action="ignore"):  # that one was registered for a test before
        for operator, kernel in operators:
            operator.register_kernel("cpu", kernel)
    yield found
    for operator, _ in operators:
        del operator._backend_fns["cpu"]  # else Triton's would not be called any more


def update(model: torch.nn.Module, **changes: Any) -> list[Tensor]:
    """Return the losses and the gradients of all batches."""
    updater = updater_for(model, **changes)
    torch.manual_seed(3)
    batches = eval_batches(some_pairs(), max_tokens=120, row_multiple=16)
    losses = [updater.gradients.accumulate([batch], num_tokens=17) for batch in batches]
    return [torch.stack(losses), *(weight.grad for weight in updater.trained.parameters())]


@pytest.fixture
def model(run_config: Callable[..., Any]) -> Callable[..., torch.nn.Module]:
    def make(p: float = 0.0, **changes: Any) -> torch.nn.Module:
        changes = {f"model__{name}": value for name, value in changes.items()}
        return fresh_model(
            run_config(model__dropout=p, model__attention_dropout=p, **changes).model
        )

    return make


def assert_near(found: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    for ours, right in zip(found, expected, strict=True):
        assert (ours - right).abs().max() <= tolerance * (1 + right.abs().max())


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_under_autocast_the_operator_takes_projections_in_bf16(
    calls: list[torch.dtype], model: Callable[..., torch.nn.Module], positions: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(CHOICE, "dtype", torch.bfloat16)
    found = update(model(positions={"type": positions}), precision="bf16")
    assert calls
    assert set(calls) == {torch.bfloat16}
    assert len(calls) % NUM_ATTENTIONS == 0
    monkeypatch.setattr(CHOICE, "is_taken", False)
    assert_near(found, update(model(positions={"type": positions}), precision="bf16"), 0.05)


@pytest.mark.parametrize("which", ["layers", "selective"])
def test_recomputed_layers_drop_the_same_weights(
    calls: list[torch.dtype], model: Callable[..., torch.nn.Module], which: Any
) -> None:
    expected = update(model(0.2))
    num_calls = len(calls)
    recomputed = model(0.2)
    recompute_layers(recomputed, which)
    found = update(recomputed)
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
    # Selective keeps the results of attention, which costs most to compute again.
    assert len(calls) - num_calls == num_calls * (2 if which == "layers" else 1)


# Dynamo looks for gradients of all tensors and hides this warning, which is an error in tests.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("which", [None, pytest.param("selective", marks=pytest.mark.slow)])
def test_compiled_layers_have_the_operator_in_one_graph(
    calls: list[torch.dtype], model: Callable[..., torch.nn.Module], which: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    expected = update(model())
    num_calls = len(calls)
    monkeypatch.undo()
    monkeypatch.setattr(CHOICE, "dtype", torch.float32)
    monkeypatch.setattr(CHOICE, "is_taken", True)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    torch._dynamo.reset()
    loss._compiled.cache_clear()
    compiled = model()
    if which is not None:
        recompute_layers(compiled, which)
    found = update(compiled, compiled=True)
    loss._compiled.cache_clear()
    assert len(calls) >= 2 * num_calls
    assert_near(found, expected, 1e-4)
