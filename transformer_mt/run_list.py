"""List of training runs in a folder: state, best score, size, differences of their settings."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from transformer_mt.bundle import count_parameters
from transformer_mt.config.dumping import settings_of
from transformer_mt.config.loading import load_recorded
from transformer_mt.config.schema import Config
from transformer_mt.errors import TmtError
from transformer_mt.locations import CONFIG, EVENTS, LOCK, METRICS, RESULT
from transformer_mt.log import read_metrics
from transformer_mt.metrics.scores import METRICS as KINDS
from transformer_mt.storage.locks import held

State: TypeAlias = Literal["running", "finished", "stopped", "diverged", "unreadable"]


@dataclass(frozen=True)
class ListedRun:
    """A run in a list.

    Attributes:
        name: Of its folder.
        state: `stopped` runs can be resumed; `unreadable` ones have damaged settings.
        note: Why it ended, or what is wrong with it; empty if that is not known.
        metric: By which its best model is selected: `loss`, or as in configs.
        best: Best validation by it; None before the first.
        best_step: Where that was.
        num_parameters: Of the best model; None before there is one.
        num_updates: At the last record.
        seconds: Trained until the last report, validations included.
        num_bytes: On the disk.
        settings: Those that are not the same in all runs of the list, by path.
    """

    name: str
    state: State
    note: str
    metric: str
    best: float | None
    best_step: int | None
    num_parameters: int | None
    num_updates: int
    seconds: float | None
    num_bytes: int
    settings: dict[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def list_runs(folder: Path) -> list[ListedRun]:
    """List the runs in a folder, by name.

    Raises:
        OSError: If the folder cannot be read.
    """
    found: list[tuple[ListedRun, Config | None]] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir() and ((path / LOCK).is_file() or (path / METRICS).is_file()):
            found.append(_read_run(path))
    configs = [config for _, config in found if config is not None]
    settings = [settings_of(config) for config in configs]
    differing = _differing([own | {"name": ""} for own in settings])
    own_settings = iter(settings)
    runs = []
    for run, config in found:
        values = {} if config is None else next(own_settings)
        runs.append(replace(run, settings={path: values.get(path) for path in differing if values}))
    return runs


def _read_run(path: Path) -> tuple[ListedRun, Config | None]:
    records = _records(path / METRICS)
    state, note = _state(path)
    config: Config | None = None
    try:
        config = load_recorded(path / CONFIG)
    except TmtError as error:
        if state != "running":  # one that begins has no settings yet
            state, note = "unreadable", str(error).partition("\n")[0]
    metric = "loss" if config is None else config.training.validation.select_by
    best, best_step = _best(records, metric)
    seconds = [record["seconds"] for record in records if "seconds" in record]
    run = ListedRun(
        name=path.name,
        state=state,
        note=note,
        metric=metric,
        best=best,
        best_step=best_step,
        num_parameters=_num_parameters(path / "best"),
        num_updates=max((record.get("step", 0) for record in records), default=0),
        seconds=seconds[-1] if seconds else None,
        num_bytes=_num_bytes(path),
    )
    return run, config


def _records(path: Path) -> list[dict[str, Any]]:
    try:
        return list(read_metrics(path))
    except OSError:  # nothing was written yet
        return []


def _state(path: Path) -> tuple[State, str]:
    """Return the state of a run, and why it ended."""
    try:
        with held(path / LOCK) as is_free:
            if is_free is False:
                return "running", ""
    except OSError:  # a run that was copied without its lock
        pass
    events = [record for record in _records(path / EVENTS) if "event" in record]
    last = events[-1] if events else {}
    if last.get("event") == "finished" or (not events and (path / RESULT).is_file()):
        return "finished", str(last.get("reason", ""))
    if last.get("event") == "diverged":
        return "diverged", str(last.get("reason", ""))
    if last.get("event") == "interrupted":
        return "stopped", f"signal {last.get('signal')}"
    return "stopped", "without a signal: killed, or an error"


def _best(records: Sequence[Mapping[str, Any]], metric: str) -> tuple[float | None, int | None]:
    """Return the best value of a metric at validations, and its step."""
    key = "valid_loss_nats" if metric == "loss" else f"valid_{metric}"
    found = [(record[key], record["step"]) for record in records if record.get(key) is not None]
    if not found:
        return None, None
    is_higher_better = metric != "loss" and KINDS[metric].higher_is_better  # type: ignore[index]
    choose = max if is_higher_better else min
    value, step = choose(found, key=lambda pair: pair[0])
    return float(value), int(step)


def _num_parameters(bundle: Path) -> int | None:
    try:
        return count_parameters(bundle)
    except TmtError:
        return None


def _num_bytes(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:  # removed at this moment
                continue
    return total


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the paths of settings that are not the same in all runs, in the order of configs."""
    paths = dict.fromkeys(path for own in settings for path in own)
    return [
        path
        for path in paths
        if any(own.get(path) != settings[0].get(path) for own in settings[1:])
    ]
