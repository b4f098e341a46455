"""Run directories: paths, the lock, the recorded settings and the manifest."""

import logging
import os
import platform
import shlex
import socket
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import torch

from transformer_mt.config.dumping import config_differences, dump_config
from transformer_mt.config.loading import load_recorded
from transformer_mt.config.schema import Config
from transformer_mt.config.training import LIMITS as LIMIT_NAMES
from transformer_mt.data.evaluation_sets import HELD_OUT
from transformer_mt.errors import UNREADABLE_JSON, ConfigError, TmtError
from transformer_mt.locations import CONFIG, EVENTS, LOCK, METRICS, RESULT
from transformer_mt.log import JsonValue
from transformer_mt.processors import num_processors
from transformer_mt.storage.folders import (
    explain_write_errors,
    put_in_place,
    remove_leftovers,
    replace_file,
    replace_json,
)
from transformer_mt.storage.locks import lock
from transformer_mt.storage.untrusted import open_in_place, read_json
from transformer_mt.training.checkpoint import list_checkpoints
from transformer_mt.versions import installed_versions

logger = logging.getLogger(__name__)

_CPU_INFO = Path("/proc/cpuinfo")

LIMITS = tuple(f"training.{name}" for name in LIMIT_NAMES)
# Settings that do not change what a step computes: a run may be resumed with others. All else must
# be as it was, or the run would be a mixture of two.
CHANGEABLE = (
    *LIMITS,
    "data.corpus_dir",
    "data.num_workers",
    "data.test",
    "decoding.batch_tokens",
    "training.activation_checkpointing",
    "training.checkpoints",
    "training.device",
    "training.log_every_steps",
    "training.max_rollbacks",
    "training.micro_batch_tokens",
    "training.parallel",
    "training.rank_timeout_minutes",
    "training.runs_dir",
    "training.tensorboard",
    "training.trackio",
    "training.validation.every_steps",
    "training.validation.min_validations",
    "training.validation.num_samples",
    "training.validation.patience",
)
# What may change together with a limit: a prolonged run may want another learning rate.
CHANGEABLE_WITH_LIMITS = ("training.lr", "training.schedule")


class RunDirectory:
    """Paths of a run.

    Attributes:
        root: `runs_dir/NAME`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config_path = root / CONFIG
        self.manifest_path = root / "manifest.json"
        self.metrics_path = root / METRICS
        self.events_path = root / EVENTS
        self.preparation_path = root / "preparation.json"
        self.result_path = root / RESULT
        self.curve_path = root / "curve.png"
        self.tensorboard_dir = root / "tensorboard"
        self.lock_path = root / LOCK
        self.samples_dir = root / "samples"
        self.held_out_dir = root / HELD_OUT
        self.tokenizer_dir = root / "tokenizer"
        self.checkpoints_dir = root / "checkpoints"
        self.best_dir = root / "best"
        self.averaged_dir = root / "averaged"
        self._lock: IO[str] | None = None
        self._aside: Path | None = None

    def claim(self, config: Config, *, fresh: bool) -> None:
        """Make or reopen the folder for one process to write in.

        Args:
            config: Settings of the run; they become `config.yaml`.
            fresh: Rename an older run of this name and start a new one.

        Raises:
            ConfigError: If a resumed run has settings that may not change; lists them. If it is
                finished, and its checkpoints are gone.
            TmtError: If another process writes in the folder, or nobody can.
        """
        with explain_write_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            self._take_lock()
        if fresh and self.config_path.exists():
            self._rename_old()
        for folder in (self.root, self.checkpoints_dir, self.samples_dir):
            remove_leftovers(folder)
        if list_checkpoints(self.checkpoints_dir):
            self._check_unchanged(config)
        elif self.result_path.exists():  # its best model would be taken for the new one
            raise ConfigError(
                f"{self.root}: this run is finished, and has no checkpoints to resume from: choose "
                "another name, or start over with --fresh"
            )
        replace_file(self.config_path, dump_config(config))

    def bring_back(self) -> None:
        """Undo `fresh` if the new run has not come to its first metrics or checkpoint.

        A mistake that shows only with the data at hand must not cost the run that was there.
        """
        if self._aside is None or self._lock is None:  # another process may have begun here
            return
        has_begun = self.metrics_path.exists() and self.metrics_path.stat().st_size > 0
        if has_begun or list_checkpoints(self.checkpoints_dir):
            return
        put_in_place(self._aside, self.root)
        self._aside = None

    def name_newest(self) -> None:
        """Make this the run that commands without `--model` use."""
        replace_file(self.root.parent / "latest", self.root.name + "\n")

    def write_manifest(self, config: Config, *, device: torch.device, facts: JsonValue) -> None:
        """Add what this start of the run rests on: versions, machine, command, seed, `facts`."""
        try:
            before = read_json(self.manifest_path)
            starts = list(before["starts"])
        except UNREADABLE_JSON:
            starts = []  # the first start, or damaged
        start = {
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "seed": config.seed,
            "versions": installed_versions(),
            "hardware": _hardware(device),
            "data": facts,
        }
        about = {"kind": "transformer_mt run", "format_version": 1}
        replace_json(self.manifest_path, {**about, "starts": [*starts, start]})

    def write_samples(self, step: int, samples: Sequence[tuple[str, str, str]]) -> None:
        """Keep translations for people to read: (source, reference, hypothesis) each."""
        text = "\n".join(
            f"source     {source}\nreference  {reference}\nhypothesis {hypothesis}\n"
            for source, reference, hypothesis in samples
        )
        replace_file(self.samples_dir / f"step-{step}.txt", text)

    def release(self) -> None:
        """Let other processes write in the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _take_lock(self) -> None:
        # Held by the open file: the system frees it when the process ends, however it ends.
        file = open_in_place(self.lock_path, "a+")
        is_locked = lock(file.fileno())
        if is_locked is None:
            logger.warning("%s: no locks here: nothing keeps a second run out", self.root)
        if is_locked is False:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise TmtError(
                f"{self.root}: another process trains in this folder ({holder}): "
                "wait for it, stop it, or choose another name"
            )
        file.truncate(0)
        file.write(f"host {socket.gethostname()}, process {os.getpid()}\n")
        file.flush()
        self._lock = file

    def _rename_old(self) -> None:
        number = 1
        while (aside := self.root.with_name(f"{self.root.name}.old-{number}")).exists():
            number += 1
        # In one step: half of a run in either folder would be no run at all.
        with explain_write_errors(aside):
            if os.name == "nt":
                self.release()  # a folder with an open file cannot be renamed there
            self.root.rename(aside)
            self._aside = aside
            self.release()
            self.root.mkdir(exist_ok=True)
            self._take_lock()

    def _check_unchanged(self, config: Config) -> None:
        differences = config_differences(load_recorded(self.config_path), config)
        is_prolonged = any(line.startswith(LIMITS) for line in differences)
        changeable = CHANGEABLE + CHANGEABLE_WITH_LIMITS * is_prolonged
        differences = [line for line in differences if not line.startswith(changeable)]
        if differences:
            raise ConfigError(
                f"{self.root}: the run was started with other settings:\n"
                + "".join(f"  {line}\n" for line in differences)
                + "set them back to resume, choose another name, or start over with --fresh"
            )


def _hardware(device: torch.device) -> dict[str, JsonValue]:
    facts: dict[str, JsonValue] = {
        "machine": platform.machine(),
        "system": platform.platform(),
        "processor": _processor(),
        "num_processors": num_processors(),
        "num_threads": torch.get_num_threads(),
        "device": str(device),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts["accelerator"] = properties.name
        facts["accelerator_bytes"] = properties.total_memory
    return facts


def _processor() -> str:
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8").split("\n")
    except OSError:
        lines = []
    facts = {
        name.strip(): text.strip() for name, _, text in (line.partition(":") for line in lines)
    }
    if "model name" in facts:
        return facts["model name"]
    if "CPU part" in facts:  # ARM reports numbers alone
        return f"implementer {facts.get('CPU implementer', '?')}, part {facts['CPU part']}"
    return platform.processor() or platform.machine()
