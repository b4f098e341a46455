"""The options of commands that use a model, and the way from them to a translator."""

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from transformer_mt.cli.options import read_numbers
from transformer_mt.config.schema import LengthPenaltyKind as Kind
from transformer_mt.errors import ConfigError, ModelError
from transformer_mt.locations import find_bundle

if TYPE_CHECKING:
    from transformer_mt.bundle import Bundle
    from transformer_mt.config.schema import DecodingSettings
    from transformer_mt.translation.detokenize import Choice
    from transformer_mt.translation.translator import Translator

logger = logging.getLogger(__name__)

Copies: TypeAlias = "Sequence[tuple[str, Callable[[], Bundle]]]"

SEARCH, LENGTH = "Search", "Length"

ModelPath: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--model",
        metavar="DIR",
        help="Model folder or run. Default: $TMT_MODEL, else the newest run's best model.",
    ),
]
ModelPaths: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--model",
        metavar="DIR",
        help="Model folder or run; repeatable, for an ensemble of models with one vocabulary. "
        "Default: $TMT_MODEL, else the newest run's best model.",
    ),
]
EnsembleWeights: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="X,Y,..",
        help="How much each --model counts in the mean of their probabilities. Default: equally.",
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
    Literal["fp32", "bf16", "fp16", "int8"],
    typer.Option(help="Type of weights and activations; fp16 is for GPUs, int8 for CPUs."),
]
BeamSize: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        rich_help_panel=SEARCH,
        help="Hypotheses kept for each sentence; 1 is greedy search. Default: the model's config.",
    ),
]
LengthPenalty: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.0,
        rich_help_panel=LENGTH,
        help="Strength of the length penalty, for gnmt the exponent alpha of Wu et al. 2016; 0 "
        "ranks by plain log-probability. Default: the model's config.",
    ),
]
LengthPenaltyKind: TypeAlias = Annotated[
    Kind | None,
    typer.Option(
        rich_help_panel=LENGTH,
        help="gnmt divides by ((5 + length) / 6)^strength, average by length^strength, reward adds "
        "strength for each token. Default: the model's config.",
    ),
]
MaxLengthFactor: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.0,
        rich_help_panel=LENGTH,
        help="An output has at most factor * source length + offset tokens. Default: the model's "
        "config.",
    ),
]
MaxLengthOffset: TypeAlias = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, rich_help_panel=LENGTH, help="See --max-length-factor."),
]
BatchTokens: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Source tokens times beam translated at once. Default: the model's config.",
    ),
]
Compile: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--compile",
        help="On a GPU: put the step of a Transformer's decoder through torch.compile, which takes "
        "some ten seconds before the first line.",
    ),
]
NumWorkers: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        help="On the CPU: processes of one thread each that share the batches. Default: one for "
        "each thread of torch.",
    ),
]


def has_several_ranks() -> bool:
    """Return whether `torchrun`, or what sets variables as it does, started several processes."""
    return os.environ.get("WORLD_SIZE", "") not in ("", "0", "1")


def load_model(model: Path | None, *, device: str, precision: str) -> "Bundle":
    """Load the named model, or find one, and make it ready to translate; say on stderr which.

    Raises:
        ModelError: If there is none, or it is damaged.
        ConfigError: If the device is not there, or has no such precision; or there are several
            copies of this process, which would all do the same.
    """
    if has_several_ranks():
        raise ConfigError(
            "torchrun starts copies that would each do all of the work: start one without it"
        )
    path = find_bundle(model)  # before the seconds that torch takes

    import torch

    from transformer_mt.bundle import load_bundle
    from transformer_mt.devices import choose_device
    from transformer_mt.nn.kernels.capability import multiplies_fast
    from transformer_mt.nn.kernels.cpu_linear import prepack

    dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16}
    place = choose_device(device, setting="--device")
    if precision == "int8" and place.type != "cpu":
        raise ConfigError(f"--precision int8 is for the CPU, not for {place}: take bf16 or fp16")
    logger.info("model: %s", path)
    if place.type == "cpu" and precision == "bf16" and not multiplies_fast(torch.bfloat16, place):
        logger.warning(
            "--precision bf16: this processor has no bf16 instructions; fp32 is 3 to 6 times as "
            "fast here"
        )
    bundle = load_bundle(path, device=place, dtype=dtypes.get(precision))
    if place.type == "cpu":
        prepack(bundle.model, int8=precision == "int8")
    return bundle


def load_models(
    models: Sequence[Path] | None, weights: str | None, *, device: str, precision: str
) -> "Bundle":
    """Load one model as `load_model`, or several as an ensemble; the first gives the settings.

    Raises:
        ModelError: If there is none, one is damaged, or they have different vocabularies.
        ConfigError: If the weights do not fit, or the device is not there.
    """
    models = [find_bundle(path) for path in models or []]
    shares = _weights(weights, len(models))
    first = load_model(models[0] if models else None, device=device, precision=precision)
    if len(models) < 2:
        return first
    from transformer_mt.models.ensemble import ensemble

    bundles = [first]
    for path in models[1:]:
        bundles.append(load_model(path, device=device, precision=precision))
        if bundles[-1].tokenizers.fingerprint() != first.tokenizers.fingerprint():
            raise ModelError(
                f"{path} has another vocabulary than {models[0]}: an ensemble needs models that "
                f"were trained with the same tokenizer"
            )
        for setting in ("reverse_target", "document"):
            if getattr(bundles[-1].config.data, setting) != getattr(first.config.data, setting):
                raise ModelError(
                    f"{path} and {models[0]} differ in data.{setting}: they make no ensemble, but "
                    f"`tmt rescore` joins their scores"
                )
    joined = ensemble([bundle.model for bundle in bundles], shares)
    fingerprint = " ".join(bundle.fingerprint for bundle in bundles)
    return replace(first, model=joined, fingerprint=fingerprint)


def _weights(text: str | None, num_models: int) -> list[float]:
    """Read the weights of an ensemble."""
    if text is None:
        return [1.0] * num_models
    weights = read_numbers(text, float)
    if num_models < 2:
        raise ConfigError("--ensemble-weights has no effect with one model: repeat --model")
    if len(weights) != num_models or not all(0 < weight < math.inf for weight in weights):
        raise ConfigError(
            f"--ensemble-weights {text}: expected {num_models} positive numbers with commas "
            f"between them, one for each --model"
        )
    return weights


def search_options_of(ctx: typer.Context) -> dict[str, object]:
    """Return the values of the options of a command that are fields of `SearchOptions`, by name."""
    from transformer_mt.translation.options import SearchOptions

    names = [field.name for field in fields(SearchOptions)]
    return {name: ctx.params[name] for name in names if name in ctx.params}


def make_translator(
    bundle: "Bundle",
    given: Mapping[str, object],
    *,
    glossary: Path | None = None,
    split_sentences: bool = False,
    shortlist: Path | None = None,
    choose: "Choice | None" = None,
    copies: Copies = (),
) -> "Translator":
    """Make a translator.

    Args:
        bundle: The model.
        given: Some of the fields of `SearchOptions`. What is missing or None is as in the model's
            config, or the default where a config does not have it; for `num_workers`, None is as
            many as fit the machine.
        glossary: A file of terms.
        split_sentences: See `Translator`.
        shortlist: A file of `tmt shortlist`.
        choose: See `Translator`.
        copies: See `Translator`.

    Raises:
        DataError: If the glossary cannot be read.
        ModelError: If the shortlist cannot be read, or is of other tokenizers.
        ConfigError: If a value is out of its bounds, or values do not fit each other.
    """
    from transformer_mt.data.lexicon import Lexicon
    from transformer_mt.text.lines import read_lines
    from transformer_mt.translation.glossary import read_glossary
    from transformer_mt.translation.options import SearchOptions
    from transformer_mt.translation.translator import Translator
    from transformer_mt.translation.workers import fitting_num_workers

    place = next(bundle.model.parameters()).device
    if copies:
        given = {**given, "num_workers": len(copies)}
    elif given.get("num_workers") not in (None, 1) and place.type != "cpu":
        raise ConfigError(f"--workers is for the CPU, not for {place}: leave it out")
    elif "num_workers" in given and given["num_workers"] is None:
        given = {**given, "num_workers": fitting_num_workers(place)}
    if given.get("compile") and place.type == "cpu":
        raise ConfigError("--compile is for GPUs, not for cpu, which it makes slower: leave it out")
    given = {name: value for name, value in given.items() if value is not None}
    settings = bundle.config.decoding
    changes = {name: given[name] for name in given if name in type(settings).model_fields}
    arguments: dict[str, Any] = {**given, **_checked(settings, changes).model_dump()}
    terms = None if glossary is None else read_glossary(read_lines(glossary), str(glossary))
    options = SearchOptions(**arguments)
    return Translator(
        bundle,
        options,
        glossary=terms,
        split_sentences=split_sentences,
        lexicon=None if shortlist is None else Lexicon.load(shortlist, bundle.tokenizers),
        choose=choose,
        copies=copies,
    )


def _checked(settings: "DecodingSettings", given: Mapping[str, object]) -> "DecodingSettings":
    """Replace settings by options, within the same bounds as in a config."""
    from pydantic import ValidationError

    try:
        return settings.model_validate({**settings.model_dump(), **given})
    except ValidationError as error:
        first = error.errors()[0]
        option = "--" + "-".join(str(part) for part in first["loc"]).replace("_", "-")
        raise ConfigError(f"{option} {first['input']}: {first['msg'].lower()}") from error
