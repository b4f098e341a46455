"""Options that share a text among workers: processes here, a SLURM array, a Ray cluster.

A worker is the same command line with `--worker J/W`: see `translation.shards`.
"""

import importlib
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from transformer_mt.cli.command import ARGUMENTS
from transformer_mt.errors import ConfigError, brief
from transformer_mt.log import counted
from transformer_mt.processes import ENDS_WITH_STDIN, end_with_stdin
from transformer_mt.processors import THREADS_ARE_GIVEN, num_threads

MOST_WORKERS = 10_000
_POLL_SECONDS = 0.2

SHARDS = "Shards"
NumShards: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--shards",
        metavar="N",
        min=1,
        max=MOST_WORKERS,
        rich_help_panel=SHARDS,
        help="Let N workers share the text. The same command continues what was stopped.",
    ),
]
Place: TypeAlias = Annotated[
    Literal["local", "slurm", "ray"],
    typer.Option(
        "--on",
        rich_help_panel=SHARDS,
        help="Where workers run: processes here, a SLURM job array (needs submitit), or Ray.",
    ),
]
Worker: TypeAlias = Annotated[str | None, typer.Option(metavar="J/W", hidden=True)]

logger = logging.getLogger(__name__)


def share_of(ctx: typer.Context) -> tuple[int, int] | None:
    """Return which worker of how many this process is, from 0; None: it is none."""
    given = ctx.params["worker"]
    if given is None:
        if ctx.params["on"] != "local" and ctx.params["shards"] is None:
            raise ConfigError(f"--on {ctx.params['on']} has no effect without --shards N")
        return None
    found = re.fullmatch(r"(\d+)/(\d+)", given)
    if found is None or not int(found[1]) < int(found[2]):
        raise ConfigError(f"--worker {given}: expected J/W, as --shards gives it to its workers")
    end_with_stdin()
    return int(found[1]), int(found[2])


def lines_of_part(ctx: typer.Context, texts: Sequence[Path]) -> int:
    """Return how many lines a part has: few enough for each worker to get one."""
    from transformer_mt.cli.input_lines import count_lines
    from transformer_mt.translation.shards import PART_LINES

    num_workers: int | None = ctx.params["shards"]
    if num_workers is None:
        return PART_LINES
    return max(1, min(PART_LINES, -(-(count_lines(texts) or 1) // num_workers)))


def workers_of(ctx: typer.Context, folder: Path) -> Callable[[], None] | None:
    """Return what runs all workers of a command once; None without --shards.

    Raises:
        ConfigError: If what is to run them is not installed.
    """
    number = ctx.params["shards"]
    if number is None:
        return None
    own = [sys.executable, "-m", "transformer_mt", str(ctx.info_name), *ctx.meta[ARGUMENTS]]
    commands = [[*own, "--worker", f"{worker}/{number}"] for worker in range(number)]
    if ctx.params["on"] == "slurm":
        return _prepare_slurm(commands, folder)
    if ctx.params["on"] == "ray":
        return _prepare_ray(commands)
    return partial(_run_here, commands)


def _run_here(commands: Sequence[Sequence[str]]) -> None:
    """Run all at the same time on this machine; they end when this process does."""
    environment = os.environ | {ENDS_WITH_STDIN: "1"}
    if not THREADS_ARE_GIVEN:
        environment["OMP_NUM_THREADS"] = str(max(1, num_threads() // len(commands)))
    running = [subprocess.Popen(c, stdin=subprocess.PIPE, env=environment) for c in commands]
    try:
        while any(process.poll() is None for process in running):
            time.sleep(_POLL_SECONDS)
    finally:
        for process in running:
            if process.poll() is None:
                process.terminate()
            if process.stdin is not None:
                process.stdin.close()
            process.wait()
    _report([process.returncode for process in running])


def _report(codes: Sequence[int | None]) -> None:
    if failed := [code for code in codes if code]:
        logger.warning(
            "%s of %d ended early (%s): what is missing is tried again",
            counted(len(failed), "worker"),
            len(codes),
            ", ".join(f"killed by signal {-c}" if c < 0 else f"exit code {c}" for c in failed),
        )


def run_command(command: Sequence[str]) -> int:
    """Run a worker where a batch system put it; return its exit code."""
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode


def _prepare_slurm(commands: Sequence[Sequence[str]], folder: Path) -> Callable[[], None]:
    """Return what submits all as one job array, and waits for it.

    Partition, time, GPUs and the like are those of SLURM's own variables (SBATCH_PARTITION, ..).
    Where there is no SLURM, submitit runs them here, which is logged.
    """
    from transformer_mt.extras import need

    need("submitit", extra="slurm")
    import submitit

    executor = submitit.AutoExecutor(folder=folder / "jobs")
    executor.update_parameters(name="tmt", timeout_min=24 * 60)
    logger.info("workers run on %s; their output is in %s", executor.cluster, folder / "jobs")

    def run() -> None:
        """Submit and wait."""
        jobs = executor.map_array(run_command, commands)
        codes: list[int | None] = []
        for job in jobs:
            try:
                codes.append(job.result())
            except Exception as error:  # killed, timed out, lost: any of them is tried again
                logger.warning("job %s: %s", job.job_id, brief(error))
                codes.append(1)
        _report(codes)

    return run


def _prepare_ray(commands: Sequence[Sequence[str]]) -> Callable[[], None]:
    """Return what runs all as tasks of a Ray cluster, and waits for them.

    A task takes a GPU where the cluster has some. It must see the files under the same paths.
    """
    from transformer_mt.extras import need

    need("ray", extra="ray")
    ray: Any = importlib.import_module("ray")
    if not ray.is_initialized():
        ray.init()
    gpus = 1 if ray.cluster_resources().get("GPU", 0) else 0
    task = ray.remote(num_gpus=gpus, max_retries=0)(run_command)

    def run() -> None:
        """Start and wait."""
        codes: list[int | None] = []
        for result in [task.remote(command) for command in commands]:
            try:
                codes.append(ray.get(result))
            except ray.exceptions.RayError as error:
                logger.warning("a task failed: %s", brief(error))
                codes.append(1)
        _report(codes)

    return run
