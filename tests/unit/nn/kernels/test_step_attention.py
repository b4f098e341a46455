"""A decoding step's attention against equation 1."""

import pytest
import torch
from torch import Tensor

from transformer_mt.nn.attention import attention
from transformer_mt.nn.kernels.step_attention import attend_step


def rows(mixed: Tensor) -> Tensor:
    """The heads of (B, H, W, K) side by side: (B * W, H * K)."""
    return mixed.transpose(1, 2).flatten(2).flatten(0, 1)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("num_sentences", [1, 7, 8, 30])
def test_a_step_is_scaled_dot_product_attention(num_sentences, masked):
    torch.manual_seed(1)
    q = torch.randn(num_sentences, 5, 2, 16).transpose(1, 2)
    keys, values = torch.randn(2, num_sentences, 2, 20, 16)[..., :11, :]
    bias = torch.zeros(num_sentences, 1, 5, 11)
    if masked:
        bias[:, :, :, 7:] = -torch.inf
    got = attend_step(q, keys, values, bias if masked else None)
    torch.testing.assert_close(got, rows(attention(q, keys, values, bias)))


@pytest.mark.parametrize("num_kv_heads", [1, 2, 3, 6])
@pytest.mark.parametrize("bias_shape", [(3, 1, 1, 11), (3, 1, 5, 11), (1, 6, 5, 11), (3, 6, 1, 11)])
@pytest.mark.parametrize("num_copies", [1, 4])
def test_heads_that_share_keys_attend_as_with_copies(num_kv_heads, bias_shape, num_copies):
    torch.manual_seed(1)
    q = torch.randn(3 * num_copies, 6, 5, 16)
    keys, values = torch.randn(2, 3 * num_copies, num_kv_heads, 11, 16)
    bias = torch.randn(bias_shape).repeat(num_copies if bias_shape[0] > 1 else 1, 1, 1, 1)
    k, v = (x.repeat_interleave(6 // num_kv_heads, 1) for x in (keys, values))
    torch.testing.assert_close(attend_step(q, keys, values, bias), rows(attention(q, k, v, bias)))
