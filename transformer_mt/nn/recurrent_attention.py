"""Attention of recurrent decoders: one head that looks at all of the source.

Letters: B sentences, N packed tokens, S source length, T target length or hypotheses, D d_model.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from transformer_mt.nn.kernels.length_groups import Blocks, length_groups
from transformer_mt.nn.masks import as_bias
from transformer_mt.nn.padding import pack, unpack
from transformer_mt.packing import Segments


class Source(NamedTuple):
    """What can be attended to, in a padded block.

    Attributes:
        keys: (B, S, D).
        values: (B, S, D): the encoder's states.
        bias: (B, 1, S): 0 for a real token, -inf for padding.
    """

    keys: Tensor
    values: Tensor
    bias: Tensor

    @classmethod
    def of(cls, keys: Tensor, values: Tensor, segments: Segments) -> "Source":
        """Join padded keys and values with the bias that hides their padding."""
        return cls(keys, values, as_bias(segments.padding_mask()[:, None], keys.dtype))

    def select(self, sentences: Tensor) -> "Source":
        """Return copies of the given sentences (B',)."""
        sentences = sentences.to(self.keys.device, non_blocking=True)
        return Source(*(part.index_select(0, sentences) for part in self))

    def first(self, num_sentences: int) -> "Source":
        """Return the first sentences."""
        return Source(*(part[:num_sentences] for part in self))


class DotScore(nn.Module):
    """Score by the product of query and key, which is the encoder's state itself.

    Source: Luong et al. 2015, equation 8, `dot`, times `scale`.
    """

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def keys(self, states: Tensor) -> Tensor:
        """Return the keys (.., D) of states (.., D)."""
        return states

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the scores (B, T, S) of queries (B, T, D) and keys (B, S, D)."""
        return (queries * self.scale) @ keys.transpose(1, 2)


class GeneralScore(nn.Module):
    """Score by the product of query and key, with a matrix between them.

    Source: Luong et al. 2015, equation 8, `general`.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.key = nn.Linear(d_model, d_model, bias=False)

    def keys(self, states: Tensor) -> Tensor:
        """Return the keys (.., D) of states (.., D)."""
        keys: Tensor = self.key(states)
        return keys

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the scores (B, T, S) of queries (B, T, D) and keys (B, S, D)."""
        return queries @ keys.transpose(1, 2)


class AdditiveScore(nn.Module):
    """Score by a layer that sees query and key: v^T tanh(W q + U k).

    Source: Bahdanau et al. 2015, appendix A.1.2. differs: W has a bias.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model, bias=False)
        self.output = nn.Linear(d_model, 1, bias=False)

    def keys(self, states: Tensor) -> Tensor:
        """Return the keys (.., D) of states (.., D)."""
        keys: Tensor = self.key(states)
        return keys

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the scores (B, T, S) of queries (B, T, D) and keys (B, S, D)."""
        inner = torch.tanh(self.query(queries)[:, :, None] + keys[:, None])
        scores: Tensor = self.output(inner)[..., 0]
        return scores


SCORES: dict[str, Callable[[int], "DotScore | GeneralScore | AdditiveScore"]] = {
    "dot": lambda d_model: DotScore(),
    "scaled_dot": lambda d_model: DotScore(d_model**-0.5),
    "general": GeneralScore,
    "additive": AdditiveScore,
}


class GlobalAttention(nn.Module):
    """Mixes the source by scores, and combines the mixture with the state of the decoder.

    Source: Luong et al. 2015, section 3.1 and equation 5: tanh(W [context; state]).
    """

    def __init__(self, d_model: int, score: "DotScore | GeneralScore | AdditiveScore") -> None:
        super().__init__()
        self.score = score
        self.output = nn.Linear(2 * d_model, d_model, bias=False)

    def source(self, states: Tensor, segments: Segments) -> Source:
        """Lay out packed states of the encoder (N, D), once for all steps."""
        keys, values = (unpack(x, segments) for x in (self.score.keys(states), states))
        return Source.of(keys, values, segments)

    def weights(self, queries: Tensor, source: Source) -> Tensor:
        """Return the weights (B, T, S) of attention from (B, T, D); rows sum to 1."""
        scores: Tensor = self.score(queries, source.keys) + source.bias
        return scores.softmax(dim=-1)

    def context(self, queries: Tensor, source: Source) -> Tensor:
        """Return the mixtures (B, T, D) that are attended to from (B, T, D)."""
        return self.weights(queries, source).to(source.values.dtype) @ source.values

    def join(self, queries: Tensor, context: Tensor) -> Tensor:
        """Return what states (.., D) become with their contexts (.., D)."""
        joined: Tensor = self.output(torch.cat([context, queries], dim=-1)).tanh()
        return joined

    def attend(self, queries: Tensor, source: Source) -> Tensor:
        """Return what states (B, T, D) become."""
        return self.join(queries, self.context(queries, source))

    def forward(
        self, queries: Tensor, segments: Segments, states: Tensor, src_segments: Segments
    ) -> Tensor:
        """Attend from packed states (Nt, D) to those of the encoder (Ns, D): (Nt, D)."""
        keys = self.score.keys(states)
        if queries.device.type != "cpu":  # more padding costs less there than knowing the lengths
            keys, values = unpack(keys, src_segments), unpack(states, src_segments)
            source = Source.of(keys, values, src_segments)
            context = self.context(unpack(queries, segments), source)
            return self.join(queries, pack(context, segments))
        groups = length_groups(segments, src_segments)
        here, there = Blocks.of(segments, groups), Blocks.of(src_segments, groups)
        sides = here.split(queries), there.split(keys), there.split(states)
        blocks = zip(*sides, there.segments, strict=True)
        contexts = [self.context(q, Source.of(k, v, part)) for q, k, v, part in blocks]
        return self.join(queries, here.join(contexts))
