"""Equality of a device with the definitions: attention, a whole model, mixed precision.

The reference is the plain formula in float64 on the CPU, written out here.
"""

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from gpu_workload import BASE, config_of, made_up_pairs
from torch import Tensor

from transformer_mt.data.batches import eval_batches
from transformer_mt.models.batch_loss import batch_loss
from transformer_mt.models.build import build_model
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels.block_sparse import attend_sparsely
from transformer_mt.nn.kernels.dispatch import PackedAttention, attend
from transformer_mt.nn.kernels.flex import attend_flex, flex_kernel_for
from transformer_mt.nn.kernels.padded import attend_padded
from transformer_mt.nn.kernels.short_attention import attend_one_by_one, has_triton
from transformer_mt.nn.kernels.varlen import attend_varlen
from transformer_mt.nn.masks import AttentionMask
from transformer_mt.nn.patterns import Pattern, fixed, strided
from transformer_mt.packing import Segments
from transformer_mt.training.build import build_updater
from transformer_mt.training.distributed import World
from transformer_mt.training.gradients import DTYPES
from transformer_mt.training.state import TrainState

# Half of the mantissa, with some margin for sums of a few hundred terms.
TOLERANCES = {"fp32": 2e-4, "bf16": 5e-2, "fp16": 1e-2}


class DifferenceError(Exception):
    """Results that are not equal; carries what was measured."""

    def __init__(self, message: str, results: dict[str, object]) -> None:
        super().__init__(message)
        self.results = results


def compare_attention(device: torch.device, *, head_dim: int, lengths: int) -> dict[str, object]:
    """Compare values and gradients of every way to attend in packed sentences, in all types."""
    rng = np.random.default_rng(3)
    errors: dict[str, float] = {}
    for kind, causal, cross, pattern in (
        ("self", False, False, None),
        ("causal", True, False, None),
        ("cross", False, True, None),
        ("self strided", False, False, strided(8, heads="merged")),
        ("causal fixed", True, False, fixed(16, 2, heads="split")),
    ):
        queries = rng.integers(1, 60, lengths).tolist()
        keys = rng.integers(1, 60, lengths).tolist() if cross else queries
        shapes = [(sum(n), 4, head_dim) for n in (queries, keys, keys, queries)]
        tensors = [torch.from_numpy(rng.standard_normal(shape)) for shape in shapes]
        right = functools.partial(
            _attend_plainly, lengths=(queries, keys), causal=causal, pattern=pattern
        )
        here = Segments.of(queries).to(device)
        mask = AttentionMask(
            here, Segments.of(keys).to(device) if cross else here, causal=causal, pattern=pattern
        )
        for name, way in _ways_to_attend(device, pattern).items():
            found = functools.partial(_attend_packed, way=way, mask=mask, cross=cross)
            for precision in _precisions(device):
                if way is attend_varlen and precision == "fp32":
                    continue  # the kernel has no fp32
                errors[f"{name} {kind} {precision}"] = _largest_error(
                    found, right, tensors, device=device, precision=precision
                )
    return _judged("attention", errors)


Way = Callable[[tuple[Tensor, ...], AttentionMask], Tensor]


def _ways_to_attend(device: torch.device, pattern: Pattern | None) -> dict[str, Way]:
    """Return what can be used on a device, and what `attend` itself takes there."""
    no_dropout = Dropout(0.0)
    ways: dict[str, Way] = {
        "chosen": functools.partial(attend, dropout=no_dropout),
        "padded": functools.partial(attend_padded, dropout=no_dropout),
    }
    if pattern is not None:
        ways["blocks"] = _by_blocks
        if device.type == "cuda":
            ways["flex"] = _by_flex
    elif device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0):
        ways["varlen"] = attend_varlen
    if pattern is None and device.type == "cuda" and has_triton():
        ways["short"] = functools.partial(attend_one_by_one, dropout=no_dropout)
    return ways


def _by_blocks(projections: tuple[Tensor, ...], mask: AttentionMask) -> Tensor:
    assert mask.pattern is not None
    return attend_sparsely(
        projections[0],
        PackedAttention(mask).sparse_plan,
        mask.pattern,
        causal=mask.causal,
        dropout=Dropout(0.0),
    )


def _by_flex(projections: tuple[Tensor, ...], mask: AttentionMask) -> Tensor:
    """Fails where `flex_attention` cannot be used; `attend` would use blocks instead."""
    kernel = flex_kernel_for(projections[0])
    assert kernel is not None, "flex_attention cannot be used here"
    return attend_flex(
        projections[0],
        PackedAttention(mask).block_mask(num_heads=projections[0].shape[2]),
        kernel,
    )


def _attend_packed(
    q: Tensor, k: Tensor, v: Tensor, *, way: Way, mask: AttentionMask, cross: bool
) -> Tensor:
    if cross:
        return way((q[:, None], torch.stack([k, v], dim=1)), mask)
    return way((torch.stack([q, k, v], dim=1),), mask)


def _attend_plainly(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    lengths: tuple[list[int], list[int]],
    causal: bool,
    pattern: Pattern | None,
) -> Tensor:
    """Attend in one sentence after the other."""
    queries, keys = lengths
    rows = zip(torch.split(q, queries), torch.split(k, keys), torch.split(v, keys), strict=True)
    return torch.cat([_plain_attention(*row, causal=causal, pattern=pattern) for row in rows])


def _plain_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, pattern: Pattern | None
) -> Tensor:
    """Mix values (S, H, K) for queries (T, H, K) of one sentence; Vaswani et al. 2017, eq. 1."""
    scores = torch.einsum("thk,shk->hts", q, k) / math.sqrt(q.shape[-1])
    if causal:
        future = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, -math.inf)
    if pattern is not None:
        places = torch.arange(q.shape[0])
        seen = pattern.seen(places, places, num_heads=q.shape[1])
        scores = scores.masked_fill(~seen, -math.inf)
    return torch.einsum("hts,shk->thk", scores.softmax(-1), v)


def compare_model(device: torch.device) -> dict[str, object]:
    """Compare loss and gradient norm of a small model on the device with float64 on the CPU."""
    settings = BASE.model_copy(update={"d_model": 128, "d_ff": 256, "num_heads": 4, "dropout": 0.0})
    torch.manual_seed(5)
    model = build_model(settings, src_vocab_size=500, tgt_vocab_size=500)
    batch = next(eval_batches(made_up_pairs(40, vocab_size=500), max_tokens=1200))

    def loss_and_norm(where: torch.device, dtype: torch.dtype) -> tuple[float, float]:
        """Return the loss of the batch and the norm of its gradient."""
        twin = build_model(settings, src_vocab_size=500, tgt_vocab_size=500)
        twin.load_state_dict(model.state_dict())
        twin = twin.to(where, torch.float64 if dtype == torch.float64 else torch.float32).train()
        enabled = dtype in (torch.bfloat16, torch.float16)
        with torch.autocast(where.type, dtype=dtype if enabled else None, enabled=enabled):
            loss, _ = batch_loss(twin, batch.to(where), label_smoothing=0.1)
        torch.autograd.backward(loss / batch.num_tgt_tokens)
        gradients = [p.grad for p in twin.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        return loss.item() / batch.num_tgt_tokens, norm.item()

    expected = loss_and_norm(torch.device("cpu"), torch.float64)
    errors = {}
    for precision in _precisions(device):
        values = loss_and_norm(device, DTYPES[precision])
        errors[precision] = max(
            abs(value - right) / abs(right) for value, right in zip(values, expected, strict=True)
        )
    return _judged("model", errors)


def compare_amp(device: torch.device, *, steps: int) -> dict[str, object]:
    """Train a small model to copy, in each precision, and compare the losses at the end.

    On CUDA also with compiled layers.
    """
    settings = BASE.model_copy(
        update={
            "d_model": 128,
            "d_ff": 256,
            "num_heads": 4,
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
        }
    )
    pairs = made_up_pairs(64, vocab_size=60, seed=6)
    batches = [batch.to(device) for batch in eval_batches(pairs, max_tokens=2000)]
    losses: dict[str, list[float]] = {}
    kinds = [(precision, False) for precision in _precisions(device)]
    if device.type == "cuda":
        kinds += [(precision, True) for precision in _precisions(device)]
    for precision, compiled in kinds:
        name = f"{precision}, compiled" if compiled else precision
        torch.manual_seed(7)
        model = build_model(settings, src_vocab_size=60, tgt_vocab_size=60).to(device)
        config = config_of(
            settings,
            precision=precision,
            label_smoothing=0.0,
            compile="layers" if compiled else "none",
        )
        updater = build_updater(
            config, model, state=TrainState(), world=World(), device=device, precision=precision
        )
        if updater.gradients.with_loss.compiled != compiled:
            raise RuntimeError(f"torch.compile failed in {precision}: see the warning")
        losses[name] = []
        for step in range(steps):
            batch = batches[step % len(batches)]
            updater([batch], num_tokens=batch.num_tgt_tokens, lr=1e-3)
            if step + 1 in (len(batches), steps):
                losses[name].append(round(updater.facts()["loss_nats"], 4))
                updater.stats.reset()
    results: dict[str, object] = {"loss_nats_first_and_last": losses, "steps": steps}
    end = losses["fp32"][-1]
    for name, (first, last) in losses.items():
        if not (last < first and abs(last - end) < 0.1 * end):
            raise DifferenceError(f"training in {name} diverges from fp32", results)
    return results


def _precisions(device: torch.device) -> Sequence[str]:
    """Return the precisions that a device computes in; CPUs have no usable fp16."""
    return ("fp32", "bf16", "fp16") if device.type == "cuda" else ("fp32", "bf16")


def _largest_error(
    ours: Callable[..., Tensor],
    reference: Callable[..., Tensor],
    tensors: list[Tensor],
    *,
    device: torch.device,
    precision: str,
) -> float:
    """Return the largest error of values and gradients, relative to the largest right number.

    Args:
        ours: Function of tensors on the device.
        reference: The same function in float64 on the CPU.
        tensors: The arguments, and last the gradient of the result.
        device: Where to compute.
        precision: Of the arguments.
    """
    *arguments, gradient = tensors
    # The reference gets the rounded arguments, so that only the computation is judged.
    rounded = [t.to(DTYPES[precision]) for t in arguments]
    right = _value_and_gradients(reference, [t.double() for t in rounded], gradient)
    found = _value_and_gradients(
        ours, [t.to(device) for t in rounded], gradient.to(device, DTYPES[precision])
    )
    return max(
        float((a.cpu().double() - b).abs().max() / b.abs().max())
        for a, b in zip(found, right, strict=True)
    )


def _value_and_gradients(
    function: Callable[..., Tensor], arguments: list[Tensor], gradient: Tensor
) -> list[Tensor]:
    leaves = [argument.detach().requires_grad_() for argument in arguments]
    value = function(*leaves)
    gradients = torch.autograd.grad(value, leaves, gradient.to(value.dtype))
    return [value.detach(), *gradients]


def _judged(what: str, errors: dict[str, float]) -> dict[str, object]:
    results: dict[str, object] = {
        "largest_relative_errors": {name: float(f"{e:.2e}") for name, e in errors.items()},
        "tolerances": TOLERANCES,
    }
    wrong = [name for name, e in errors.items() if not e < TOLERANCES[name.split()[-1]]]
    if wrong:
        raise DifferenceError(f"{what} differs from the definition: {', '.join(wrong)}", results)
    return results
