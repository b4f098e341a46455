"""Our models as those of Hugging Face transformers, for measurements and tests."""

import importlib
from typing import Any

from transformer_mt.config.families import ModelSettings
from transformer_mt.config.model import TransformerSettings
from transformer_mt.errors import ConfigError
from transformer_mt.exchange.huggingface import (
    MAX_POSITIONS,
    huggingface_config,
    huggingface_weights,
)
from transformer_mt.exchange.settings import HUGGINGFACE, model_obstacles
from transformer_mt.models.seq2seq import Seq2Seq


def plain_transformer(settings: ModelSettings) -> TransformerSettings:
    """Return settings of a model that other programs have, too.

    Raises:
        ConfigError: If it is of another family, or a Transformer with parts they lack.
    """
    found = model_obstacles(settings, HUGGINGFACE)
    if found or not isinstance(settings, TransformerSettings):
        raise ConfigError("other programs have no such model: " + "; ".join(found))
    return settings


def fresh_hugging_face(
    settings: TransformerSettings, vocab_size: int, *, max_positions: int = MAX_POSITIONS
) -> Any:
    """Build MarianMT, or Pegasus for pre-norm, in the same size with fresh weights.

    Raises:
        ConfigError: If these settings have no counterpart there.
    """
    plain_transformer(settings)
    transformers = importlib.import_module("transformers")
    config = huggingface_config(settings, vocab_size, max_positions=max_positions)
    config = transformers.AutoConfig.for_model(**config)
    return transformers.AutoModelForSeq2SeqLM.from_config(config)


def to_hugging_face(
    model: Seq2Seq, settings: TransformerSettings, *, max_positions: int = MAX_POSITIONS
) -> Any:
    """Build the same model there, in evaluation mode, with copies of all weights.

    Raises:
        ConfigError: If these settings have no counterpart there.
    """
    weights = huggingface_weights(
        model.state_dict(), max_positions=max_positions, positions=settings.positions
    )
    vocab_size = len(weights["model.shared.weight"])
    peer = fresh_hugging_face(settings, vocab_size, max_positions=max_positions).eval()
    missing, unexpected = peer.load_state_dict(weights, strict=False)
    assert not unexpected
    tied = {f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")}
    assert set(missing) <= tied | {"lm_head.weight"}
    return peer
