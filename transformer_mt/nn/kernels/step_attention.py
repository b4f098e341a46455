"""Attention of a decoding step: few queries, and keys and values from a KV cache.

Letters: B sentences, W beam, H heads, G heads of keys and values, L tokens, K head size.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

# With at least this many sentences, two products and a softmax are faster on the CPU.
_MANY_SENTENCES = 8


def attend_step(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
    """Mix cached values for the next token of each hypothesis.

    Args:
        q: Queries (B, H, W, K).
        keys: (B, G, L, K).
        values: (B, G, L, K).
        bias: Added to the scores; broadcasts to (B, H, W, L).

    Returns:
        The mixtures of all heads side by side (B * W, H * K).
    """
    num_sentences, num_heads, num_queries, head_dim = q.shape
    num_groups = keys.shape[1]
    if num_groups < num_heads:  # heads that share keys become more queries of one head
        num_rows = num_heads // num_groups * num_queries
        q = q.reshape(num_sentences, num_groups, num_rows, head_dim)
        if bias is not None and bias.shape[1] > 1:
            bias = bias.expand(-1, -1, num_queries, -1)
            bias = bias.reshape(len(bias), num_groups, num_rows, -1)
        elif bias is not None and bias.shape[2] > 1:
            bias = bias.repeat(1, 1, num_heads // num_groups, 1)
    mixed = _attend(q, keys, values, bias)
    if num_groups < num_heads:
        mixed = mixed.reshape(num_sentences, num_heads, num_queries, head_dim)
    return mixed.transpose(1, 2).reshape(-1, num_heads * head_dim)


def _attend(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
    """Attend where each head has keys of its own."""
    many = q.shape[0] >= _MANY_SENTENCES
    if not (many and q.device.type == "cpu" and q.dtype == torch.float32):
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=bias)
    # Made for many queries, torch's kernel takes 1.5 times as long. It keeps its place in bf16,
    # where scores and weights rounded to bf16 would cost 0.3 BLEU.
    scores = (q * q.shape[-1] ** -0.5) @ keys.transpose(2, 3)
    if bias is not None:
        scores += bias
    mixed: Tensor = scores.softmax(-1) @ values
    return mixed
