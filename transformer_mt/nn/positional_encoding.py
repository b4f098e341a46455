"""Positional encodings: sinusoidal, learned, rotary, relative, ALiBi.

An encoding is a module with three hooks; a new one overrides those it needs:

- `embed` adds to the embeddings, once, below the first layer;
- `rotate` changes queries and keys in each self-attention;
- `bias` adds to the scores in each self-attention.

With the last two, only the distance of two tokens counts, wherever they stand.

Letters: B sentences, H heads, D d_model, K head size, T queries, S keys.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.errors import DataError
from transformer_mt.nn.sinusoids import sinusoid_table

Bias = Callable[[Tensor, Tensor, Tensor], Tensor]


class PositionalEncoding(nn.Module):
    """Base of all positional encodings; by itself it adds nothing.

    Attributes:
        max_length: Longest sentence it can take in tokens; None = any.
        bias: What self-attention adds to its scores, given queries (B, H, T, K), their places (T,)
            and those of the keys (S,): broadcastable to (B, H, T, S). None = nothing.
    """

    max_length: int | None = None
    bias: Bias | None = None

    def embed(self, x: Tensor, positions: Tensor, *, longest: int) -> Tensor:
        """Add positions to embeddings.

        Args:
            x: Embeddings (.., D).
            positions: Place of each token in its sentence, from 0, of the shape of `x` without D,
                or one that broadcasts to it.
            longest: Greater than every position.

        Raises:
            DataError: If `longest` is greater than `max_length`.
        """
        return x

    def rotate(self, qkv: Tensor, positions: Tensor) -> Tensor:
        """Turn queries and keys of a self-attention by their positions.

        Args:
            qkv: Queries, keys and values (.., 3, H, K); values must stay as they are.
            positions: Place of each token in its sentence (..), or one that broadcasts to it.
        """
        return qkv


class SinusoidalEncoding(PositionalEncoding):
    """Fixed sines and cosines of the position, computed for as long a sentence as comes.

    Source: Vaswani et al. 2017, section 3.5. differs: all sines come first, then all cosines, as in
    tensor2tensor and Marian, so that models can be exported to Marian's classes. The paper's
    formula interleaves them: the same channels in another order, which training cannot notice.
    """

    def __init__(self, d_model: int, *, offset: int = 0, endpoint: bool = False) -> None:
        super().__init__()
        self.d_model, self.offset, self.endpoint = d_model, offset, endpoint
        # No buffer: tables are cheap to compute and have no place among the weights.
        self._table = torch.empty(0, d_model)

    def embed(self, x: Tensor, positions: Tensor, *, longest: int) -> Tensor:
        """Add the sinusoids of `positions`."""
        table = self._table
        if table.shape[0] < longest or table.device != x.device or table.dtype != x.dtype:
            rows = max(longest, 2 * table.shape[0], 128)
            self._table = table = sinusoids(
                rows, self.d_model, offset=self.offset, endpoint=self.endpoint
            ).to(x)
        return x + F.embedding(positions, table)


class LearnedEncoding(PositionalEncoding):
    """A trained vector for each position.

    Source: Gehring et al. 2017, section 3.1.
    """

    def __init__(self, max_length: int, d_model: int) -> None:
        super().__init__()
        self.max_length: int = max_length
        self.weight = nn.Parameter(torch.empty(max_length, d_model))

    def embed(self, x: Tensor, positions: Tensor, *, longest: int) -> Tensor:
        """Add the vectors of `positions`."""
        check_length(longest, self.max_length)
        return x + F.embedding(positions, self.weight)


class RowColumnEncoding(PositionalEncoding):
    """A trained vector for each row and each column of the sentence, written in lines of `width`.

    Source: Child et al. 2019, section 5.3, for text: the width is the stride of the pattern.
    """

    def __init__(self, max_length: int, width: int, d_model: int) -> None:
        super().__init__()
        self.max_length: int = max_length
        num_rows = -(-max_length // width)
        self.rows = nn.Parameter(torch.empty(num_rows, d_model))
        self.columns = nn.Parameter(torch.empty(width, d_model))

    def embed(self, x: Tensor, positions: Tensor, *, longest: int) -> Tensor:
        """Add the vectors of row and column of `positions`."""
        check_length(longest, self.max_length)
        width = len(self.columns)
        rows = F.embedding(positions // width, self.rows)
        return x + rows + F.embedding(positions % width, self.columns)


def check_length(longest: int, max_length: int) -> None:
    """Refuse a sentence that has more tokens than there are learned positions."""
    if longest > max_length:
        raise DataError(
            f"a sentence of {longest} tokens, but the model has learned positions for "
            f"{max_length}: drop or split it, or train with a larger model.positions.max_length"
        )


def sinusoids(length: int, d_model: int, *, offset: int = 0, endpoint: bool = False) -> Tensor:
    """Return the table of `nn.sinusoids` as a tensor (length, D), float32."""
    return torch.from_numpy(sinusoid_table(length, d_model, offset=offset, endpoint=endpoint))


class RotaryEncoding(PositionalEncoding):
    """Turns pairs of channels of queries and keys by angles that grow with the position.

    Source: Su et al. 2021, equation 34. differs: channel i is paired with channel i + K/2 instead
    of its neighbour, as most programs do: the same channels in another order.
    """

    def __init__(self, head_dim: int, *, base: float = 10_000.0) -> None:
        super().__init__()
        if head_dim % 2:
            raise ValueError(f"head_dim must be even, got {head_dim}")
        self.head_dim, self.base = head_dim, base
        # No buffers: tables are cheap to compute and have no place among the weights.
        self._cos, self._sin = torch.empty(0, head_dim // 2), torch.empty(0, head_dim // 2)
        # What was looked up last: places, kind, cosines and sines.
        self._last: tuple[Tensor, tuple[torch.dtype, bool], tuple[Tensor, Tensor]] | None = None

    def embed(self, x: Tensor, positions: Tensor, *, longest: int) -> Tensor:
        """Leave embeddings as they are, and make room in the tables for `longest` positions."""
        if self._cos.shape[0] < longest or self._cos.device != x.device:
            rows = max(longest, 2 * self._cos.shape[0], 128)
            exponents = torch.arange(0, self.head_dim, 2, dtype=torch.float64) / self.head_dim
            angles = torch.arange(rows, dtype=torch.float64)[:, None] * self.base**-exponents
            self._cos = angles.cos().to(x.device, torch.float32)
            self._sin = angles.sin().to(x.device, torch.float32)
        return x

    def rotate(self, qkv: Tensor, positions: Tensor) -> Tensor:
        """Turn queries and keys (.., 3, H, K) at `positions` (..); in place in inference."""
        cos, sin = self._turns(positions, qkv.dtype)
        first, second = qkv[..., :2, :, :].chunk(2, dim=-1)
        # Compilers make one operator of it in any case, and fail where an input is written to.
        if torch.compiler.is_compiling() or not qkv.is_inference():
            turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
            return torch.cat([turned, qkv[..., 2:, :, :]], dim=-3)
        turned = torch.addcmul(first * cos, second, sin, value=-1)
        second.mul_(cos).addcmul_(first, sin)
        first.copy_(turned)
        return qkv

    def _turns(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cosines and sines (.., 1, 1, K/2); all layers of a pass ask for the same ones."""
        if torch.compiler.is_compiling():  # compiled layers must not look at what changes
            return self._looked_up(positions, dtype)
        kind = dtype, torch.is_inference_mode_enabled()
        if self._last is None or self._last[0] is not positions or self._last[1] != kind:
            self._last = positions, kind, self._looked_up(positions, dtype)
        return self._last[2]

    def _looked_up(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        cos, sin = (
            F.embedding(positions, table).to(dtype)[..., None, None, :]
            for table in (self._cos, self._sin)
        )
        return cos, sin


class RelativeEncoding(PositionalEncoding):
    """A trained vector for each distance, which meets queries as one more key.

    Source: Shaw et al. 2018, section 3.2, equation 4. differs: none for values, which changed
    nothing in their table 3; all layers of a side share the vectors.
    """

    def __init__(self, head_dim: int, *, max_distance: int = 16) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.keys = nn.Parameter(torch.empty(2 * max_distance + 1, head_dim))

    def bias(self, q: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """Return (B, H, T, S): products of queries (B, H, T, K) with the vectors of distances."""
        distance = k_positions - q_positions[:, None]
        index = distance.clamp(-self.max_distance, self.max_distance) + self.max_distance
        products = q @ self.keys.t().to(q.dtype) * q.shape[-1] ** -0.5
        of_keys: Tensor = products.gather(-1, index.expand(*q.shape[:2], *index.shape))
        return of_keys


class RelativeBiasEncoding(PositionalEncoding):
    """A trained number for each head and range of distances, added to scores.

    Source: Raffel et al. 2020 (T5), section 2.1. differs: scores are divided by sqrt(K), as in the
    rest of this program.
    """

    def __init__(
        self,
        num_heads: int,
        *,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool,
    ) -> None:
        super().__init__()
        self.max_distance, self.bidirectional = max_distance, bidirectional
        self.bucket_bias = nn.Parameter(torch.empty(num_buckets, num_heads))

    def bias(self, q: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """Return (1, H, T, S)."""
        buckets = distance_buckets(
            k_positions - q_positions[:, None],
            num_buckets=self.bucket_bias.shape[0],
            max_distance=self.max_distance,
            bidirectional=self.bidirectional,
        )
        return F.embedding(buckets, self.bucket_bias).permute(2, 0, 1)[None].to(q.dtype)


def distance_buckets(
    distance: Tensor, *, num_buckets: int, max_distance: int, bidirectional: bool
) -> Tensor:
    """Number the range that each distance (key minus query) falls into.

    Half of the ranges hold one distance each, the others grow geometrically up to `max_distance`;
    all beyond share the last. Where keys may lie ahead, each direction has half of the ranges.

    Source: Raffel et al. 2020, as in their Mesh TensorFlow program.
    """
    bucket = torch.zeros_like(distance)
    if bidirectional:
        num_buckets //= 2
        bucket = bucket + (distance > 0) * num_buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    num_exact = num_buckets // 2
    share = (distance.clamp(min=1).float() / num_exact).log() / math.log(max_distance / num_exact)
    far = num_exact + (share * (num_buckets - num_exact)).long()
    return bucket + torch.where(distance < num_exact, distance, far.clamp(max=num_buckets - 1))


class AlibiEncoding(PositionalEncoding):
    """Scores fall linearly with the distance, at a rate that each head has fixed.

    Source: Press et al. 2022, section 3. differs: in the encoder distances count in both
    directions alike; the paper has decoders only.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        # No buffer: fixed numbers have no place among the weights.
        self._slopes = torch.tensor(alibi_slopes(num_heads), device="cpu")

    def embed(self, x: Tensor, positions: Tensor, *, longest: int) -> Tensor:
        """Leave embeddings as they are, and move the rates to their device, if they are elsewhere.

        Were that left to `bias`, compiled layers would be compiled again after their first pass.
        """
        self._slopes = self._slopes.to(x.device)
        return x

    def bias(self, q: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """Return (1, H, T, S)."""
        distance = (k_positions - q_positions[:, None]).abs()
        return (distance * -self._slopes[:, None, None])[None].to(q.dtype)


def alibi_slopes(num_heads: int) -> list[float]:
    """Return the rate of each head: 2^(-8/H), 2^(-16/H), .. for H heads, a power of two.

    Other numbers take those of the power below, then every second one of the power above.

    Source: Press et al. 2022, section 3 and their program.
    """
    below = 1 << (num_heads.bit_length() - 1)
    slopes = [2 ** (-8 * (head + 1) / below) for head in range(below)]
    if below == num_heads:
        return slopes
    return slopes + alibi_slopes(2 * below)[::2][: num_heads - below]
