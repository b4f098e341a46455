"""`tmt doctor`: what will go wrong in training, and what it will take."""

import json
import logging
from typing import TYPE_CHECKING, Annotated

import typer

from transformer_mt.cli.model_loading import check_one_process
from transformer_mt.cli.options import (
    AsJson,
    Budget,
    ConfigArgument,
    ConfigName,
    Overrides,
    config_file,
)
from transformer_mt.log import counted, printable
from transformer_mt.processors import set_thread_limit

if TYPE_CHECKING:
    from transformer_mt.doctor.findings import Finding

logger = logging.getLogger(__name__)

EXAMPLES = (
    "tmt doctor",
    "tmt doctor mine.yaml",
    "tmt doctor --config base --set training.max_tokens=4096 --seconds 60",
    "tmt doctor mine.yaml --no-train --json",
)


def doctor(
    argument: ConfigArgument = None,
    config: ConfigName = None,
    settings: Overrides = [],
    budget: Budget = None,
    train: Annotated[
        bool, typer.Option("--train/--no-train", help="Make updates, for memory and forecast.")
    ] = True,
    seconds: Annotated[
        float, typer.Option(metavar="S", min=1, help="Seconds of updates to make.")
    ] = 30,
    as_json: AsJson = False,
) -> None:
    """Check environment, config and data, and forecast time and memory of training.

    Without CONFIG, the environment alone. With one, its settings, all its text, the tokenizer, and
    some seconds of training in a temporary folder, of which only the tokenized text stays. Exit
    code 0: no problem (warnings are none); else that of the first problem, as of `tmt train`.
    """
    check_one_process()
    path = None
    if argument is not None or config is not None:
        path = config_file(argument, config)
    set_thread_limit()

    from transformer_mt.doctor.examination import examine

    found: list[Finding] = []
    for finding in examine(path, settings, budget=budget, seconds=seconds if train else None):
        found.append(finding)
        if not as_json:
            _print(finding, is_first=len(found) == 1 or finding.part != found[-2].part)
    problems = [finding for finding in found if finding.status == "problem"]
    num_warnings = sum(finding.status == "warning" for finding in found)
    code = problems[0].exit_code if problems else 0
    if as_json:
        report = {"exit_code": code, "findings": [finding.as_dict() for finding in found]}
        typer.echo(json.dumps(report, ensure_ascii=False))
    else:
        typer.echo(f"\n{counted(len(problems), 'problem')}, {counted(num_warnings, 'warning')}")
    raise typer.Exit(code)


def _print(finding: "Finding", *, is_first: bool) -> None:
    if is_first:
        typer.echo(f"\n{finding.part}")
    name = "" if finding.text.startswith(finding.name) else f"{finding.name}: "
    typer.echo(f"  {finding.status:<8} {name}{printable(finding.text)}")
    if finding.advice:
        typer.echo(f"           -> {printable(finding.advice)}")
