"""A whole run as settings: each one declared once, with name, type, unit, default and meaning.

The groups live in `config.data`, `config.model` and `config.training`.
"""

from typing import Annotated

from pydantic import Field, model_validator

from transformer_mt.config.base import PositiveInt, Settings
from transformer_mt.config.data import DataSettings, TokenizerSettings
from transformer_mt.config.model import TransformerSettings
from transformer_mt.config.training import TrainingSettings


class DecodingSettings(Settings):
    """How translations are searched."""

    beam_size: PositiveInt = 4
    """Hypotheses kept for each sentence; 1 is greedy search."""
    length_penalty: Annotated[float, Field(ge=0)] = 0.6
    """Exponent alpha of Wu et al. 2016, equation 14; 0 = plain sum of log-probabilities."""
    max_length_factor: Annotated[float, Field(ge=0)] = 1.0
    """Greatest output length = factor * source length + offset, in tokens."""
    max_length_offset: Annotated[int, Field(ge=1)] = 50
    """See `max_length_factor`; the paper has factor 1 and offset 50."""
    batch_tokens: PositiveInt = 4096
    """Source tokens times beam translated at once; a longer sentence is translated alone."""


class Config(Settings):
    """A whole run."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """Name of the run, used for its folder."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Decides first weights, dropout, order of the data and samples."""
    data: DataSettings
    """What is read."""
    tokenizer: TokenizerSettings = TokenizerSettings()
    """How text becomes tokens."""
    model: TransformerSettings = TransformerSettings()
    """What is trained."""
    training: TrainingSettings
    """How it is trained."""
    decoding: DecodingSettings = DecodingSettings()
    """How it translates."""

    @model_validator(mode="after")
    def _check(self) -> "Config":
        if self.model.tie_embeddings == "all" and not self.tokenizer.joint:
            raise ValueError(
                "model.tie_embeddings 'all' needs one vocabulary: set tokenizer.joint to true, or "
                "tie_embeddings to 'target' or 'none'"
            )
        return self
