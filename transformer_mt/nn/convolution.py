"""Gated convolutions over packed sentences, which never reach beyond a sentence.

Source: Gehring et al. 2017, "Convolutional Sequence to Sequence Learning".

Letters: N packed tokens, B sentences, S source length, W beam, D d_model, K tokens that a
convolution sees.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.linear import StackedLinear
from transformer_mt.nn.masks import Attend
from transformer_mt.nn.padding import unpack
from transformer_mt.nn.recurrent_attention import Source
from transformer_mt.packing import Segments

# Half of the variance of a sum of two is that of one.
_OF_SUM = 0.5**0.5


@dataclass(frozen=True)
class Windows:
    """Which tokens each token of packed sentences sees.

    Attributes:
        offsets: Distances, from the leftmost.
        inside: For each of them, whether that token is in the same sentence (N, 1).
    """

    offsets: range
    inside: list[Tensor]

    @classmethod
    def of(cls, segments: Segments, offsets: range) -> "Windows":
        """Find the borders of sentences."""
        positions = segments.positions
        lengths = segments.lengths.repeat_interleave(
            segments.lengths, output_size=segments.num_tokens
        )
        ends = F.pad(lengths, (0, segments.num_tail_rows))
        places = (positions + offset for offset in offsets)
        return cls(offsets, [((place >= 0) & (place < ends))[:, None] for place in places])

    def gather(self, x: Tensor) -> Tensor:
        """Return for each of (N, D) the tokens that it sees side by side (N, K * D), or zeros."""
        seen = [
            x.roll(-offset, 0) * inside.to(x.dtype) if offset else x
            for offset, inside in zip(self.offsets, self.inside, strict=True)
        ]
        return torch.cat(seen, dim=1)


class GatedConvolution(nn.Module):
    """A convolution with gated linear units: half of the channels gate the other half.

    Source: Gehring et al. 2017, section 3.2; gated linear units of Dauphin et al. 2017.
    """

    def __init__(self, d_model: int, kernel_size: int, *, dropout: float) -> None:
        super().__init__()
        self.convolution = StackedLinear(kernel_size * d_model, 2 * d_model, num_projections=2)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, windows: Windows) -> Tensor:
        """Map packed tokens (N, D) to (N, D)."""
        return F.glu(self.convolution(windows.gather(self.dropout(x))))

    def step(self, window: Tensor) -> Tensor:
        """Map what the next token of each hypothesis sees (B, W, K, D) to (B, W, D)."""
        return F.glu(self.convolution(window.flatten(-2)))


class ConvolutionalEncoderLayer(nn.Module):
    """A gated convolution, and the sum with its input."""

    def __init__(self, convolution: GatedConvolution) -> None:
        super().__init__()
        self.block = convolution

    def forward(self, x: Tensor, windows: Windows) -> Tensor:
        """Map packed tokens (N, D) to (N, D)."""
        mixed: Tensor = (self.block(x, windows) + x) * _OF_SUM
        return mixed


class ConvolutionalAttention(nn.Module):
    """One head that looks for the source from a layer's output and the target's embedding.

    Source: Gehring et al. 2017, section 3.3, equations 1 and 2, where keys are the encoder's output
    and values also hold the embeddings of the source.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_model, d_model)
        self._no_dropout = Dropout(0.0)

    def queries(self, x: Tensor, embedded: Tensor) -> Tensor:
        """Return the queries of outputs and embeddings of target tokens, all (.., D)."""
        queries: Tensor = (self.query(x) + embedded) * _OF_SUM
        return queries

    def forward(self, x: Tensor, embedded: Tensor, memory: Tensor, attend: Attend) -> Tensor:
        """Attend from packed tokens (Nt, D) to keys and values side by side (Ns, 2D): (Nt, D)."""
        d_model = x.shape[1]
        # Products of queries and keys are not divided by sqrt(D) in this model.
        queries = self.queries(x, embedded) * d_model**0.5
        kv = memory.view(-1, 2, 1, d_model)
        mixed = attend((queries.view(-1, 1, 1, d_model).to(kv.dtype), kv), dropout=self._no_dropout)
        return mixed[:, 0]

    def weights(self, x: Tensor, embedded: Tensor, source: Source) -> Tensor:
        """Return the weights (B, T, S) of attention from (B, T, D)."""
        scores = self.queries(x, embedded) @ source.keys.transpose(1, 2)
        return (scores + source.bias).softmax(dim=-1)

    def step(self, x: Tensor, embedded: Tensor, source: Source) -> Tensor:
        """Attend from the next token of each hypothesis (B, W, D)."""
        return self.weights(x, embedded, source) @ source.values


class ConvolutionalDecoderLayer(nn.Module):
    """A gated convolution, attention to the source, and sums."""

    def __init__(self, convolution: GatedConvolution, attention: ConvolutionalAttention) -> None:
        super().__init__()
        self.block = convolution
        self.attention = attention

    def forward(
        self, x: Tensor, embedded: Tensor, windows: Windows, *, memory: Tensor, attend: Attend
    ) -> Tensor:
        """Map packed tokens (Nt, D) to (Nt, D).

        Args:
            x: What the layer below gave.
            embedded: The embeddings of the target.
            windows: What each token sees: nothing after it.
            memory: Keys and values of the source (Ns, 2D).
            attend: Attention to the source.
        """
        y = self.block(x, windows)
        return self._sums(x, y, self.attention(y, embedded, memory, attend))

    def step(self, x: Tensor, embedded: Tensor, window: Tensor, source: Source) -> Tensor:
        """Map the next token of each hypothesis (B, W, D), which sees (B, W, K, D)."""
        y = self.block.step(window)
        return self._sums(x, y, self.attention.step(y, embedded, source))

    def _sums(self, x: Tensor, y: Tensor, context: Tensor) -> Tensor:
        return ((y + context) * _OF_SUM + x) * _OF_SUM


def source_of(memory: Tensor, segments: Segments) -> Source:
    """Lay out keys and values of the source (Ns, 2D), once for all layers and steps."""
    keys, values = unpack(memory, segments).chunk(2, dim=-1)
    return Source.of(keys, values, segments)
