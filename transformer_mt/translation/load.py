"""Loading of translators: one model or an ensemble, on a device, in a precision.

Torch is imported by the functions, after they have looked for what a user named.
"""

import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transformer_mt.errors import ConfigError, ModelError
from transformer_mt.locations import find_bundle
from transformer_mt.log import configure_logging

if TYPE_CHECKING:
    import torch

    from transformer_mt.bundle import Bundle
    from transformer_mt.config.decoding import DecodingSettings
    from transformer_mt.translation.detokenize import Choice
    from transformer_mt.translation.glossary import Glossary
    from transformer_mt.translation.options import SearchOptions
    from transformer_mt.translation.translator import Translator

logger = logging.getLogger(__name__)


def load_model(model: Path | None, *, device: str, precision: str) -> "Bundle":
    """Load the named model, or find one, and make it ready to translate; say on stderr which.

    Args:
        model: A bundle or a run; None: see `locations.find_bundle`.
        device: See `devices.choose_device`.
        precision: Of weights and activations: `fp32`, `bf16`, `fp16` or, on the CPU, `int8`.

    Raises:
        ModelError: If there is none, or it is damaged.
        ConfigError: If the device is not there, or has no such precision.
    """
    path = find_bundle(model)  # before the seconds that torch takes
    if find_spec("torch") is None:
        raise ConfigError(
            "torch is not installed: run `pip install torch`, or translate with "
            "--engine ctranslate2"
        )

    import torch

    from transformer_mt.bundle import load_bundle
    from transformer_mt.devices import choose_device, warn_of_slow_precision
    from transformer_mt.nn.kernels.cpu_linear import prepack

    dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16}
    place = choose_device(device, setting="device")
    if precision == "int8" and place.type != "cpu":
        raise ConfigError(f"precision int8 is for the CPU, not for {place}: take bf16 or fp16")
    logger.info("model: %s", path)
    warn_of_slow_precision(precision, place, setting="precision")
    bundle = load_bundle(path, device=place, dtype=dtypes.get(precision))
    if place.type == "cpu":
        prepack(bundle.model, int8=precision == "int8")
    return bundle


def load_models(
    models: Sequence[Path], weights: Sequence[float] | None, *, device: str, precision: str
) -> "Bundle":
    """Load one model as `load_model`, or several as an ensemble; the first gives the settings.

    Args:
        models: Bundles or runs; none: the one that `locations.find_bundle` finds.
        weights: How much each counts in the mean of their probabilities; None: equally.
        device: See `load_model`.
        precision: See `load_model`.

    Raises:
        ModelError: If there is none, one is damaged, or they have different vocabularies.
        ConfigError: If the weights do not fit, or the device is not there.
    """
    models = [find_bundle(path) for path in models]
    shares = _shares(weights, len(models))
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


def names_several(device: str) -> bool:
    """Return whether a setting of a device names several, or all that there are."""
    return device == "all" or "," in device


def load_on_devices(
    models: Sequence[Path], weights: Sequence[float] | None, *, device: str, precision: str
) -> "Bundle":
    """Load models as `load_models`, on one device or for several that share what is translated.

    The processes of several devices start with the first text of more than one batch, and load the
    models themselves.

    Args:
        models: See `load_models`.
        weights: See `load_models`.
        device: See `load_model`; of several, their names with commas between them, or `all` CUDA
            devices. A bare number is that of a CUDA device.
        precision: See `load_model`.

    Raises:
        ConfigError: See `load_models`; also if devices are of several kinds.
        ModelError: See `load_models`.
    """
    if not names_several(device):
        device = f"cuda:{device}" if device.isdecimal() else device
        return load_models(models, weights, device=device, precision=precision)
    paths = [find_bundle(path) for path in models] if models else [find_bundle(None)]

    from transformer_mt.devices import choose_devices

    places = [str(place) for place in choose_devices(device, setting="device")]
    bundle = load_models(paths, weights, device=places[0], precision=precision)
    logger.info("devices: %s", ", ".join(places))
    if len(places) == 1:
        return bundle
    load = partial(_load_copy, paths, weights, precision=precision, fingerprint=bundle.fingerprint)
    return replace(bundle, copies=[(place, partial(load, device=place)) for place in places])


def _load_copy(
    paths: Sequence[Path],
    weights: Sequence[float] | None,
    *,
    device: str,
    precision: str,
    fingerprint: str,
) -> "Bundle":
    """Load the models in a separate process, which logs only warnings."""
    configure_logging(logging.WARNING)
    bundle = load_models(paths, weights, device=device, precision=precision)
    if bundle.fingerprint != fingerprint:
        raise ModelError(
            "the model changed while it was loaded, perhaps because its run is still training: try "
            "again, or translate with a copy of the directory"
        )
    return bundle


def _shares(weights: Sequence[float] | None, num_models: int) -> list[float]:
    """Check the weights of an ensemble."""
    if weights is None:
        return [1.0] * num_models
    if num_models < 2:
        raise ConfigError("weights of an ensemble have no effect with one model: name more models")
    if len(weights) != num_models or not all(0 < weight < math.inf for weight in weights):
        raise ConfigError(
            f"weights of an ensemble {', '.join(map(str, weights))}: expected {num_models} "
            f"positive numbers, one for each model"
        )
    return list(weights)


def make_translator(
    bundle: "Bundle",
    given: Mapping[str, object],
    *,
    glossary: "str | os.PathLike[str] | Mapping[str, str] | None" = None,
    split_sentences: bool = False,
) -> "Translator":
    """Make a translator.

    Args:
        bundle: The model.
        given: Decoding settings by name that override those of the model's config, and `n_best`
            and `num_workers` of `SearchOptions`; for `num_workers`, None is as many as fit the
            machine.
        glossary: A file of terms, or the terms themselves.
        split_sentences: See `Translator`.

    Raises:
        DataError: If the glossary cannot be read.
        ModelError: If the shortlist cannot be read, or is of other tokenizers.
        ConfigError: If a value is out of its bounds, or values do not fit each other.
    """
    from transformer_mt.translation.options import SearchOptions
    from transformer_mt.translation.translator import Translator

    settings = decoding_settings(bundle, given)
    more: dict[str, Any] = {"n_best": given.get("n_best", 1)}
    choose = None
    if settings.mbr is not None:
        choose = _expected_utility(bundle, settings, settings.mbr, n_best=more["n_best"])
        more |= {"n_best": settings.mbr_samples, "sample": True}
    lexicon = None
    if settings.shortlist is not None:
        from transformer_mt.data.lexicon import Lexicon

        lexicon = Lexicon.load(Path(settings.shortlist), bundle.tokenizers)
    options = SearchOptions.from_settings(settings, **more)
    search = None
    if bundle.search is not None:
        search = bundle.search(bundle, options, lexicon, has_glossary=glossary is not None)
    if search is None:
        options = _for_torch(bundle, options, given)
    return Translator(
        bundle,
        options,
        glossary=None if glossary is None else _read_terms(glossary),
        split_sentences=split_sentences,
        lexicon=lexicon,
        choose=choose,
        search=search,
    )


def _for_torch(
    bundle: "Bundle", options: "SearchOptions", given: Mapping[str, object]
) -> "SearchOptions":
    """Add the number of processes, which other engines do not need."""
    device = next(bundle.model.parameters()).device
    if options.compile and device.type == "cpu":
        logger.warning("decoding.compile has no effect on the CPU, where it would be slower")
        options = replace(options, compile=False)
    return replace(options, num_workers=_num_workers(given, device, num_copies=len(bundle.copies)))


def _expected_utility(
    bundle: "Bundle", settings: "DecodingSettings", utility: Literal["chrf", "bleu"], *, n_best: int
) -> "Choice":
    """Return the choice among samples of minimum Bayes risk decoding."""
    from transformer_mt.translation.mbr import by_expected_utility

    if n_best > settings.mbr_samples:
        raise ConfigError(
            f"n_best {n_best} needs decoding.mbr_samples {n_best} or more, got "
            f"{settings.mbr_samples}"
        )
    tgt_lang = bundle.config.data.tgt_lang
    return partial(by_expected_utility, utility=utility, tgt_lang=tgt_lang, n_best=n_best)


def _read_terms(glossary: "str | os.PathLike[str] | Mapping[str, str]") -> "Glossary":
    from transformer_mt.text.lines import read_lines
    from transformer_mt.translation.glossary import read_glossary

    if isinstance(glossary, Mapping):
        return read_glossary((f"{term}\t{target}" for term, target in glossary.items()), "glossary")
    return read_glossary(read_lines(Path(glossary)), str(glossary))


def decoding_settings(bundle: "Bundle", given: Mapping[str, object]) -> "DecodingSettings":
    """Return the decoding settings of a model, those given by name overridden.

    Raises:
        ConfigError: If a value is out of its bounds.
    """
    from pydantic import ValidationError

    settings = bundle.config.decoding
    names = type(settings).model_fields
    changes = {name: value for name, value in given.items() if name in names and value is not None}
    try:
        return settings.model_validate({**settings.model_dump(), **changes})
    except ValidationError as error:
        first = error.errors()[0]
        problem = first["msg"].replace("Input should be", "must be")
        raise ConfigError(f"{first['loc'][0]}: {problem}, got {first['input']}") from error


def _num_workers(given: Mapping[str, Any], device: "torch.device", *, num_copies: int) -> int:
    """Return the number of processes that share the batches."""
    from transformer_mt.translation.workers import fitting_num_workers

    wanted: int | None = given.get("num_workers", 1)
    if num_copies:
        if wanted not in (None, 1):
            raise ConfigError(
                "num_workers does not go with several devices, each of which gets one"
            )
        return num_copies
    if wanted not in (None, 1) and device.type != "cpu":
        raise ConfigError(f"num_workers (--workers) is for the CPU, not for {device}: leave it out")
    return fitting_num_workers(device) if wanted is None else wanted
