"""Loading of models for commands: on one device, on several, under torchrun."""

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from transformer_mt.cli.options import read_numbers
from transformer_mt.errors import ConfigError, ModelError
from transformer_mt.locations import CONFIG, find_bundle
from transformer_mt.translation.load import names_several

if TYPE_CHECKING:
    from transformer_mt.bundle import Bundle
    from transformer_mt.config.schema import Config


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
    return names_several(device) or has_several_ranks()


def in_direction(ctx: typer.Context, bundle: "Bundle") -> "Bundle":
    """Let a model translate between the languages that the options of a command name.

    Raises:
        ConfigError: If one is missing, or not a language of the model.
    """
    from transformer_mt.translation.directions import directed

    source, target = ctx.params["source_language"], ctx.params["target_language"]
    return directed(bundle, source=source, target=target)


def config_of_options(ctx: typer.Context) -> "Config":
    """Return the config of the model that `load_of_options` loads, the first of several.

    Raises:
        ModelError: If there is none, or it has no config that can be read.
    """
    from transformer_mt.config.loading import load_recorded

    models = ctx.params["model"]
    first = models if isinstance(models, Path) or not models else models[0]
    try:
        return load_recorded(find_bundle(first or None, export="ctranslate2") / CONFIG)
    except ConfigError as error:
        raise ModelError(str(error)) from error


def load_of_options(ctx: typer.Context, *, for_many: bool = True) -> "Bundle":
    """Load the models that the options of a command name, for the devices that they name.

    Args:
        ctx: Has the options.
        for_many: See `exchange.engine.load_for_engine`.

    Raises:
        ConfigError: If options do not go together, or a device is not there.
        ModelError: See `translation.load.load_models`.
        typer.Exit: In processes of `torchrun` other than the first.
    """
    options = ctx.params
    models, device, num_workers = options["model"], options["device"], options["num_workers"]
    if has_several_ranks():
        device = _devices_of_torchrun(device)
    weights = read_ensemble_weights(options.get("ensemble_weights"))
    if names_several(device) and num_workers is not None:
        raise ConfigError(
            "--workers does not go with several devices, each of which gets a process: drop one"
        )
    from transformer_mt.exchange.engine import load_for_engine

    bundle = load_for_engine(
        [models] if isinstance(models, Path) else models or [],
        weights,
        device=device,
        precision=options["precision"],
        engine=options.get("engine", "torch"),
        threads=num_workers,
        for_many=for_many,
    )
    if bundle.copies:
        # An immediate end would leave locks, of which Python's resource tracker warns.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    return bundle


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
    if ":" in device or device.isdecimal() or names_several(device):
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
