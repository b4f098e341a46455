from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_mt.nn import loss as loss_module
from transformer_mt.nn.loss import label_smoothed_linear_cross_entropy

N, D, V, PAD, NUM_COUNTED = 23, 8, 11, 0, 20


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


def inputs(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return hidden states, weight, bias and targets, the last of which are padding."""
    hidden, weight, bias = (
        torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in ((N, D), (V, D), (V,))
    )
    targets = torch.randint(1, V, (N,))
    targets[NUM_COUNTED:] = PAD
    return hidden, weight, bias, targets


def plain_formula(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float
) -> Tensor:
    """Cross entropy to a target distribution written out in full; loss of each token."""
    log_probs = torch.log_softmax(F.linear(hidden, weight, bias), dim=1)
    wanted = torch.full_like(log_probs, smoothing / V)
    wanted[torch.arange(len(targets)), targets] += 1 - smoothing
    return -(wanted * log_probs).sum(1)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("chunk_tokens", [1, 7, 23, None])
@pytest.mark.parametrize("num_counted", [None, NUM_COUNTED])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_value_and_gradients_equal_the_plain_formula(
    smoothing: float,
    with_bias: bool,
    num_counted: int | None,
    chunk_tokens: int | None,
    compiled: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What is compiled, not the compiler: that takes seconds, see test_layer_compilation.py.
    monkeypatch.setattr(loss_module, "_compiled", lambda: loss_module._losses_and_gradients)
    hidden, weight, bias, targets = inputs()
    parameters = [hidden, weight, bias] if with_bias else [hidden, weight]
    loss, nll = label_smoothed_linear_cross_entropy(
        hidden,
        weight,
        bias if with_bias else None,
        targets,
        label_smoothing=smoothing,
        num_counted=num_counted,
        chunk_tokens=chunk_tokens,
        compiled=compiled,
    )
    counted = slice(num_counted)
    given = (hidden, weight, bias if with_bias else None, targets)
    expected = plain_formula(*given, smoothing)[counted].sum()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(nll, plain_formula(*given, 0.0)[counted].sum())
    torch.testing.assert_close(
        torch.autograd.grad(loss / 17, parameters), torch.autograd.grad(expected / 17, parameters)
    )


def test_without_smoothing_it_is_torch_cross_entropy() -> None:
    hidden, weight, bias, targets = inputs()
    loss, nll = label_smoothed_linear_cross_entropy(
        hidden, weight, bias, targets, num_counted=NUM_COUNTED, chunk_tokens=5
    )
    expected = F.cross_entropy(
        F.linear(hidden, weight, bias), targets, ignore_index=PAD, reduction="sum"
    )
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(nll, loss)


def test_a_target_of_vanishing_probability_has_a_finite_loss() -> None:
    hidden = torch.tensor([[1000.0]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0]], requires_grad=True)
    loss, _ = label_smoothed_linear_cross_entropy(hidden, weight, None, torch.tensor([1]))
    assert loss.item() == 2000


def test_no_gradient_no_work() -> None:
    hidden, weight, bias, targets = inputs()
    with torch.no_grad():
        loss, nll = label_smoothed_linear_cross_entropy(
            hidden, weight, bias, targets, label_smoothing=0.1, chunk_tokens=5
        )
    assert not loss.requires_grad
    given = (hidden, weight, bias, targets)
    torch.testing.assert_close(loss, plain_formula(*given, 0.1).sum().detach())
    torch.testing.assert_close(nll, plain_formula(*given, 0.0).sum().detach())


class LargestTensor(TorchDispatchMode):
    """Notes the size of the largest tensor that any operator makes."""

    num_elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        for tensor in self._tensors(result):
            self.num_elements = max(self.num_elements, tensor.numel())
        return result

    def _tensors(self, result: object) -> Iterator[Tensor]:
        for part in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(part, Tensor):
                yield part


@pytest.mark.parametrize("autocast", [False, True])
def test_all_logits_are_never_held_at_once(autocast: bool) -> None:
    hidden = torch.randn(64, D, requires_grad=True)
    weight = torch.randn(500, D, requires_grad=True)
    targets = torch.randint(500, (64,))
    with (
        LargestTensor() as largest,
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast),
    ):
        loss, _ = label_smoothed_linear_cross_entropy(
            hidden, weight, None, targets, label_smoothing=0.1, chunk_tokens=4
        )
        loss.backward()
    assert largest.num_elements == 500 * D > 4 * 500 > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_products_in_low_precision_and_the_rest_in_fp32(
    dtype: torch.dtype,
) -> None:
    torch.manual_seed(2)
    hidden = torch.randn(300, 32, requires_grad=True)
    weight = (torch.randn(200, 32) * 32**-0.5).requires_grad_()
    targets = torch.randint(200, (300,))
    with torch.autocast("cpu", dtype=dtype):
        loss, _ = label_smoothed_linear_cross_entropy(
            hidden, weight, None, targets, label_smoothing=0.1, chunk_tokens=64
        )
    assert loss.dtype == torch.float32
    grads = torch.autograd.grad(loss, [hidden, weight])
    assert [grad.dtype for grad in grads] == [torch.float32] * 2
    expected = F.cross_entropy(
        F.linear(hidden, weight), targets, label_smoothing=0.1, reduction="sum"
    )
    torch.testing.assert_close(loss, expected, rtol=1e-3, atol=0)
    for grad, exact in zip(grads, torch.autograd.grad(expected, [hidden, weight]), strict=True):
        assert (grad - exact).norm() < 0.01 * exact.norm()


def test_weights_in_bf16_get_gradients_in_bf16() -> None:
    hidden, weight, bias, targets = inputs(torch.bfloat16)
    loss, _ = label_smoothed_linear_cross_entropy(
        hidden, weight, bias, targets, label_smoothing=0.1
    )
    loss.backward()
    assert loss.dtype == torch.float32
    assert hidden.grad.dtype == weight.grad.dtype == bias.grad.dtype == torch.bfloat16


def test_a_tied_weight_gets_the_gradients_of_both_its_uses() -> None:
    _, weight, _, targets = inputs()
    tokens = torch.randint(1, V, (N,))
    loss, _ = label_smoothed_linear_cross_entropy(
        F.embedding(tokens, weight), weight, None, targets, label_smoothing=0.1, chunk_tokens=5
    )
    expected = plain_formula(F.embedding(tokens, weight), weight, None, targets, 0.1).sum()
    torch.testing.assert_close(
        torch.autograd.grad(loss, weight), torch.autograd.grad(expected, weight)
    )


def test_only_the_loss_has_gradients_and_only_once() -> None:
    hidden, weight, bias, targets = inputs()
    loss, nll = label_smoothed_linear_cross_entropy(hidden, weight, bias, targets)
    assert not nll.requires_grad
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once"):
        loss.backward()


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_impossible_smoothing_is_refused(smoothing: float) -> None:
    hidden, weight, bias, targets = inputs()
    with pytest.raises(ValueError, match=str(smoothing)):
        label_smoothed_linear_cross_entropy(
            hidden, weight, bias, targets, label_smoothing=smoothing
        )


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
def test_gpu_loss_equals_the_plain_formula(dtype: torch.dtype | None) -> None:
    hidden = torch.randn(3000, 64, device="cuda", requires_grad=True)
    weight = (torch.randn(5003, 64, device="cuda") / 8).requires_grad_()
    targets = torch.randint(1, 5003, (3000,), device="cuda")
    targets[2900:] = PAD
    with torch.autocast("cuda", dtype=dtype or torch.float16, enabled=dtype is not None):
        loss, _ = label_smoothed_linear_cross_entropy(
            hidden, weight, None, targets, label_smoothing=0.1, num_counted=2900
        )
    expected = F.cross_entropy(
        F.linear(hidden, weight), targets, label_smoothing=0.1, ignore_index=PAD, reduction="sum"
    )
    torch.testing.assert_close(loss, expected, rtol=1e-3, atol=0)
    grads = torch.autograd.grad(loss, [hidden, weight])
    for grad, exact in zip(grads, torch.autograd.grad(expected, [hidden, weight]), strict=True):
        assert (grad - exact).norm() < 0.02 * exact.norm()
