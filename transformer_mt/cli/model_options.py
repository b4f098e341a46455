"""The options of commands that use a model, and the way from them to a translator."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from transformer_mt.errors import ConfigError

if TYPE_CHECKING:
    from transformer_mt.bundle import Bundle
    from transformer_mt.config.schema import DecodingSettings
    from transformer_mt.decoding.translator import Translator

logger = logging.getLogger(__name__)

ModelPath: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--model",
        metavar="DIR",
        help="Model bundle or run. Default: $TMT_MODEL, else the newest run's best model.",
    ),
]
Device: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="auto|cuda|cuda:N|mps|cpu",
        help="Where to compute; auto takes the first that is there.",
    ),
]
Precision: TypeAlias = Annotated[
    Literal["fp32", "bf16", "fp16"],
    typer.Option(help="Type of weights and activations; fp16 is for GPUs."),
]
BeamSize: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Hypotheses kept for each sentence; 1 is greedy search. Default: the model's config.",
    ),
]
LengthPenalty: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.0,
        help="Exponent alpha of Wu et al. 2016; 0 ranks by plain log-probability. Default: the "
        "model's config.",
    ),
]
MaxLengthFactor: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.0,
        help="An output has at most factor * source length + offset tokens. Default: the model's "
        "config.",
    ),
]
MaxLengthOffset: TypeAlias = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="See --max-length-factor.")
]
BatchTokens: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Source tokens times beam translated at once. Default: the model's config.",
    ),
]


def load_model(model: Path | None, *, device: str, precision: str) -> "Bundle":
    """Load the named model, or find one; say on stderr which.

    Raises:
        ModelError: If there is none, or it is damaged.
        ConfigError: If the device is not there.
    """
    import torch

    from transformer_mt.bundle import find_bundle, load_bundle
    from transformer_mt.training.distributed import choose_device

    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    place = choose_device(device, setting="--device")
    path = find_bundle(model)
    logger.info("model: %s", path)
    return load_bundle(path, device=place, dtype=dtypes[precision])


def make_translator(
    bundle: "Bundle",
    *,
    beam_size: int | None,
    length_penalty: float | None,
    batch_tokens: int | None,
    max_length_factor: float | None = None,
    max_length_offset: int | None = None,
    n_best: int = 1,
) -> "Translator":
    """Make a translator; what is None is as in the model's config.

    Raises:
        ConfigError: If a value is out of its bounds, or the beam does not fit the vocabulary or
            `n_best`.
    """
    from transformer_mt.decoding.translator import Translator

    given = {
        "beam_size": beam_size,
        "length_penalty": length_penalty,
        "max_length_factor": max_length_factor,
        "max_length_offset": max_length_offset,
        "batch_tokens": batch_tokens,
    }
    settings = _checked(
        bundle.config.decoding, {name: value for name, value in given.items() if value is not None}
    )
    return Translator(
        bundle,
        beam_size=settings.beam_size,
        length_penalty=settings.length_penalty,
        max_length_factor=settings.max_length_factor,
        max_length_offset=settings.max_length_offset,
        batch_tokens=settings.batch_tokens,
        n_best=n_best,
    )


def _checked(settings: "DecodingSettings", given: dict[str, float | None]) -> "DecodingSettings":
    """Replace settings by options, within the same bounds as in a config."""
    from pydantic import ValidationError

    try:
        return settings.model_validate({**settings.model_dump(), **given})
    except ValidationError as error:
        first = error.errors()[0]
        option = "--" + "-".join(str(part) for part in first["loc"]).replace("_", "-")
        raise ConfigError(f"{option} {first['input']}: {first['msg'].lower()}") from error
