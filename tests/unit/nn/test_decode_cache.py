"""Attention of the next tokens to all before them."""

import pytest
import torch

from transformer_mt.nn.attention import _attend_step


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("num_sentences", [1, 7, 8, 30])
def test_a_step_attends_as_softmax_of_scaled_products(num_sentences, masked):
    torch.manual_seed(1)
    q = torch.randn(num_sentences, 5, 2, 16).transpose(1, 2)
    keys, values = torch.randn(2, num_sentences, 2, 20, 16)[..., :11, :]
    bias = torch.zeros(num_sentences, 1, 5, 11)
    if masked:
        bias[:, :, :, 7:] = -torch.inf
    expected = ((q @ keys.mT) / 4 + bias).softmax(-1) @ values
    got = _attend_step(q, keys, values, bias if masked else None)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("num_kv_heads", [1, 2, 3, 6])
@pytest.mark.parametrize("bias_shape", [(3, 1, 1, 11), (3, 1, 5, 11), (1, 6, 5, 11), (3, 6, 1, 11)])
@pytest.mark.parametrize("num_copies", [1, 4])
def test_heads_that_share_keys_attend_as_with_copies(num_kv_heads, bias_shape, num_copies):
    torch.manual_seed(1)
    q = torch.randn(3 * num_copies, 6, 5, 16)
    keys, values = torch.randn(2, 3 * num_copies, num_kv_heads, 11, 16)
    bias = torch.randn(bias_shape).repeat(num_copies if bias_shape[0] > 1 else 1, 1, 1, 1)
    shared = 6 // num_kv_heads
    expected = _attend_step(
        q, keys.repeat_interleave(shared, 1), values.repeat_interleave(shared, 1), bias
    )
    torch.testing.assert_close(_attend_step(q, keys, values, bias), expected)
