"""What dividing the scores of attention by sqrt(d_k) does, and what happens without.

Source: Vaswani et al. 2017, section 3.2.1 and its footnote 4.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

DEFAULT_SIZES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class ScalingPoint:
    """Softmax over the scores of random queries and keys.

    Attributes:
        d_k: Channels of queries and keys.
        divided: Whether scores are divided by sqrt(d_k).
        score_deviation: Standard deviation of the scores.
        entropy_nats: Of the weights, the mean over queries; log(number of keys) is uniform.
        largest_weight: The mean over queries.
        gradient_norm: Frobenius norm of the softmax's Jacobian, the median over queries: how much
            of a gradient on the weights reaches the scores.
    """

    d_k: int
    divided: bool
    score_deviation: float
    entropy_nats: float
    largest_weight: float
    gradient_norm: float


def measure_scaling(
    sizes: Sequence[int] = DEFAULT_SIZES,
    *,
    num_keys: int = 64,
    num_queries: int = 4096,
    seed: int = 1,
) -> list[ScalingPoint]:
    """Draw queries and keys with mean 0 and variance 1, as the footnote does, and attend.

    Each query has keys of its own.
    """
    generator = torch.Generator().manual_seed(seed)
    points = []
    for d_k in sizes:
        queries, keys = (
            torch.randn(num_queries, number, d_k, generator=generator) for number in (1, num_keys)
        )
        scores = (queries @ keys.transpose(1, 2))[:, 0].double()
        for divided in (True, False):
            points.append(_point(scores / d_k**0.5 if divided else scores, d_k, divided))
    return points


def jacobian_norms(weights: Tensor) -> Tensor:
    """Return the Frobenius norm of diag(p) - p p^T for each softmax p in (Q, S)."""
    second, third = (weights**2).sum(-1), (weights**3).sum(-1)
    return (second - 2 * third + second**2).clamp(min=0).sqrt()


def _point(scores: Tensor, d_k: int, divided: bool) -> ScalingPoint:
    log_weights = scores.log_softmax(-1)
    weights = log_weights.exp()
    return ScalingPoint(
        d_k=d_k,
        divided=divided,
        score_deviation=scores.std().item(),
        entropy_nats=-(weights * log_weights).sum(-1).mean().item(),
        largest_weight=weights.amax(-1).mean().item(),
        gradient_norm=jacobian_norms(weights).median().item(),
    )
