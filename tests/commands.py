"""Command lines, run in the process of the test or in one of their own."""

import os
import subprocess
import sys

from click.testing import Result
from typer.testing import CliRunner

from transformer_mt.cli.main import app


def tmt(*arguments: object, data: bytes = b"", **environment: str | None) -> Result:
    """Run `tmt`; data is its stdin."""
    # The workplace of a person who runs the tests may name a model.
    environment = {"TMT_MODEL": None} | environment
    return CliRunner().invoke(app, [*map(str, arguments)], input=data, env=environment)


_REPORTING_IMPORTS = """
import sys
from transformer_mt.cli.main import main
sys.argv = ["tmt", *sys.argv[1:]]
code = 0
try:
    main()
except SystemExit as stop:
    code = stop.code
print(*{name.partition(".")[0] for name in sys.modules}, *sys.modules, file=sys.__stdout__)
sys.exit(code)
"""


def imports_of(
    *arguments: object, data: bytes = b"", **environment: str
) -> tuple[int, set[str], str]:
    """Run `tmt` in a process of its own: its exit code, what it imported, its stderr."""
    done = subprocess.run(
        [sys.executable, "-c", _REPORTING_IMPORTS, *map(str, arguments)],
        input=data,
        capture_output=True,
        env=os.environ | environment,
    )
    return done.returncode, set(done.stdout.decode().split("\n")[-2].split()), done.stderr.decode()
