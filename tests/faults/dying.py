"""Fault injection: child processes that die, or whose disk fills up, at a chosen moment.

A test of crashes asks for each number N = 1, 2, ..: if the program dies just before its Nth change
of a file, does the same command finish the work? Three means, all of them in a forked child, so
that the test itself, and all it has imported, stay as they are:

- `dies_at` replaces `open`, `os.fsync`, `os.rename` and the like by functions that count their
  calls. At call N the child leaves by `os._exit`, without any cleaning up, as after SIGKILL; or it
  first truncates what was written and not synced, as after a loss of power; or every call that
  needs room fails from then on, as on a full disk.
- `at_line` counts lines of code that run for the first time (`sys.settrace`), and calls a function
  at line N: a signal, or an error, may come between any two lines.
- `run_in_child` kills after a time.

A run is over when N is past its last change: the child ends by itself, with code 0.
`FAULTS_SHOW=1` lets children print their errors.
"""

import builtins
import errno
import io
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from transformer_mt.storage import folders as storage

DEAD = 137
Fate = Literal["killed", "power lost", "disk full"]
_NEEDS_ROOM = ("fsync", "rename", "replace", "mkdir")
_CALLS = (*_NEEDS_ROOM, "unlink", "rmdir", "ftruncate")


def run_in_child(
    action: Callable[[], object],
    *,
    kill_after: float | None = None,
    number: signal.Signals = signal.SIGKILL,
) -> int:
    """Run something in a process of its own, silently; return its exit code, -N for signal N.

    Args:
        action: May leave by `SystemExit` with a number.
        kill_after: Seconds until it gets a signal, if it is still alive then.
        number: The signal.
    """
    child = start_child(action)
    if kill_after is not None:
        deadline = time.monotonic() + kill_after
        while time.monotonic() < deadline:
            if (found := os.waitpid(child, os.WNOHANG))[0]:
                return os.waitstatus_to_exitcode(found[1])
            time.sleep(0.002)
        os.kill(child, number)
    return exit_code_of(child)


def start_child(action: Callable[[], object], output: Path | None = None) -> int:
    """Start a process that runs something; return its number.

    Args:
        action: May leave by `SystemExit` with a number.
        output: Gets what it prints on stdout, and beside it, with `.err`, what on stderr; without
            one it is silent.
    """
    outputs = () if output is None else (output, Path(f"{output}.err"))
    for path in outputs:
        path.write_text("")
    child = os.fork()
    if not child:
        code = 1
        try:
            if output is None:
                quiet = os.open(os.devnull, os.O_WRONLY)
                os.dup2(quiet, 1)
                if "FAULTS_SHOW" not in os.environ:
                    os.dup2(quiet, 2)
            else:
                _print_to(*outputs)
            action()
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            if output is not None or "FAULTS_SHOW" in os.environ:
                sys.excepthook(*sys.exc_info())
        finally:
            if output is not None:
                sys.stdout.flush()
            os._exit(code)
    return child


def _print_to(*paths: Path) -> None:
    """Let stdout and stderr go to files, also where pytest has put streams of its own."""
    for number, path in enumerate(paths, start=1):
        os.dup2(os.open(path, os.O_WRONLY), number)
    sys.stdout, sys.stderr = (
        open(number, "w", buffering=1, closefd=False)  # noqa: SIM115 - until the process ends
        for number in (1, 2)
    )


def exit_code_of(child: int) -> int:
    """Wait for a process; return its exit code, -N for signal N."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_ranks(size: int, action: Callable[[int], object]) -> list[int]:
    """Run something in processes that find each other as ranks of a run; return exit codes."""
    return [exit_code_of(child) for child in start_ranks(size, action)]


def start_ranks(
    size: int,
    action: Callable[[int], object],
    *,
    num_absent: int = 0,
    outputs: Sequence[Path] | None = None,
) -> list[int]:
    """Start processes that find each other as ranks of a run, as SLURM does; return their numbers.

    Nobody watches over them but they themselves, and they need not import torch once more.

    Args:
        size: Number of ranks.
        action: Gets the rank.
        num_absent: The last ones are not started.
        outputs: Of each rank, see `start_child`.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def run(rank: int) -> None:
        if size > 1:
            world = {"WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            world |= {"RANK": rank, "LOCAL_RANK": rank}
            os.environ.update({name: str(value) for name, value in world.items()})
        action(rank)

    return [
        start_child(partial(run, rank), None if outputs is None else outputs[rank])
        for rank in range(size - num_absent)
    ]


def at_line(number: int, files: Sequence[str], action: Callable[[], object]) -> None:
    """Do something when this thread comes to the `number`th line that it has not run before.

    Args:
        number: From 1.
        files: How the names of the files begin whose lines count.
        action: May raise: it does so in that line.
    """
    seen = set()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(tuple(files)):
            return None
        if event == "line" and len(seen) < number:
            seen.add((frame.f_code, frame.f_lineno))
            if len(seen) == number:
                action()
        return trace

    sys.settrace(trace)


def dies_at(number: int, root: Path, fate: Fate) -> None:
    """Make something happen just before this process's call number `number` that changes files.

    Args:
        number: Counts from 1 calls of fsync, rename, unlink and the like, and files opened for
            writing.
        root: Files opened elsewhere are not counted.
        fate: The process dies; it dies, and of what was written and not synced half is there; or
            from then on nothing can be written, only removed.
    """
    made = 0
    old = {path.stat().st_ino for path in _files(root)}
    truncate = os.truncate
    synced: dict[int, int] = {}  # by inode: bytes that are on the disk for certain

    def point(name: str) -> None:
        nonlocal made
        made += 1
        if fate == "disk full":
            if made >= number and name in _NEEDS_ROOM:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        elif made == number:
            if fate == "power lost":
                for path in _files(root):
                    stat = path.stat()
                    safe = synced.get(stat.st_ino, stat.st_size if stat.st_ino in old else 0)
                    truncate(path, min(stat.st_size, max(safe, stat.st_size // 2)))
            os._exit(DEAD)

    def counted(original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            point(name)
            result = original(*args, **kwargs)
            if name == "fsync":
                stat = os.fstat(args[0])
                synced[stat.st_ino] = stat.st_size
            return result

        return call

    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if set(mode) & set("wax+") and str(file).startswith(str(root)):
            point(_NEEDS_ROOM[0])
        return original_open(file, mode, *args, **kwargs)

    original_open = io.open
    io.open = builtins.open = opened  # type: ignore[assignment]
    for name in _CALLS:
        setattr(os, name, counted(getattr(os, name), name))
    storage._exchange = counted(storage._exchange, "rename")


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]
