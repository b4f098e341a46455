"""Keys that allow the use of a server."""

import hashlib
import hmac
import ipaddress
import os
from collections.abc import Iterable
from pathlib import Path

from transformer_mt.errors import ConfigError, reason_of

VARIABLE = "TMT_SERVE_KEYS"
SHORTEST = 8


class Keys:
    """Keys, kept as hashes.

    Args:
        keys: In plain text; none: nobody needs one.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._hashes = [_hash(key) for key in keys]

    def __bool__(self) -> bool:
        """Return whether a key is needed."""
        return bool(self._hashes)

    def allow(self, key: str) -> bool:
        """Return whether a key is one of them, in the same time for each wrong one."""
        given = _hash(key)
        # All are compared, so that the time does not tell which one matched.
        return any([hmac.compare_digest(given, own) for own in self._hashes])


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def read_keys(path: Path | None) -> Keys:
    """Read keys from a file, one on each line, and from `$TMT_SERVE_KEYS`, with spaces between.

    Raises:
        ConfigError: If the file cannot be read or has none, or a key is short.
    """
    keys = os.environ.get(VARIABLE, "").split()
    if path is not None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigError(f"--key-file {path}: cannot be read: {reason}") from error
        found = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not found:
            raise ConfigError(f"--key-file {path}: expected a key on each line, found none")
        keys += found
    if any(len(key) < SHORTEST for key in keys):
        raise ConfigError(f"a key has at least {SHORTEST} characters: `openssl rand -hex 24`")
    return Keys(keys)


def is_local(host: str) -> bool:
    """Return whether only programs of this machine reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
