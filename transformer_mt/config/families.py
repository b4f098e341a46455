"""The families of models; one word in a config, `type`, chooses between them."""

from typing import Annotated, Any

from pydantic import Discriminator, Tag

from transformer_mt.config.convolutional import ConvolutionalSettings
from transformer_mt.config.model import TransformerSettings
from transformer_mt.config.recurrent import RecurrentSettings


def _type_of(settings: Any) -> Any:
    """Return what stands under `type:`; transformer if nothing does."""
    if isinstance(settings, dict):
        return settings.get("type", "transformer")
    return getattr(settings, "type", None)


ModelSettings = Annotated[
    Annotated[TransformerSettings, Tag("transformer")]
    | Annotated[RecurrentSettings, Tag("recurrent")]
    | Annotated[ConvolutionalSettings, Tag("convolutional")],
    Discriminator(_type_of),
]
