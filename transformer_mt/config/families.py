"""Model families, selected by `type` in a config."""

from typing import Annotated, Any

from pydantic import Discriminator, Tag

from transformer_mt.config.convolutional import ConvolutionalSettings
from transformer_mt.config.model import DecoderOnlySettings, TransformerSettings
from transformer_mt.config.pictures import PatchInput
from transformer_mt.config.recurrent import RecurrentSettings


def _type_of(settings: Any) -> Any:
    """Return the value of `type`; transformer by default."""
    if isinstance(settings, dict):
        return settings.get("type", "transformer")
    return getattr(settings, "type", None)


ModelSettings = Annotated[
    Annotated[TransformerSettings, Tag("transformer")]
    | Annotated[RecurrentSettings, Tag("recurrent")]
    | Annotated[ConvolutionalSettings, Tag("convolutional")]
    | Annotated[DecoderOnlySettings, Tag("decoder_only")],
    Discriminator(_type_of),
]


def patch_input(settings: ModelSettings) -> PatchInput | None:
    """Return how a model reads pictures; None: it reads tokens."""
    given = getattr(settings, "encoder_input", None)
    return given if isinstance(given, PatchInput) else None
