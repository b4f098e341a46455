"""`tmt runs`: list of training runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer_mt.cli.comparison_output import aligned
from transformer_mt.cli.options import AsJson
from transformer_mt.config.training import METRIC_LABELS
from transformer_mt.errors import DataError, reason_of

if TYPE_CHECKING:
    from transformer_mt.run_list import ListedRun

EXAMPLES = (
    "tmt runs",
    "tmt runs experiments/runs --json",
)

_LABELS: Mapping[str, str] = {"loss": "loss"} | {**METRIC_LABELS}


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory of runs. Default: runs.")
    ] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List runs: state, best score, size, time, differences of their settings.

    A run is running, finished, stopped (the same `tmt train` command resumes it) or diverged.
    """
    from transformer_mt.run_list import list_runs

    try:
        found = list_runs(folder)
    except OSError as error:
        raise DataError(f"{folder}: expected a directory of runs: {reason_of(error)}") from error
    if as_json:
        records = [run.record() for run in found]
        typer.echo(json.dumps({"runs": records}, ensure_ascii=False))
        return
    if not found:
        typer.echo(f"{folder}: no runs")
        return
    for line in aligned(_table(found)):
        typer.echo(line)
    for run in found:
        if run.note and run.state in ("diverged", "unreadable"):
            typer.echo(f"{run.name}: {run.state}: {run.note}")
    differing = list(dict.fromkeys(path for run in found for path in run.settings))
    if differing:
        typer.echo("\nsettings that differ:")
        values = [
            [run.name, *(_word(run.settings.get(path)) for path in differing)] for run in found
        ]
        for line in aligned(list(map(list, zip(*[["setting", *differing], *values], strict=True)))):
            typer.echo(line)


def _table(found: "Sequence[ListedRun]") -> list[list[str]]:
    rows = [["run", "state", "best", "at step", "parameters", "updates", "minutes", "MB"]]
    for run in found:
        best = "-" if run.best is None else f"{_LABELS[run.metric]} {run.best:.2f}"
        rows.append(
            [
                run.name,
                run.state,
                best,
                "-" if run.best_step is None else f"{run.best_step:,}",
                "-" if run.num_parameters is None else f"{run.num_parameters:,}",
                f"{run.num_updates:,}",
                "-" if run.seconds is None else f"{run.seconds / 60:.1f}",
                f"{run.num_bytes / 1e6:,.1f}",
            ]
        )
    return rows


def _word(value: object) -> str:
    return "-" if value is None else str(value)
