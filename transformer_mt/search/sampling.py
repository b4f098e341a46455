"""Sampling: hypotheses drawn at random, with temperature, top-k and top-p.

Letters: B sentences, W slots of the beam, V vocabulary.
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.search.continuations import BLOCK, Continuations, Prefixes


class Sampling:
    """Selects the next token of each hypothesis by chance: ancestral sampling.

    Every sentence has a stream of random numbers of its own, which begins with the seed and the
    tokens of its source. So its samples depend neither on its batch nor on its place in the file,
    and equal sentences get equal samples.

    Args:
        sources: Tokens of the sentences of the batch.
        num_samples: Hypotheses of each, W; all are independent of each other.
        seed: At least 0.
        temperature: Divides log-probabilities before the draw; below 1 the probable gets likelier.
        top_k: Draw from the `top_k` most probable tokens (Fan et al. 2018); 0: from all.
        top_p: Draw from the most probable tokens which together have at least this probability
            (Holtzman et al. 2020), after temperature and `top_k`; 1: from all.
    """

    def __init__(
        self,
        sources: Sequence[Sequence[int]],
        *,
        num_samples: int,
        seed: int,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
    ) -> None:
        self._streams = [np.random.default_rng([seed, *source]) for source in sources]
        self._num_samples = num_samples
        self._temperature = temperature
        self._top_k = top_k
        self._top_p = top_p

    def __call__(self, log_probs: Tensor, scores: Tensor, prefixes: Prefixes) -> Continuations:
        """Draw one continuation of each hypothesis; its group is the number of the sample."""
        groups = prefixes.groups
        if groups is None:  # the first step: one hypothesis, from which all samples start
            groups = np.tile(np.arange(self._num_samples), (len(scores), 1))
            log_probs = log_probs.expand(-1, self._num_samples, -1)
            scores = scores.expand(-1, self._num_samples)
            slots = np.zeros_like(groups)
        else:
            slots = np.tile(np.arange(groups.shape[1]), (len(groups), 1))
        allowed = log_probs / self._temperature
        if self._top_k:
            allowed = keep_top_k(allowed, self._top_k)
        if self._top_p < 1:
            allowed = keep_top_p(allowed, self._top_p)
        noise = self._noise(prefixes.sentences, groups, vocab_size=log_probs.shape[2])
        tokens = draw(allowed, torch.from_numpy(noise).to(log_probs.device))
        sums = scores + log_probs.gather(2, tokens[:, :, None]).squeeze(2)
        return Continuations(sums.cpu().numpy(), slots, tokens.cpu().numpy(), groups)

    def _noise(
        self, sentences: NDArray[np.int64], groups: NDArray[np.int64], *, vocab_size: int
    ) -> NDArray[np.float32]:
        """Draw what `draw` needs, for each sample of a sentence whether it is still open or not."""
        shape = (self._num_samples, num_draws(vocab_size))
        draws = [self._streams[i].standard_exponential(shape, dtype=np.float32) for i in sentences]
        chosen = np.take_along_axis(np.stack(draws), groups[:, :, None], axis=1)
        with np.errstate(divide="ignore"):
            noise: NDArray[np.float32] = -np.log(chosen)
        return noise


def num_draws(vocab_size: int) -> int:
    """Return how many random numbers `draw` takes for one token."""
    return -(-vocab_size // BLOCK) + BLOCK


def draw(log_probs: Tensor, noise: Tensor) -> Tensor:
    """Draw tokens with the given log-probabilities (.., V), which need not sum to one.

    First a block of the vocabulary is drawn, then a token in it; each as the maximum of
    log-probabilities and Gumbel noise (Maddison et al. 2014). Next to drawing a place on the sum of
    all probabilities, a rounding error in the last bits of these almost never draws another token.

    Args:
        log_probs: -inf where a token must not be drawn.
        noise: Independent numbers of the standard Gumbel distribution (.., num_draws(V)).
    """
    blocks = F.pad(log_probs, (0, -log_probs.shape[-1] % BLOCK), value=-torch.inf)
    blocks = blocks.view(*blocks.shape[:-1], -1, BLOCK)
    num_blocks = blocks.shape[-2]
    block = (blocks.logsumexp(-1) + noise[..., :num_blocks]).argmax(-1, keepdim=True)
    inside = blocks.gather(-2, block[..., None].expand(*block.shape, BLOCK)).squeeze(-2)
    place = (inside + noise[..., num_blocks:]).argmax(-1)
    tokens: Tensor = block.squeeze(-1) * BLOCK + place
    return tokens


def keep_top_k(log_probs: Tensor, num: int) -> Tensor:
    """Return log-probabilities (.., V), -inf for all but the `num` largest and ties with them."""
    threshold = log_probs.topk(min(num, log_probs.shape[-1])).values[..., -1:]
    return log_probs.masked_fill(log_probs < threshold, -torch.inf)


def keep_top_p(log_probs: Tensor, mass: float) -> Tensor:
    """Return log-probabilities (.., V), -inf for all but the fewest that have this mass.

    The mass is a share of the whole, whatever the probabilities sum to; one is kept for every mass.
    """
    falling = log_probs.sort(dim=-1, descending=True).values
    probs = falling.softmax(-1)
    is_kept = probs.cumsum(-1) - probs < max(mass, torch.finfo(probs.dtype).tiny)
    threshold = falling.masked_fill(~is_kept, torch.inf).amin(-1, keepdim=True)
    return log_probs.masked_fill(log_probs < threshold, -torch.inf)
