"""Errors that a user can mend, each with its exit code.

Anything else that is raised is a fault of the program and shows its stack.
"""

import errno

_REASONS = {
    errno.ENOSPC: "no space left on the device",
    errno.EDQUOT: "disk quota exceeded",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EFBIG: "the file is larger than this system allows",
    errno.EIO: "the device reports an input/output error",
}


class TmtError(Exception):
    """Base of all errors that a user can mend.

    The message is one line (several for a list of config errors): where, what was expected, what
    came, what to do.
    """

    exit_code = 1


class ConfigError(TmtError):
    """A wrong config file, option or combination of options."""

    exit_code = 2


class DataError(TmtError):
    """Text, corpora or tokenizers that cannot be read or used."""

    exit_code = 3


class ModelError(TmtError):
    """A checkpoint or model bundle that is missing, damaged or does not fit."""

    exit_code = 4


class DivergedError(TmtError):
    """Training that produced numbers it cannot recover from."""

    exit_code = 5


class InterruptedRun(TmtError):  # noqa: N818 - not a fault: the run can be continued
    """A run that a signal stopped after saving; the same command continues it."""

    exit_code = 75


UNREADABLE_JSON = (OSError, ValueError, LookupError, TypeError, RecursionError)
"""What it may raise to read JSON of a known form from a file that is missing or damaged."""


def reason_of(error: OSError) -> str:
    """Say in a user's words why the system refused."""
    known = _REASONS.get(error.errno or 0)
    return known or (error.strerror.lower() if error.strerror else str(error))


def brief(error: BaseException) -> str:
    """Return the type and the first line of an error that others raised."""
    first_line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line}"
