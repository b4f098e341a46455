"""`tmt config`: show, check and describe configs."""

import json
import logging
from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.command import examples
from transformer_mt.cli.options import ConfigArgument, ConfigName, Overrides, config_file
from transformer_mt.config.dumping import dump_config
from transformer_mt.config.loading import RECIPES, find_config, list_recipes, load_config
from transformer_mt.config.schema import config_schema
from transformer_mt.config.unused import unused_settings
from transformer_mt.errors import ConfigError, DataError, ModelError
from transformer_mt.locations import find_bundle
from transformer_mt.log import counted

logger = logging.getLogger(__name__)

group = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show, check and describe configs.",
    epilog=examples(
        "tmt config list",
        "tmt config show base.yaml",
        "tmt config check base mine.yaml",
        "tmt config schema > config.schema.json",
    ),
)


@group.command(name="list", epilog=examples("tmt config list"))
def list_() -> None:
    """Print the names of the recipes, configs that come with the program."""
    recipes = list_recipes()
    width = max(map(len, recipes))
    for name, summary in recipes.items():
        typer.echo(f"{name:{width}}  {summary}")
    logger.info("their files are in %s", RECIPES)


@group.command(
    epilog=examples(
        "tmt config show base.yaml",
        "tmt config show base.yaml --set training.max_steps=1000 > mine.yaml",
    ),
)
def show(
    argument: ConfigArgument = None,
    config: ConfigName = None,
    settings: Overrides = [],
) -> None:
    """Print a config with all its settings, defaults included."""
    path = config_file(argument, config)
    typer.echo(dump_config(load_config(path, settings)), nl=False)


@group.command(
    epilog=examples(
        "tmt config check base.yaml",
        "tmt config check *.yaml --set training.max_steps=1000",
        "tmt config check base.yaml --for ctranslate2 --for huggingface",
    ),
)
def check(
    arguments: Annotated[
        list[str], typer.Argument(metavar="CONFIG", help="Same as --config.")
    ] = [],
    configs: Annotated[
        list[str],
        typer.Option("--config", metavar="CONFIG", help="Config file or recipe name; repeatable."),
    ] = [],
    settings: Overrides = [],
    targets: Annotated[
        list[str],
        typer.Option(
            "--for",
            metavar="ctranslate2|huggingface|argos|marian|bergamot",
            help="Also report what keeps the model from being exported there; repeatable.",
        ),
    ] = [],
) -> None:
    """Report every mistake in configs, and data files that are missing.

    A config without mistakes is reported as `ok`; settings without effect get a warning. Exit code
    2: mistakes in a config; 3: missing data files, or a missing model to start from. Devices are
    not checked.
    """
    from transformer_mt.data.sources import check_files
    from transformer_mt.exchange.settings import TARGETS, obstacles

    for target in targets:
        if target not in TARGETS:
            raise ConfigError(f"--for {target}: expected {' or '.join(TARGETS)}")
    if not (names := [*arguments, *configs]):
        raise ConfigError("missing argument: give configs, as arguments or with --config")
    mistakes, missing = [], []
    for name in names:
        try:
            config = load_config(find_config(name), settings)
        except ConfigError as error:
            mistakes.append(str(error))
            continue
        for warning in unused_settings(config):
            logger.warning("%s: %s", name, warning)
        mistakes += [
            f"{name}: for {target}: {reason}"
            for target in targets
            for reason in obstacles(config, TARGETS[target])
        ]
        try:
            found = counted(check_files(config.data), "file")
            if config.training.init_from is not None:
                find_bundle(Path(config.training.init_from))
        except (DataError, ModelError) as error:
            missing += [f"{name}: {line}" for line in str(error).splitlines()]
        else:
            typer.echo(f"{name}: ok; {found} found")
    if mistakes:
        raise ConfigError("\n".join([*mistakes, *missing]))
    if missing:
        raise DataError("\n".join(missing))


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
