"""Coverage penalty: finished hypotheses ranked by how much of the source they attended to."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from transformer_mt.models.interfaces import Decoder, Memory
from transformer_mt.packing import pack_tokens
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.text.special_ids import BOS_ID


def coverage_of(weights: Tensor, length: int, source_length: int) -> float:
    """Return the sum of log(min(attention that a source token gets, 1)) over the source.

    Source: Wu et al. 2016, equation 14, without beta.

    Args:
        weights: Of attention from target to source tokens (T, S).
        length: Target tokens that count, eos included.
        source_length: Source tokens that count.
    """
    attended = weights[:length, :source_length].float().sum(0)
    return float(attended.clamp(max=1.0).clamp_min(torch.finfo(torch.float32).tiny).log().sum())


@torch.inference_mode()
def rank_by_coverage(
    decoder: Decoder,
    memory: Memory,
    found: Sequence[Sequence[Hypothesis]],
    *,
    strength: float,
) -> list[list[Hypothesis]]:
    """Add the coverage penalty to the scores of hypotheses and sort them again.

    Attention is that of the last layer, the mean of its heads. The penalty is 0 at most, and not
    known before a hypothesis is complete; so the search needs to return all of its beam.

    Args:
        decoder: The model.
        memory: The encoder's output for B sentences.
        found: Their hypotheses.
        strength: The factor beta, at least 0.
    """
    source_lengths = memory.segments.lengths.tolist()
    results: list[list[Hypothesis]] = [[] for _ in found]
    for rank in range(max(map(len, found), default=0)):
        targets = [[BOS_ID, *(own[rank].tokens if rank < len(own) else [])] for own in found]
        tgt_in, segments = pack_tokens(targets, memory.states.device)
        attention = decoder.source_attention(tgt_in, segments, memory)[:, -1].mean(1)
        for line, own in enumerate(found):
            if rank < len(own):
                coverage = coverage_of(attention[line], len(targets[line]), source_lengths[line])
                score = own[rank].score + strength * coverage
                results[line].append(replace(own[rank], score=score))
    return [sorted(own, key=lambda hypothesis: -hypothesis.score) for own in results]
