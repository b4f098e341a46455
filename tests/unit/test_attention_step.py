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
