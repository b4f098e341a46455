"""Block-sparse attention by a pattern, on any device.

The rules of a pattern arrange a sentence in blocks of those that may see each other: see
`nn.patterns`. Scores of all rules of a head go through one softmax, so the result is that of a
dense mask. They are computed for a few sentences and heads at a time, and again in the backward
pass: only queries, keys and values are kept.

Letters: B sentences, N packed tokens, H heads, n tokens of a sentence with padding, K head size,
G blocks, m queries and s keys of a block.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels.length_groups import group_by_length
from transformer_mt.nn.padding import pack, take_rows, unpack
from transformer_mt.nn.patterns import Pattern, PatternRule, any_of
from transformer_mt.packing import Segments

# Scores that are computed at once: on the CPU they should stay in its caches.
_SCORES_AT_ONCE = {"cpu": 1 << 20}
_SCORES_AT_ONCE_ELSEWHERE = 1 << 26

# Arranging costs: with fewer keys left out, a dense mask is faster.
_WORTHWHILE = 5


def is_worthwhile(pattern: Pattern, length: int, *, causal: bool) -> bool:
    """Return whether blocks are faster than a dense mask for sentences of a length."""
    return _WORTHWHILE * num_keys(pattern, length, causal=causal) < length


def num_keys(pattern: Pattern, length: int, *, causal: bool) -> float:
    """Return how many keys each query meets, a mean over heads."""
    places = torch.arange(_rounded(length, pattern.block))[None]
    met = [rule.keys(places, causal=causal).shape[2] for rules in pattern.rules for rule in rules]
    return sum(met) / len(pattern.rules)


@dataclass(frozen=True)
class BlockGroup:
    """Sentences that are attended together.

    Attributes:
        segments: Where they lie among the tokens of the plan; `max_length` is n.
        biases: For each set of rules and each of its rules (B or 1, G, m, s): 0 where the query
            sees the key by this rule and by none before, else -inf.
    """

    segments: Segments
    biases: list[list[Tensor]]


@dataclass(frozen=True)
class SparsePlan:
    """How a batch is attended; made once for all layers of a pass.

    Attributes:
        groups: All sentences, each in one group.
        order: Rows of the tokens (N,), a group after the other; None: they lie so already.
        places: Where each token lies in that order.
    """

    groups: list[BlockGroup]
    order: Tensor | None = None
    places: Tensor | None = None


def make_sparse_plan(
    segments: Segments, pattern: Pattern, *, causal: bool, by_length: bool
) -> SparsePlan:
    """Decide which sentences are attended together, and who sees whom.

    Args:
        segments: Where the sentences lie.
        pattern: Which keys a query sees.
        causal: Whether it sees only keys up to its own position.
        by_length: Whether to group sentences of similar length, which reads the lengths.
    """
    if not by_length or segments.num_sentences == 1:
        longest = _rounded(segments.max_length, pattern.block)
        return SparsePlan([_group(segments.lengths, segments.num_tokens, longest, pattern, causal)])
    lengths = segments.lengths.tolist()
    groups = group_by_length(lengths, lengths)
    ranks = torch.empty_like(segments.lengths)
    ranks[[s for group in groups for s in group]] = torch.arange(len(lengths))
    order = ranks.repeat_interleave(segments.lengths).argsort(stable=True)
    return SparsePlan(
        [
            _group(
                segments.lengths[group],
                sum(lengths[s] for s in group),
                _rounded(lengths[group[0]], pattern.block),
                pattern,
                causal,
            )
            for group in groups
        ],
        order,
        torch.empty_like(order).scatter_(0, order, torch.arange(len(order))),
    )


def _group(
    lengths: Tensor, num_tokens: int, longest: int, pattern: Pattern, causal: bool
) -> BlockGroup:
    segments = Segments.from_lengths(lengths, max_length=longest, num_tokens=num_tokens)
    biases = [
        [_bias(rules[: i + 1], lengths, longest=longest, causal=causal) for i in range(len(rules))]
        for rules in pattern.rules
    ]
    return BlockGroup(segments, biases)


def _bias(rules: tuple[PatternRule, ...], lengths: Tensor, *, longest: int, causal: bool) -> Tensor:
    """Return who sees whom by the last of some rules and by none before."""
    *before, rule = rules
    places = torch.arange(longest, device=lengths.device)[None]
    q = rule.queries(places)[..., None]
    k = rule.keys(places, causal=causal, fill=-1)[..., None, :]
    seen = rule(q, k) & (k >= 0)
    if before:
        seen &= ~any_of(tuple(before), q, k)
    if causal:  # hides padding, too: it is on the right
        seen &= k <= q
    else:  # padding sees itself, as no row may see nothing
        seen = seen & ((k < lengths[:, None, None, None]) | (k == q))
    return torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, -math.inf)


def attend_sparsely(
    qkv: Tensor, plan: SparsePlan, pattern: Pattern, *, causal: bool, dropout: Dropout
) -> Tensor:
    """Attend in packed sentences (N, 3, H, K): (N, H, K); see `nn.kernels.dispatch.attend`."""
    sizes = [group.segments.num_tokens for group in plan.groups]
    num_tail_rows = len(qkv) - sum(sizes)
    # As in `nn.kernels.cpu_attention`: bf16 would be neither exact nor fast here.
    tokens = qkv[: sum(sizes)].to(torch.promote_types(qkv.dtype, torch.float32))
    if plan.order is not None:
        tokens = take_rows(tokens, plan.order)
    mixed = []
    with torch.autocast("cpu" if qkv.is_meta else qkv.device.type, enabled=False):
        for part, group in zip(torch.split(tokens, sizes), plan.groups, strict=True):
            block = unpack(part, group.segments).permute(2, 0, 3, 1, 4)
            of_group = _attend_in_group(block, group, pattern, causal=causal, dropout=dropout)
            mixed.append(pack(of_group.transpose(1, 2), group.segments))
    rows = torch.cat(mixed)
    if plan.places is not None:
        rows = take_rows(rows, plan.places)
    if num_tail_rows:
        rows = F.pad(rows, (0, 0, 0, 0, 0, num_tail_rows))
    return rows.to(qkv.dtype)


def _attend_in_group(
    qkv: Tensor, group: BlockGroup, pattern: Pattern, *, causal: bool, dropout: Dropout
) -> Tensor:
    """Attend in padded sentences (3, B, H, n, K): (B, H, n, K)."""
    num_heads = qkv.shape[2]
    at_once = _SCORES_AT_ONCE.get(qkv.device.type, _SCORES_AT_ONCE_ELSEWHERE)
    of_sets = []
    heads_of_sets = torch.split(qkv, num_heads // len(pattern.rules), dim=2)
    for rules, biases, heads in zip(pattern.rules, group.biases, heads_of_sets, strict=True):
        # This number of heads at once, and, if these are all, of sentences.
        rows = max(1, at_once // sum(bias[0].numel() for bias in biases))
        num_at_once = max(1, rows // heads.shape[2])
        of_sentences = []
        for first, sentences in enumerate(torch.split(heads, num_at_once, dim=1)):
            own = [
                bias if len(bias) == 1 else bias[first * num_at_once : (first + 1) * num_at_once]
                for bias in biases
            ]
            of_heads = [
                _computed_again(part, rules, own, causal=causal, dropout=dropout)
                for part in torch.split(sentences, rows, dim=2)
            ]
            of_sentences.append(torch.cat(of_heads, dim=1))
        of_sets.append(torch.cat(of_sentences))
    return torch.cat(of_sets, dim=1)


def _computed_again(
    qkv: Tensor,
    rules: tuple[PatternRule, ...],
    biases: list[Tensor],
    *,
    causal: bool,
    dropout: Dropout,
) -> Tensor:
    """Do as `_mix`, without keeping scores for the backward pass."""
    if not (torch.is_grad_enabled() and qkv.requires_grad):
        return _mix(qkv, rules, biases, causal, dropout)
    mixed: Tensor = checkpoint(
        _mix,
        qkv,
        rules,
        biases,
        causal,
        dropout,
        use_reentrant=False,
        preserve_rng_state=dropout.active,
    )
    return mixed


def _mix(
    qkv: Tensor,
    rules: tuple[PatternRule, ...],
    biases: list[Tensor],
    causal: bool,
    dropout: Dropout,
) -> Tensor:
    """Attend in sentences (3, B, H, n, K) by the rules of their heads: (B, H, n, K)."""
    num_sentences, num_heads, _, head_dim = qkv.shape[1:]
    q, k, v = qkv.flatten(1, 2)
    q = q * head_dim**-0.5
    scores = []
    for rule, bias in zip(rules, biases, strict=True):
        of_rule = rule.queries(q) @ rule.keys(k, causal=causal).transpose(2, 3)
        of_rule.view(num_sentences, num_heads, *of_rule.shape[1:]).add_(bias[:, None])
        scores.append(rule.in_order(of_rule))
    weights = dropout(torch.cat(scores, dim=2).softmax(dim=2))
    mixed = torch.zeros_like(v)
    parts = torch.split(weights, [x.shape[2] for x in scores], dim=2)
    for rule, part in zip(rules, parts, strict=True):
        mixed = mixed + rule.in_order(rule.queries(part) @ rule.keys(v, causal=causal))
    return mixed.view(num_sentences, num_heads, *mixed.shape[1:])


def _rounded(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple
