"""Processes that help another one, and end with it."""

import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import parent_process


def serve_parent() -> None:
    """Make this process a helper: its parent answers signals for both, and leaves no orphan.

    To be called once, in a process that `multiprocessing` started. When the parent is killed, the
    pipes between them alone would wait for ever.
    """
    # Ctrl-C and SIGHUP reach all processes of a terminal, the warning of a batch system all of a
    # job. Not SIGTERM: it is how pools end their processes.
    for name in ("SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def end_pool(pool: ProcessPoolExecutor) -> None:
    """End the processes of a pool in the middle of their work, without waiting for them.

    For who leaves by an error or Ctrl-C. Otherwise the end of the program would wait for what they
    are doing; a second Ctrl-C would interrupt that, and they and it would wait for each other.
    """
    for process in list((pool._processes or {}).values()):
        process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)
