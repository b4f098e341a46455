"""Helper processes that end with their parent."""

import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import parent_process

ENDS_WITH_STDIN = "TMT_ENDS_WITH_STDIN"
"""Variable of the environment: see `end_with_stdin`."""


def serve_parent() -> None:
    """Make this process a helper: its parent handles signals for both, and it ends with the parent.

    Call it once, in a process that `multiprocessing` started. If the parent is killed, waiting on
    the pipes between them would never end.
    """
    # Ctrl-C and SIGHUP reach all processes of a terminal, the warning of a batch system all of a
    # job. Not SIGTERM: it is how pools end their processes.
    for name in ("SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def end_with_stdin() -> None:
    """End this process when the one that holds the other end of its stdin does.

    For processes that are started by `subprocess` with `ENDS_WITH_STDIN` in their environment.
    """
    if os.environ.pop(ENDS_WITH_STDIN, None):
        threading.Thread(target=_wait_for_stdin, daemon=True).start()


def _wait_for_stdin() -> None:
    with suppress(OSError):
        while os.read(0, 1024):
            pass
    os._exit(1)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def end_pool(pool: ProcessPoolExecutor) -> None:
    """Terminate the processes of a pool without waiting for their work.

    For leaving by an error or Ctrl-C. Otherwise the interpreter waits for their work at exit, and a
    second Ctrl-C there is a deadlock.
    """
    for process in list((pool._processes or {}).values()):
        process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)
