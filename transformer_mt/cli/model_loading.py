"""Loading of models for commands: on one device, on several, under torchrun."""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from transformer_mt.cli.options import read_numbers
from transformer_mt.errors import ConfigError, ModelError
from transformer_mt.locations import find_bundle
from transformer_mt.log import configure_logging
from transformer_mt.translation.load import Copies, load_models

if TYPE_CHECKING:
    from transformer_mt.bundle import Bundle

logger = logging.getLogger(__name__)


def has_several_ranks() -> bool:
    """Return whether `torchrun`, or what sets variables as it does, started several processes."""
    return os.environ.get("WORLD_SIZE", "") not in ("", "0", "1")


def check_one_process() -> None:
    """Refuse copies of a command that would all do the same.

    Raises:
        ConfigError: If there are several.
    """
    if has_several_ranks():
        raise ConfigError(
            "torchrun starts copies that would each do all of the work: start one without it"
        )


def read_ensemble_weights(text: str | None) -> list[float] | None:
    """Read the value of --ensemble-weights.

    Raises:
        ConfigError: If it is no list of numbers.
    """
    if text is None:
        return None
    if not (weights := read_numbers(text, float)):
        raise ConfigError(
            f"--ensemble-weights {text}: expected numbers with commas between them, one for each "
            f"--model"
        )
    return weights


def has_several_devices(device: str) -> bool:
    """Return whether the value of --device names several, or torchrun started several processes."""
    return device == "all" or "," in device or has_several_ranks()


def load_of_options(ctx: typer.Context) -> tuple["Bundle", Copies]:
    """Load the models that the options of a command name: see `load_on_devices`."""
    names = ("device", "num_workers", "precision", "engine")
    options = ctx.params
    return load_on_devices(
        options["model"], options["ensemble_weights"], **{name: options[name] for name in names}
    )


def load_on_devices(
    models: Sequence[Path] | None,
    ensemble_weights: str | None,
    *,
    device: str,
    num_workers: int | None,
    precision: str,
    engine: Literal["torch", "ctranslate2", "auto"] = "torch",
) -> tuple["Bundle", Copies]:
    """Load models on the first of the devices, and say how others load them.

    Args:
        models: See `load_models`.
        ensemble_weights: Value of --ensemble-weights.
        device: Value of --device.
        num_workers: Value of --workers.
        precision: Value of --precision.
        engine: Value of --engine.

    Returns:
        The model, and what `make_translator` takes as copies: none for a single device.

    Raises:
        ConfigError: If options do not go together, or a device is not there.
        ModelError: See `load_models`.
        typer.Exit: In processes of `torchrun` other than the first.
    """
    several = has_several_devices(device)
    device = f"cuda:{device}" if device.isdecimal() else device
    if has_several_ranks():
        device = _devices_of_torchrun(device)
    weights = read_ensemble_weights(ensemble_weights)
    if not several:
        from transformer_mt.exchange.engine import load_for_engine

        bundle = load_for_engine(
            models or [],
            weights,
            device=device,
            precision=precision,
            engine=engine,
            threads=num_workers,
        )
        return bundle, ()
    if engine == "ctranslate2":
        raise ConfigError(f"--engine {engine} does not go with several devices: drop one")
    if num_workers is not None:
        raise ConfigError(
            "--workers does not go with several devices, each of which gets a process: drop one"
        )
    paths = [find_bundle(path) for path in models] if models else [find_bundle(None)]

    from transformer_mt.devices import choose_devices

    places = [str(place) for place in choose_devices(device, setting="--device")]
    bundle = load_models(paths, weights, device=places[0], precision=precision)
    logger.info("devices: %s", ", ".join(places))
    load = partial(_load_copy, paths, weights, precision=precision, fingerprint=bundle.fingerprint)
    if len(places) == 1:
        return bundle, ()
    # An immediate end would leave locks, of which Python's resource tracker warns.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    return bundle, [(place, partial(load, device=place)) for place in places]


def _devices_of_torchrun(device: str) -> str:
    """Return as many devices as `torchrun` started processes.

    The first process shares the input among them, as only one can read it; the others end here.

    Args:
        device: Value of --device.

    Raises:
        ConfigError: If there are processes on several machines, or several devices in each, or
            something other than `torchrun` says that there are several.
    """
    given = {name: os.environ.get(name, "") for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK")}
    if not all(value.isdecimal() for value in given.values()):
        found = ", ".join(f"{name}={value}" for name, value in given.items())
        raise ConfigError(
            "several processes are expected as torchrun starts them, with numbers in the "
            f"environment, but there is {found}: unset WORLD_SIZE, or start them with torchrun"
        )
    num_ranks, num_here, rank = map(int, given.values())
    if num_here != num_ranks:
        raise ConfigError(
            "torchrun on several machines: only one process can read the input, so split it, and "
            "translate the parts with --device all on each machine"
        )
    if ":" in device or "," in device or device == "all":
        raise ConfigError(
            f"--device {device} does not go with torchrun, which gives a device to each of its "
            "processes: give --device cuda, or leave out torchrun"
        )
    if rank > 0:
        raise typer.Exit
    # This is the only process from here on, and those that it starts are no ranks.
    del os.environ["WORLD_SIZE"]
    from transformer_mt.devices import choose_device

    kind = choose_device(device, setting="--device").type
    return ",".join(f"cuda:{i}" if kind == "cuda" else kind for i in range(num_ranks))


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
