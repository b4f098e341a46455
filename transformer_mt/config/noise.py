"""Settings of the noise that denoising pretraining puts into text."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from transformer_mt.config.base import Settings, Share

MOST_NOISE = 0.9


class NoiseSettings(Settings):
    """Noise on the tokens of a line, drawn again in each epoch; the default is that of mBART.

    One token at least stays as it is. Sources: masks Devlin et al. 2019 (BERT), spans Song et al.
    2019 (MASS) and Lewis et al. 2020 (BART), deletion and shuffling Lample et al. 2018.
    """

    mask: Share = 0.35
    """Share of the tokens that are masked."""
    span: Annotated[float, Field(ge=1)] = 3.5
    """Mean length of a masked span, in tokens; 1: single tokens."""
    masks: Literal["one", "each"] = "one"
    """`one` mask for a span, so that its length must be guessed, too (BART, T5); one for `each`
    token (BERT, MASS)."""
    delete: Share = 0.0
    """Share of the tokens that are deleted."""
    shuffle: Annotated[int, Field(ge=0)] = 0
    """Local shuffling: no token moves by more than this number of places."""
    symbol: Annotated[str, Field(min_length=1)] = "<mask>"
    """Mask; must be one of `tokenizer.user_symbols`."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse noise that leaves next to nothing."""
        if self.mask + self.delete > MOST_NOISE:
            yield (
                "mask",
                f"with delete, {self.mask + self.delete:.0%} of the tokens would be lost: at most "
                f"{MOST_NOISE:.0%}, or there is nothing to restore the text from",
            )
