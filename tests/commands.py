"""Command lines, run in the process of the test."""

from click.testing import Result
from typer.testing import CliRunner

from transformer_mt.cli.main import app


def tmt(*arguments: object, data: bytes = b"", **environment: str | None) -> Result:
    """Run `tmt`; data is its stdin."""
    # The workplace of a person who runs the tests may name a model.
    environment = {"TMT_MODEL": None} | environment
    return CliRunner().invoke(app, [*map(str, arguments)], input=data, env=environment)
