"""Errors that a user can fix, each with its exit code.

Any other exception is a bug and shows its traceback.
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
    """Base of all errors that a user can fix.

    The message is one line (several for a list of config errors): where, what was expected, what
    was found, what to do.
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


class InterruptedRun(TmtError):  # noqa: N818 - not an error: the run can be resumed
    """A run that a signal stopped after saving; the same command resumes it."""

    exit_code = 75


UNREADABLE_JSON = (OSError, ValueError, LookupError, TypeError, RecursionError)
"""Exceptions from reading JSON of a known form from a file that is missing or damaged."""


def reason_of(error: OSError) -> str:
    """Return why the system refused, in plain words."""
    known = _REASONS.get(error.errno or 0)
    return known or (error.strerror.lower() if error.strerror else str(error))


def brief(error: BaseException) -> str:
    """Return the type and first line of an exception from another library."""
    first_line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line}"
