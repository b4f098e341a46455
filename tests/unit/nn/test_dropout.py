import pytest
import torch

from transformer_mt.nn.dropout import Dropout, scaled_mask


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.001])
def test_share_and_scale_of_kept_elements_are_right(p: float) -> None:
    torch.manual_seed(1)
    x = torch.ones(1000, 1001)
    y = Dropout(p)(x)
    kept = y != 0
    deviation = (p * (1 - p) / x.numel()) ** 0.5
    assert (1 - kept.float().mean()).item() == pytest.approx(p, abs=5 * deviation + 2**-16)
    assert y[kept].unique().numel() == 1
    assert y[kept][0].item() == pytest.approx(1 / (1 - p), rel=2**-15)
    assert y.mean().item() == pytest.approx(1, abs=5 * deviation / (1 - p))


@pytest.mark.parametrize(("p", "rounded"), [(1e-9, 2**-16), (1 - 1e-9, 1 - 2**-16)])
def test_shares_near_none_and_all_are_rounded_to_what_can_be_drawn(
    p: float, rounded: float
) -> None:
    torch.manual_seed(1)
    y = Dropout(p)(torch.ones(1 << 20, requires_grad=True))
    assert 0 < (y == 0).sum() < y.numel()
    assert y.max().item() == pytest.approx(1 / (1 - rounded))


def test_under_autocast_the_residual_stays_in_fp32() -> None:
    x, y = torch.ones(40, 50), torch.ones(40, 50, dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        total = Dropout(0.1).add(x, y)
    assert total.dtype == torch.float32
    assert total.max().item() == pytest.approx(1 + 1 / 0.9, rel=1e-4)
    (grad,) = torch.autograd.grad(total.sum(), y)
    assert torch.equal(grad != 0, total != 1)


def test_elements_are_dropped_independently() -> None:
    torch.manual_seed(1)
    kept = (Dropout(0.25)(torch.ones(400, 401)) != 0).float() - 0.75
    for neighbour in (kept.roll(shift, dims=dim) for shift in (1, 2, 3, 4) for dim in (0, 1)):
        assert (kept * neighbour).mean().abs() < 5 * 0.25 * 0.75 / kept.numel() ** 0.5


def test_the_seed_decides_what_is_dropped() -> None:
    dropout, x = Dropout(0.3), torch.ones(33, 7)
    torch.manual_seed(5)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(5)
    assert torch.equal(dropout(x), first)
    assert not torch.equal(first, second)


def test_gradient_passes_where_values_pass() -> None:
    x = torch.randn(50, 9, requires_grad=True)
    y = Dropout(0.4)(x)
    y.sum().backward()
    assert torch.equal(x.grad * x, y)


def test_add_is_dropout_and_sum() -> None:
    dropout = Dropout(0.3)
    x, y = (torch.randn(20, 10, requires_grad=True) for _ in range(2))
    torch.manual_seed(2)
    together = dropout.add(x, y)
    torch.manual_seed(2)
    apart = x + dropout(y)
    torch.testing.assert_close(together, apart)
    grads = torch.autograd.grad(together.square().sum(), [x, y])
    torch.testing.assert_close(grads, torch.autograd.grad(apart.square().sum(), [x, y]))


@pytest.mark.parametrize("dropout", [Dropout(0.5).eval(), Dropout(0.0)])
def test_nothing_is_dropped_in_evaluation_or_at_zero(dropout: Dropout) -> None:
    x = torch.randn(9, 3)
    assert dropout(x) is x
    assert torch.equal(dropout.add(x, x), x + x)
    assert not dropout.active


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 3, 5), (0, 4)])
def test_any_shape_and_type_will_do(shape: tuple[int, ...]) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        mask = scaled_mask(torch.ones(shape, dtype=dtype), 0.5)
        assert mask.shape == shape
        assert mask.dtype == dtype
        assert set(mask.flatten().tolist()) <= {0.0, 2.0}


@pytest.mark.parametrize("p", [-0.1, 1.0])
def test_impossible_shares_are_refused(p: float) -> None:
    with pytest.raises(ValueError, match=str(p)):
        Dropout(p)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", [0.001, 0.1, 0.3, 0.999])
def test_the_type_of_the_numbers_does_not_change_what_is_dropped(
    p: float, dtype: torch.dtype
) -> None:
    torch.manual_seed(3)
    expected = scaled_mask(torch.ones(100, 101), p)
    torch.manual_seed(3)
    mask = scaled_mask(torch.ones(100, 101, dtype=dtype), p)
    torch.testing.assert_close(mask, expected.to(dtype))
