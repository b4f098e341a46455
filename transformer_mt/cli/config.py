"""`tmt config`: show, check and describe configs."""

import json
import logging
from typing import Annotated, Any

import typer

from transformer_mt.cli.command import Command
from transformer_mt.cli.help import examples
from transformer_mt.cli.options import Overrides
from transformer_mt.config.json_schema import config_schema
from transformer_mt.config.loading import dump_config, find_config, load_config
from transformer_mt.config.unused import unused_settings
from transformer_mt.errors import ConfigError, DataError
from transformer_mt.log import counted

logger = logging.getLogger(__name__)

group = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show, check and describe configs.",
    epilog=examples(
        "tmt config show base.yaml",
        "tmt config check configs/*.yaml",
        "tmt config schema > config.schema.json",
    ),
)


def register(app: typer.Typer) -> None:
    """Add `tmt config` to the program."""
    app.add_typer(group, name="config")


class ConfigArgument(Command):
    """A command whose configs may also be named as other commands want it, with `--config`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line without the name of that option."""
        named = [argument.removeprefix("--config=") for argument in args]
        return super().parse_args(ctx, [name for name in named if name not in ("--config", "-c")])


@group.command(
    cls=ConfigArgument,
    epilog=examples(
        "tmt config show base.yaml",
        "tmt config show base.yaml --set training.max_steps=1000 > mine.yaml",
    ),
)
def show(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="Config file, or name of a recipe.")
    ],
    settings: Overrides = [],  # noqa: B006 - typer reads the default; nothing changes it
) -> None:
    """Print a config with all its settings, defaults included."""
    typer.echo(dump_config(load_config(find_config(config), settings)), nl=False)


@group.command(
    cls=ConfigArgument,
    epilog=examples(
        "tmt config check base.yaml",
        "tmt config check configs/*.yaml --set training.max_steps=1000",
    ),
)
def check(
    configs: Annotated[
        list[str], typer.Argument(metavar="CONFIG", help="Config files, or names of recipes.")
    ],
    settings: Overrides = [],  # noqa: B006 - typer reads the default; nothing changes it
) -> None:
    """Report every mistake of configs; a line with `ok` for each good one.

    Settings that have no effect are warned of, and so are files of the data that are not there.
    Devices are not looked for.
    """
    from transformer_mt.data.sources import check_files

    mistakes = []
    for name in configs:
        try:
            config = load_config(find_config(name), settings)
        except ConfigError as error:
            mistakes.append(str(error))
            continue
        for warning in unused_settings(config):
            logger.warning("%s: %s", name, warning)
        try:
            found = f"; {counted(check_files(config.data), 'file')} found"
        except DataError as error:
            found = ""
            for line in str(error).splitlines():
                logger.warning("%s: %s", name, line)
        typer.echo(f"{name}: settings ok{found}")
    if mistakes:
        raise ConfigError("\n".join(mistakes))


@group.command(
    epilog=examples(
        "tmt config schema > config.schema.json",
        "# then, as first line of a config, for editors with a YAML language server:",
        "# yaml-language-server: $schema=config.schema.json",
    )
)
def schema() -> None:
    """Print all settings as JSON Schema, for editors and other programs."""
    typer.echo(json.dumps(config_schema(), indent=2, ensure_ascii=False))
