"""Processes that die at a chosen call to the system, as by `kill -9` or by loss of power."""

import builtins
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from transformer_mt import storage

DEAD = 137
_CALLS = ("fsync", "rename", "replace", "unlink", "rmdir", "mkdir", "ftruncate")


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


def start_child(action: Callable[[], object]) -> int:
    """Start a process that runs something, silently; return its number."""
    child = os.fork()
    if not child:
        code = 1
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            if "FAULTS_SHOW" not in os.environ:
                os.dup2(quiet, 2)
            action()
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            if "FAULTS_SHOW" in os.environ:
                sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)
    return child


def exit_code_of(child: int) -> int:
    """Wait for a process; return its exit code, -N for signal N."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


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


def dies_at(number: int, root: Path, *, loses_power: bool) -> None:
    """Make this process die just before its call number `number` that changes files, from 1.

    Args:
        number: Counts calls of fsync, rename, unlink and the like, and files opened for writing.
        root: What happens elsewhere is not counted.
        loses_power: What was written and not synced is then half there.
    """
    made = 0
    old = {path.stat().st_ino for path in _files(root)}
    truncate = os.truncate
    synced: dict[int, int] = {}  # by inode: bytes that are on the disk for certain

    def point() -> None:
        nonlocal made
        made += 1
        if made == number:
            if loses_power:
                for path in _files(root):
                    stat = path.stat()
                    safe = synced.get(stat.st_ino, stat.st_size if stat.st_ino in old else 0)
                    truncate(path, min(stat.st_size, max(safe, stat.st_size // 2)))
            os._exit(DEAD)

    def counted(original: Callable[..., Any], is_sync: bool) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            point()
            result = original(*args, **kwargs)
            if is_sync:
                stat = os.fstat(args[0])
                synced[stat.st_ino] = stat.st_size
            return result

        return call

    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if set(mode) & set("wax+") and str(file).startswith(str(root)):
            point()
        return original_open(file, mode, *args, **kwargs)

    original_open = io.open
    io.open = builtins.open = opened  # type: ignore[assignment]
    for name in _CALLS:
        setattr(os, name, counted(getattr(os, name), name == "fsync"))
    storage._exchange = counted(storage._exchange, False)


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]
