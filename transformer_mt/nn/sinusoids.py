"""Table of sinusoidal positions, without torch."""

import math

import numpy as np
from numpy.typing import NDArray


def sinusoid_table(
    length: int, d_model: int, *, offset: int = 0, endpoint: bool = False
) -> NDArray[np.float32]:
    """Return sines and cosines of geometrically rising wavelengths (length, D).

    Channel i < D/2 is sin(position / 10000^(2i/D)); channel D/2 + i is its cosine. With `endpoint`
    the exponent is 2i/(D - 2), which is 1 in the last channel, as in tensor2tensor and Marian.

    Args:
        length: Number of positions.
        d_model: D.
        offset: First position.
        endpoint: See above.

    Source: Vaswani et al. 2017, section 3.5. differs: sines and cosines do not alternate.
    """
    # float64 inside: angles reach `length`, and float32 would lose their last digits.
    span = max(d_model - 2 * endpoint, 1)
    rates = np.exp(np.arange(0, d_model, 2) * (-math.log(1e4) / span))
    angles = np.arange(offset, offset + length)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
