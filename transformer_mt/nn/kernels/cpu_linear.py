"""Linear maps of a trained model, laid out once for fast products on the CPU, and in int8.

Without this, oneDNN and MKL bring a weight into the order of their kernels again in each product.
With few rows, as in decoding, that costs several times the product itself.
"""

import copy
import warnings
from collections.abc import Callable
from functools import cached_property, partial
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.errors import ConfigError
from transformer_mt.nn.kernels.capability import has_onednn, has_vnni, multiplies_fast

Owner = TypeVar("Owner", bound=nn.Module)

_PRODUCT = "_linear_pointwise"
_FBGEMM_PRODUCT = "linear_with_input_q_dq_qweight_dq_output_fp32"

# Up to this number of elements, an fp32 weight stays in the cache of a core; with a few rows MKL
# takes a third to nine tenths of the time of oneDNN, whose calls cost more than the product. With
# hundreds of rows either may be faster, by up to two times.
_SMALL_WEIGHT = 1 << 16

# Steps of a row and of a weight on either side of 0. Without VNNI, processors add pairs of products
# in 16 bits, which hold 2 * (2 * 90) * 91: an activation counts from 0, so it is up to twice 90.
_STEPS = 127, 127
_STEPS_WITHOUT_VNNI = 90, 91

# Up to this number of rows, products are not filled up with rows: see `_by_rows`.
_FEW_ROWS = 16


def prepack(model: nn.Module, *, int8: bool = False) -> None:
    """Replace the linear maps and norms of a model, for inference only: nothing can be trained.

    What replaces them is no module: to call a module of torch and to look up its parts costs as
    much as a small product, and takes half of the time of a step with few hypotheses.

    Args:
        model: On the CPU, in fp32 or bf16.
        int8: Round weights and activations to 8 bits: see `Int8Linear`.

    Raises:
        ConfigError: If `int8` cannot be had here.
    """
    if int8 and not can_multiply_int8():
        raise ConfigError(
            "--precision int8 needs an x86 CPU with AVX2 and a torch with oneDNN and FBGEMM: take "
            + ("bf16 or fp32" if multiplies_fast(torch.bfloat16, torch.device("cpu")) else "fp32")
        )
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                _replace(module, name, _prepacked(child, int8=int8))
            elif isinstance(child, nn.LayerNorm):
                _replace(module, name, _bare_norm(child))
    for module in model.modules():
        # torch keeps parts where Python looks last, by a call; put them also where it looks first.
        vars(module).update(module._modules)


def rows_of(linear: "LinearMap", rows: Tensor) -> "LinearMap":
    """Return the part of a linear map, prepacked or not, that computes some of its outputs.

    Args:
        linear: Maps (.., K) to (.., N).
        rows: Numbers of outputs (R,), int64.
    """
    weight, bias = linear.weight.detach(), linear.bias
    part = nn.Linear(weight.shape[1], len(rows), bias=bias is not None, device="meta")
    part.weight = nn.Parameter(weight[rows], requires_grad=False)
    if bias is not None:
        part.bias = nn.Parameter(bias.detach()[rows], requires_grad=False)
    if isinstance(linear, nn.Linear):
        return part
    return _prepacked(part, int8=isinstance(linear, Int8Linear))


def with_part(module: Owner, name: str, part: object) -> Owner:
    """Return a copy of a module that shares all with it but one part."""
    changed = copy.copy(module)
    changed._modules = dict(module._modules)
    _replace(changed, name, part)
    return changed


def _replace(module: nn.Module, name: str, part: object) -> None:
    """Replace a part by something else, a module or not."""
    delattr(module, name)
    setattr(module, name, part)


def _prepacked(linear: nn.Linear, *, int8: bool) -> "BareLinear | PrepackedLinear | Int8Linear":
    if int8:
        if not has_vnni() and linear.weight.numel() <= _SMALL_WEIGHT:
            return BareLinear(linear)
        return Int8Linear(linear)
    return PrepackedLinear(linear) if gains_by_packing(linear.weight) else BareLinear(linear)


def _bare_norm(norm: nn.LayerNorm) -> Callable[[Tensor], Tensor]:
    """Return the function that a norm is, by torch's own call."""
    weight, bias = (None if x is None else x.detach() for x in (norm.weight, norm.bias))
    return partial(
        torch.layer_norm,
        normalized_shape=norm.normalized_shape,
        weight=weight,
        bias=bias,
        eps=norm.eps,
    )


def gains_by_packing(weight: Tensor) -> bool:
    """Return whether products with a weight are faster here when it is packed."""
    if weight.dtype == torch.float32 and weight.numel() <= _SMALL_WEIGHT:
        return False
    return can_prepack(weight.dtype)


def can_prepack(dtype: torch.dtype) -> bool:
    """Return whether this processor and this torch have fast packed products of a type."""
    if not (has_onednn() and hasattr(torch.ops.mkldnn, _PRODUCT)):
        return False
    return dtype in (torch.float32, torch.bfloat16) and multiplies_fast(dtype, torch.device("cpu"))


def can_multiply_int8() -> bool:
    """Return whether this processor and this torch have fast products of 8-bit integers."""
    return can_prepack(torch.float32) and (has_vnni() or _has_fbgemm())


class BareLinear:
    """A linear map with its weight as it was."""

    def __init__(self, linear: nn.Linear) -> None:
        self.weight = linear.weight.detach()
        self.bias = None if linear.bias is None else linear.bias.detach()
        self._transposed = self.weight.t()

    def __call__(self, x: Tensor) -> Tensor:
        """Map (.., K) to (.., N)."""
        if x.dim() == 2 and self.bias is not None:  # what `linear` does in four operators
            return torch.addmm(self.bias, x, self._transposed)
        return F.linear(x, self.weight, self.bias)


class PrepackedLinear:
    """A linear map with its weight in the order of oneDNN's kernels."""

    def __init__(self, linear: nn.Linear) -> None:
        with torch.inference_mode():
            self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())
        self._dtype, self._num_inputs = linear.weight.dtype, linear.weight.shape[1]
        self.bias = None if linear.bias is None else linear.bias.detach()

    def __call__(self, x: Tensor) -> Tensor:
        """Map (.., K) to (.., N)."""
        return _by_rows(lambda rows: self._product(rows, self.bias), x)

    @cached_property
    def weight(self) -> Tensor:
        """The weight (N, K) as it was, made when it is first asked for."""
        return self._product(torch.eye(self._num_inputs, dtype=self._dtype), None).T.contiguous()

    def _product(self, rows: Tensor, bias: Tensor | None) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise.default(
            rows, self._packed, bias, "none", [], ""
        )
        return y


class Int8Linear:
    """A linear map in 8 bits: a scale for each output channel and for each row of the input.

    The scale of a row depends on that row alone, so neighbours in a batch have no influence.

    Source: Bhandare et al. 2019 (int8 Transformer). differs: weights and activations are symmetric,
    and scales are those of the greatest value, found while computing. Without VNNI, 7.5 bits.
    """

    def __init__(self, linear: nn.Linear) -> None:
        row_steps, weight_steps = _STEPS if has_vnni() else _STEPS_WITHOUT_VNNI
        weight = linear.weight.detach().float()
        scales = weight.abs().amax(1).clamp_(min=1e-12) / weight_steps
        rounded = (weight / scales[:, None]).round_().to(torch.int8)
        self._multiply = (
            _by_fbgemm(rounded, scales, row_steps) if _has_fbgemm() else _by_onednn(rounded, scales)
        )
        self._num_inputs = weight.shape[1]
        self.bias = None if linear.bias is None else linear.bias.detach().float()

    def __call__(self, x: Tensor) -> Tensor:
        """Map (.., K) to (.., N), both fp32."""
        return _by_rows(lambda rows: self._product(rows, self.bias), x)

    @cached_property
    def weight(self) -> Tensor:
        """The rounded weight (N, K), fp32, made when it is first asked for."""
        return self._product(torch.eye(self._num_inputs), None).T.contiguous()

    def _product(self, rows: Tensor, bias: Tensor | None) -> Tensor:
        # Where all are 0 the quotients are no numbers; in 8 bits they are some, and 0 times that.
        greatest = rows.abs().amax(-1, keepdim=True)
        y = self._multiply(rows / greatest)
        return y.mul_(greatest) if bias is None else torch.addcmul(bias, y, greatest)


def _by_fbgemm(rounded: Tensor, scales: Tensor, row_steps: int) -> Callable[[Tensor], Tensor]:
    """Return the product with a weight (N, K), int8, times scales (N,), of rows within +-1.

    It rounds them itself to steps of 1 / row_steps: with few rows it takes half of the time of
    oneDNN's.
    """
    zeros = torch.zeros(len(rounded), dtype=torch.int64)
    with warnings.catch_warnings():
        # Some later torch will be without such tensors, and this without its first choice.
        warnings.simplefilter("ignore", UserWarning)
        weight = torch._make_per_channel_quantized_tensor(rounded, scales.double(), zeros, 0)
    packed = torch.ops.quantized.linear_prepack(weight, None)
    multiply = getattr(torch.ops.quantized, _FBGEMM_PRODUCT).default
    return lambda rows: multiply(rows, 1 / row_steps, row_steps, packed)


def _by_onednn(rounded: Tensor, scales: Tensor) -> Callable[[Tensor], Tensor]:
    """Return what `_by_fbgemm` does, with 127 steps."""
    packed = torch.ops.onednn.qlinear_prepack(rounded, None)
    zeros = torch.zeros(len(rounded), dtype=torch.int64)

    def multiply(rows: Tensor) -> Tensor:
        """Map (M, K) to (M, N), both fp32."""
        # oneDNN's fast kernel takes unsigned activations: -127..127 becomes 1..255. To int8 and a
        # flip of the sign bit, as the conversion to uint8 is five times slower.
        unsigned = rows.mul(127).round_().to(torch.int8).view(torch.uint8).bitwise_xor_(128)
        y: Tensor = torch.ops.onednn.qlinear_pointwise.default(
            unsigned, 1 / 127, 128, packed, scales, zeros, None,
            1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        return y

    return multiply


def _has_fbgemm() -> bool:
    """Return whether this torch has products with rows that are rounded on their way."""
    return (
        torch.backends.quantized.engine in ("fbgemm", "x86")
        and hasattr(torch, "_make_per_channel_quantized_tensor")
        and hasattr(torch.ops.quantized, _FBGEMM_PRODUCT)
    )


LinearMap = nn.Linear | BareLinear | PrepackedLinear | Int8Linear


def _by_rows(product: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply a product to rows (M, K) of (.., K), filled up with zeros to one of a few M.

    At most 1/8 more: oneDNN generates code for each number of rows that it has not seen, which
    takes half a millisecond, and in decoding that number falls from step to step.
    """
    if x.dim() == 2 and x.shape[0] <= _FEW_ROWS:
        return product(x)
    rows = x.flatten(0, -2)
    num = rows.shape[0]
    step = 1 << max(0, (num - 1).bit_length() - 4)
    if missing := -num % step:
        y = product(F.pad(rows, (0, 0, 0, missing)))[:num]
    else:
        y = product(rows)
    return y.view(*x.shape[:-1], y.shape[1])
