"""Label-smoothed cross entropy of the output layer, without ever holding all logits.

N tokens times V classes are by far the largest tensor of a training step: with 25,000 tokens and
37,000 classes 3.7 GB in fp32, and several of them. Here rows are taken in chunks: logits, loss
and gradients of a chunk are computed at once, in one buffer, and only the gradients of states and
weights are kept.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Fewer rows make the matrix products slower. On the CPU a buffer of more than 32 MB goes back to
# the system after each use, which then clears its pages for the next.
_LEAST_CHUNK_TOKENS_CPU = 256
_CHUNK_ELEMENTS_CPU = 1 << 22
_CHUNK_TOKENS_GPU = 1024
# Each chunk adds a whole gradient of the weight and has its own launches: where there is room,
# fewer and larger ones.
_CHUNK_TOKENS_LARGE_GPU = 4096
_LARGE_GPU_BYTES = 40e9


def label_smoothed_linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    num_counted: int | None = None,
    label_smoothing: float = 0.0,
    chunk_tokens: int | None = None,
    compiled: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return loss and negative log-likelihood of targets, summed over tokens.

    The loss of a token is the cross entropy to a target distribution of 1 - label_smoothing on the
    target and label_smoothing spread evenly over all V classes; its gradient is computed in the
    forward pass. Gradients flow from the loss alone, once.

    Source: Szegedy et al. 2016, section 7, as in `torch.nn.functional.cross_entropy`.

    Args:
        hidden: States before the output projection (N, D).
        weight: Output projection (V, D).
        bias: Output bias (V,) or None.
        targets: Class of each token (N,), int64.
        num_counted: The first `num_counted` rows count; the others are a tail of padding, whose
            targets may be any. None: all.
        label_smoothing: Share of the target distribution that is spread, in [0, 1).
        chunk_tokens: Rows of logits held at once; default by device and V.
        compiled: Whether `torch.compile` makes two passes over each chunk of logits out of a dozen.

    Returns:
        Sum of losses in nats, float32 (or float64 for float64 states); sum of negative
        log-likelihoods in nats, of the same type. Both are scalars on the device of `hidden`.
    """
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must be in [0, 1); got {label_smoothing}")
    head = _Head(
        num_counted=targets.numel() if num_counted is None else num_counted,
        label_smoothing=label_smoothing,
        chunk_tokens=chunk_tokens or _default_chunk_tokens(hidden.device, weight.shape[0]),
        product_dtype=_product_dtype(hidden),
        compiled=compiled,
    )
    given = (hidden, weight, bias, targets)
    with torch.autocast(hidden.device.type, enabled=False):
        if torch.is_grad_enabled():
            loss, nll = _LinearCrossEntropy.apply(*given, head)  # type: ignore[no-untyped-call]
        else:
            loss, nll = head.run(*given, gradients=None)
    return loss, nll


def _default_chunk_tokens(device: torch.device, num_classes: int) -> int:
    if device.type == "cpu":
        return max(_LEAST_CHUNK_TOKENS_CPU, _CHUNK_ELEMENTS_CPU // num_classes)
    if device.type == "cuda" and _memory_of(device) >= _LARGE_GPU_BYTES:
        return _CHUNK_TOKENS_LARGE_GPU
    return _CHUNK_TOKENS_GPU


def _memory_of(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).total_memory


def _product_dtype(hidden: Tensor) -> torch.dtype:
    if torch.is_autocast_enabled(hidden.device.type):
        return torch.get_autocast_dtype(hidden.device.type)
    return hidden.dtype


@dataclass(frozen=True)
class _Gradients:
    """Gradients of the loss: of hidden states (N, D), weight (V, D) and bias (V,).

    None where there is no bias, or the weight is frozen.
    """

    hidden: Tensor
    weight: Tensor | None
    bias: Tensor | None


@dataclass(frozen=True)
class _Head:
    """The computation. Letters: C tokens of a chunk, D channels, V classes.

    Attributes:
        num_counted: Rows that count; those after them do not.
        label_smoothing: Share of the target distribution that is spread.
        chunk_tokens: Greatest C.
        product_dtype: Type of the operands of matrix products; all else is at least float32.
        compiled: Whether `_losses_and_gradients` is compiled.
    """

    num_counted: int
    label_smoothing: float
    chunk_tokens: int
    product_dtype: torch.dtype
    compiled: bool

    def run(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        *,
        gradients: _Gradients | None,
    ) -> tuple[Tensor, Tensor]:
        """Return loss and negative log-likelihood, and fill `gradients` if any are wanted."""
        exact = torch.promote_types(hidden.dtype, torch.float32)
        x, w = hidden.to(self.product_dtype), weight.to(self.product_dtype)
        loss, nll = (torch.zeros((), dtype=exact, device=hidden.device) for _ in range(2))
        buffer = x.new_empty(min(self.chunk_tokens, x.shape[0]), w.shape[0])
        for start in range(0, x.shape[0], self.chunk_tokens):
            rows = slice(start, start + self.chunk_tokens)
            chunk = x[rows]
            product = torch.mm(chunk, w.T, out=buffer[: chunk.shape[0]])
            logit_grads = None
            if self.compiled and gradients is not None:
                losses, nlls, logit_grads = _compiled()(
                    product, bias, targets[rows], self.label_smoothing
                )
            else:
                logits = product.to(exact)
                if bias is not None:
                    logits += bias
                losses, nlls, probs = self._losses(logits, targets[rows])
                if gradients is not None:
                    logit_grads = self._logit_gradients(probs, targets[rows])
            for part in (losses, nlls, logit_grads):
                if part is not None:
                    part[max(0, self.num_counted - start) :] = 0
            loss += losses.sum()
            nll += nlls.sum()
            if gradients is not None and logit_grads is not None:
                self._add_gradients(logit_grads, chunk, w, rows, gradients)
        return loss, nll

    def _losses(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return loss (C,), negative log-likelihood (C,) and probabilities (C, V).

        On the CPU the probabilities take the place of the logits.
        """
        target_logits = logits.gather(1, targets[:, None])[:, 0]
        mean_logits = logits.mean(1)
        top_logits = logits.amax(1)
        out = logits if logits.device.type == "cpu" else None
        probs = torch.softmax(logits, dim=1, out=out)
        # log sum exp. The two maxima cost a tenth of one more pass with exponentials, and the
        # greatest probability, unlike the target's, cannot be too small for its logarithm.
        log_norm = top_logits - probs.amax(1).log()
        nll = log_norm - target_logits
        return nll.lerp(log_norm - mean_logits, self.label_smoothing), nll, probs

    def _logit_gradients(self, probs: Tensor, targets: Tensor) -> Tensor:
        """Turn probabilities (C, V) into the gradient of the logits, in their place."""
        smoothing = self.label_smoothing
        probs.sub_(smoothing / probs.shape[1])
        probs.scatter_add_(1, targets[:, None], probs.new_full((len(targets), 1), smoothing - 1))
        return probs

    def _add_gradients(
        self,
        logit_grads: Tensor,
        chunk: Tensor,
        weight: Tensor,
        rows: slice,
        gradients: _Gradients,
    ) -> None:
        """Add the part of one chunk, whose rows of `gradients.hidden` it fills."""
        if gradients.bias is not None:
            gradients.bias.add_(logit_grads.sum(0, dtype=gradients.bias.dtype))
        logit_grads = logit_grads.to(self.product_dtype)
        gradients.hidden[rows] = logit_grads @ weight
        if gradients.weight is None:
            return
        if gradients.weight.dtype == logit_grads.dtype:
            gradients.weight.addmm_(logit_grads.T, chunk)
        else:
            gradients.weight.add_(logit_grads.T @ chunk)


def _losses_and_gradients(
    product: Tensor, bias: Tensor | None, targets: Tensor, label_smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return loss (C,) and negative log-likelihood (C,), and the gradient of the logits (C, V).

    What `_Head` does in place, as one expression without side effects, which a compiler fuses: the
    logits (C, V) are read twice, and the gradient is written once, in their type.
    """
    logits = product.to(torch.promote_types(product.dtype, torch.float32))
    if bias is not None:
        logits = logits + bias
    log_norm = logits.logsumexp(1)
    nlls = log_norm - logits.gather(1, targets[:, None])[:, 0]
    losses = nlls.lerp(log_norm - logits.mean(1), label_smoothing)
    num_classes = logits.shape[1]
    is_target = torch.arange(num_classes, device=logits.device) == targets[:, None]
    grads = (logits - log_norm[:, None]).exp() - label_smoothing / num_classes
    grads = torch.where(is_target, grads - (1 - label_smoothing), grads)
    return losses, nlls, grads.to(product.dtype)


@cache
def _compiled() -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Return `_losses_and_gradients`, compiled once for chunks of all lengths."""
    return torch.compile(_losses_and_gradients, dynamic=True, fullgraph=True)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        head: _Head,
    ) -> tuple[Tensor, Tensor]:
        """Return both losses (), and keep the gradients that were computed with them."""
        exact = torch.promote_types(hidden.dtype, torch.float32)
        ctx.gradients = _Gradients(
            hidden=torch.empty_like(hidden),
            weight=torch.zeros_like(weight, dtype=exact) if ctx.needs_input_grad[1] else None,
            bias=None if bias is None else torch.zeros_like(bias, dtype=exact),
        )
        ctx.dtypes = weight.dtype, None if bias is None else bias.dtype
        loss, nll = head.run(hidden, weight, bias, targets, gradients=ctx.gradients)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """Hand over the gradients that `forward` kept, times that of the loss ()."""
        gradients = ctx.gradients
        if gradients is None:
            raise RuntimeError("this loss has no gradients left: call backward once")
        ctx.gradients = None  # they are scaled in place and handed over
        weight_dtype, bias_dtype = ctx.dtypes
        hidden = gradients.hidden.mul_(grad_loss)
        weight = gradients.weight
        weight = None if weight is None else weight.mul_(grad_loss).to(weight_dtype)
        bias = None if gradients.bias is None else gradients.bias.mul_(grad_loss).to(bias_dtype)
        return hidden, weight, bias, None, None
