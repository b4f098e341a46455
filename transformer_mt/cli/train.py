"""`tmt train`: training, also of interrupted runs."""

import json
import os
from typing import Annotated

import typer

from transformer_mt import api
from transformer_mt.cli.options import (
    Budget,
    ConfigArgument,
    ConfigName,
    Overrides,
    config_file,
)
from transformer_mt.config.budget import load_within
from transformer_mt.training.signals import stop_request

EXAMPLES = (
    "tmt train base.yaml",
    "tmt train --config base.yaml --set training.max_steps=1000 --set name=short",
    "tmt train --config mine.yaml --budget 15m              ends then, with validation and average",
    "tmt train --config base.yaml            again: resumes where it stopped",
    "tmt train --config base.yaml --fresh    renames the old run and starts a new one",
    "tmt train --config mine.yaml --init-from runs/base     fine-tunes a finished model",
    "torchrun --nproc-per-node 4 -m transformer_mt train --config base.yaml",
)


def train(
    argument: ConfigArgument = None,
    config: ConfigName = None,
    settings: Overrides = [],
    budget: Budget = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Rename an existing run of this name and start a new one."),
    ] = False,
    init_from: Annotated[
        str | None,
        typer.Option(
            "--init-from", metavar="DIR", help="Same as --set training.init_from=DIR: warm start."
        ),
    ] = None,
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="Same as --set training.deterministic=true."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a model from a config.

    The same command resumes an interrupted run exactly where it stopped. The model is written to
    runs/NAME/best, where `tmt translate` finds it.
    """
    path = config_file(argument, config)
    if init_from is not None:
        settings = [*settings, f"training.init_from={json.dumps(init_from)}"]
    if deterministic:
        settings = [*settings, "training.deterministic=true"]
    with stop_request():  # a second signal ends the process
        result = api.train(load_within(path, settings, budget), fresh=fresh)
    if os.environ.get("RANK", "0") != "0":
        return  # torchrun started several processes: one of them speaks
    if as_json:
        typer.echo(json.dumps(result.as_dict(), ensure_ascii=False))
    else:
        for name, value in result.as_lines():
            typer.echo(f"{name:<8} {value}")
