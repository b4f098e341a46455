"""Optional packages (extras), missed in one line where they are needed."""

import importlib.util

from transformer_mt.errors import ConfigError


def need(package: str, *, extra: str) -> None:
    """Make sure that a package of an extra is installed.

    Raises:
        ConfigError: If it is not; names what to install.
    """
    if importlib.util.find_spec(package) is None:
        raise ConfigError(
            f"{package} is not installed: run `pip install 'transformer_mt[{extra}]'`"
        )
