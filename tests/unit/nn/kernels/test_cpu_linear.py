"""Linear maps laid out for inference."""

import numpy as np
import pytest
import torch
from torch import nn

from transformer_mt.errors import ConfigError
from transformer_mt.nn.kernels import capability
from transformer_mt.nn.kernels import cpu_linear as prepacked
from transformer_mt.nn.kernels.capability import has_vnni
from transformer_mt.nn.kernels.cpu_linear import (
    BareLinear,
    Int8Linear,
    PrepackedLinear,
    can_multiply_int8,
    can_prepack,
    prepack,
    rows_of,
    with_part,
)

needs_packing = pytest.mark.skipif(
    not can_prepack(torch.float32), reason="this processor has no packed products"
)


@pytest.fixture(params=["fbgemm", "onednn"])
def int8_kernel(request, monkeypatch) -> None:
    """Which library multiplies."""
    if not can_multiply_int8():
        pytest.skip("this processor has no products of 8-bit integers")
    has_fbgemm = request.param == "fbgemm"
    if has_fbgemm and not prepacked._has_fbgemm():
        pytest.skip("this torch has no products of fbgemm")
    if not has_fbgemm and not has_vnni():
        pytest.skip("without VNNI, oneDNN's products overflow")
    monkeypatch.setattr(prepacked, "_has_fbgemm", lambda: has_fbgemm)


def linear(in_size: int, out_size: int, *, bias: bool = True) -> nn.Linear:
    torch.manual_seed(3)
    return nn.Linear(in_size, out_size, bias=bias)


@needs_packing
@torch.inference_mode()
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7, 48), (1, 4, 48), (3, 1, 48), (37, 48), (9, 31, 48)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_prepacked_map_equals_the_one_it_was_made_of(dtype, shape, bias):
    if not can_prepack(dtype):
        pytest.skip(f"this processor has no packed products of {dtype}")
    plain = linear(48, 80, bias=bias).to(dtype)
    x = torch.randn(shape).to(dtype)
    torch.testing.assert_close(PrepackedLinear(plain)(x), plain(x))


@torch.inference_mode()
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["plain", "packed", "packed bf16", "int8"])
def test_some_rows_of_a_map_compute_the_same_as_all(kind, bias):
    plain = linear(300, 900, bias=bias)
    if kind == "int8" and not can_multiply_int8():
        pytest.skip("this processor has no products of 8-bit integers")
    if "bf16" in kind:
        plain = plain.bfloat16()
    if "packed" in kind and not can_prepack(plain.weight.dtype):
        pytest.skip("this processor has no such packed products")
    whole = {"plain": nn.Identity, "int8": Int8Linear}.get(kind, PrepackedLinear)(plain)
    whole = plain if kind == "plain" else whole
    x = torch.randn(3, 2, 300).to(plain.weight.dtype)
    rows = torch.tensor([899, 5, 7, 300, *range(400, 700)])
    some = rows_of(whole, rows)
    assert type(some) is type(whole)
    torch.testing.assert_close(some(x), whole(x)[..., rows])
    if "packed" in kind:
        assert torch.equal(whole.weight, plain.weight)


@pytest.mark.usefixtures("int8_kernel")
@torch.inference_mode()
@pytest.mark.parametrize("bias", [True, False])
def test_int8_equals_rounding_rows_and_channels_to_a_number_of_steps(bias):
    plain = linear(48, 80, bias=bias)
    x = torch.randn(2, 5, 48) * torch.tensor([0.01, 100.0])[:, None, None]
    row_steps, weight_steps = (127, 127) if has_vnni() else (90, 91)
    step_of_x = x.double().abs().amax(-1, keepdim=True) / row_steps
    weight = plain.weight.double()
    step_of_weight = weight.abs().amax(1, keepdim=True) / weight_steps
    expected = ((x / step_of_x).round() * step_of_x) @ (
        (weight / step_of_weight).round() * step_of_weight
    ).T
    if bias:
        expected += plain.bias
    torch.testing.assert_close(Int8Linear(plain)(x).double(), expected, rtol=1e-4, atol=1e-4)
    assert not torch.equal(expected.float(), plain(x))


@pytest.mark.usefixtures("int8_kernel")
@torch.inference_mode()
@pytest.mark.parametrize("num_rows", [1, 3, 40])
@pytest.mark.parametrize("sign", [1, -1])
def test_int8_products_do_not_overflow_at_the_greatest_values(num_rows, sign):
    plain = linear(512, 64, bias=False)
    plain.weight.data.fill_(sign)
    found = Int8Linear(plain)(torch.ones(num_rows, 512))
    torch.testing.assert_close(found, torch.full((num_rows, 64), 512.0 * sign))


def int8_sums(
    rows: np.ndarray, weight: np.ndarray, *, zero_point: int, in_pairs: bool
) -> np.ndarray:
    """Sums of products of steps, as x86 processors compute them; see `_STEPS`.

    Rows (M, K) and weight (N, K) are integers around 0. Rows are stored from 0 on, `zero_point`
    being 0. With VNNI four products go into a sum of 32 bits; without it, pairs of products go
    through 16 bits, which saturate.
    """
    stored = (rows + zero_point).astype(np.uint8)
    assert (stored == rows + zero_point).all()
    products = stored.astype(np.int32)[:, None, :] * weight.astype(np.int32)
    if in_pairs:
        pairs = products[..., ::2] + products[..., 1::2]
        products = pairs.clip(-(1 << 15), (1 << 15) - 1)
    exact = products.sum(-1, dtype=np.int64)
    assert (abs(exact) < 1 << 31).all()
    return exact - zero_point * weight.sum(-1, dtype=np.int64)


def some_steps(row_steps: int, weight_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and a weight, among them those of the greatest sums."""
    rng = np.random.default_rng(1)
    rows = rng.integers(-row_steps, row_steps + 1, (6, 512))
    weight = rng.integers(-weight_steps, weight_steps + 1, (8, 512))
    rows[0], rows[1], weight[0], weight[1] = row_steps, -row_steps, weight_steps, -weight_steps
    rows[2:, 0] = row_steps  # the greatest of each row, from which its scale is taken
    return rows, weight


@pytest.mark.parametrize(
    ("steps", "in_pairs", "is_exact"),
    [
        (prepacked._STEPS, False, True),
        (prepacked._STEPS, True, False),
        (prepacked._STEPS_WITHOUT_VNNI, True, True),
        (prepacked._STEPS_WITHOUT_VNNI, False, True),
    ],
)
def test_int8_sums_are_exact_with_the_steps_for_a_processor(steps, in_pairs, is_exact):
    rows, weight = some_steps(*steps)
    found = int8_sums(rows, weight, zero_point=steps[0], in_pairs=in_pairs)
    assert (found == rows @ weight.T).all() == is_exact


@pytest.mark.skipif(not prepacked._has_fbgemm(), reason="needs fbgemm")
@torch.inference_mode()
@pytest.mark.parametrize("steps", [prepacked._STEPS, prepacked._STEPS_WITHOUT_VNNI])
def test_products_of_fbgemm_are_those_of_the_emulation(steps):
    in_pairs = not torch.cpu._is_vnni_supported()
    rows, weight = some_steps(*steps)
    multiply = prepacked._by_fbgemm(torch.tensor(weight, dtype=torch.int8), torch.ones(8), steps[0])
    found = multiply(torch.tensor(rows / steps[0]).float()) * steps[0]
    expected = int8_sums(rows, weight, zero_point=steps[0], in_pairs=in_pairs)
    assert (found.double().round().numpy() == expected).all()


def test_int8_takes_fewer_steps_where_fbgemm_was_told_to_do_without_vnni(monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: True)
    monkeypatch.setattr(capability, "_may_use", lambda isa: True)
    assert has_vnni()
    monkeypatch.setenv("FBGEMM_ENABLE_INSTRUCTIONS", "avx2")
    assert not has_vnni()


@pytest.mark.skipif(not prepacked._has_fbgemm(), reason="needs fbgemm")
@torch.inference_mode()
def test_int8_without_vnni_leaves_small_maps_in_fp32_and_rounds_the_others(monkeypatch):
    monkeypatch.setattr(prepacked, "has_vnni", lambda: False)
    if not can_multiply_int8():
        pytest.skip("this processor has no products of 8-bit integers")
    plain = linear(256, 257)
    model = nn.ModuleDict({"small": linear(256, 256), "large": plain})
    prepack(model, int8=True)
    assert [type(part) for part in (model.small, model.large)] == [BareLinear, Int8Linear]
    x = torch.randn(20, 256)
    error = (model.large(x) - plain(x)).norm() / plain(x).norm()
    assert 0 < error < 0.02


@pytest.mark.usefixtures("int8_kernel")
@torch.inference_mode()
def test_an_int8_row_does_not_depend_on_its_neighbours():
    layer = Int8Linear(linear(64, 96))
    x = torch.randn(70, 64)
    together = layer(torch.cat((x, 1000 * x)))[:70]
    alone = torch.cat([layer(row[None]) for row in x])
    torch.testing.assert_close(together, alone, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("int8_kernel")
@torch.inference_mode()
@pytest.mark.parametrize("num_inputs", [13, 16])
@pytest.mark.parametrize("num_rows", [1, 3, 40])
def test_int8_of_zeros_is_the_bias_and_of_no_numbers_no_numbers(num_inputs, num_rows):
    plain = linear(num_inputs, 8)
    x = torch.zeros(num_rows, num_inputs)
    assert torch.equal(Int8Linear(plain)(x), plain.bias.expand(num_rows, 8))
    x[-1, 2] = torch.nan
    found = Int8Linear(plain)(x)
    assert found[-1].isnan().all()
    assert torch.equal(found[:-1], plain.bias.expand(num_rows - 1, 8))


@pytest.mark.parametrize(("out_size", "gains"), [(512, False), (513, True)])
def test_maps_are_replaced_at_any_depth_and_small_fp32_ones_are_not_packed(out_size, gains):
    def block(**parts: nn.Module) -> nn.Module:
        return nn.ModuleDict({"map": linear(128, out_size), **parts})

    model = block(inner=nn.ModuleList([block()]))
    prepack(model)
    wanted = PrepackedLinear if gains and can_prepack(torch.float32) else BareLinear
    assert type(model.map) is type(model.inner[0].map) is wanted


@torch.inference_mode()
@pytest.mark.parametrize("affine", [True, False])
def test_a_norm_becomes_the_same_function(affine):
    norm = nn.LayerNorm(8, elementwise_affine=affine, eps=0.1)
    for weight in norm.parameters():
        nn.init.normal_(weight)
    model = nn.ModuleDict({"norm": norm})
    prepack(model)
    x = torch.randn(3, 8)
    assert torch.equal(model.norm(x), norm(x))
    assert not list(model.modules())[1:]


def test_parts_are_found_without_a_call_and_can_still_be_replaced():
    model = nn.ModuleDict({"map": nn.Linear(8, 8), "inner": nn.ModuleDict()})
    prepack(model)
    assert vars(model)["inner"] is model._modules["inner"]
    other = nn.ModuleDict()
    changed = with_part(with_part(model, "inner", other), "map", "no module")
    assert changed.inner is changed._modules["inner"] is other
    assert changed.map == "no module"
    assert model.inner is not other


def test_int8_is_refused_in_one_line_where_it_cannot_be_had(monkeypatch):
    monkeypatch.setattr(prepacked, "can_multiply_int8", lambda: False)
    with pytest.raises(ConfigError, match="int8 needs an x86 CPU"):
        prepack(nn.ModuleDict({"map": nn.Linear(8, 8)}), int8=True)
