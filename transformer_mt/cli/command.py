"""Command-line parsing and help layout that all commands share."""

import difflib
import os.path
from collections import Counter
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from transformer_mt.cli.options import as_text

ARGUMENTS = "transformer_mt.arguments"
"""In `ctx.meta`: the command line after the name of the command."""

CLOSE = 0.75
"""Similarity above which an unknown option counts as a typing error."""

SHORT = {"--input": "-i", "--output": "-o", "--model": "-m", "--config": "-c"}
"""Short forms of options, the same in every command."""

ELSEWHERE = {
    "resume": "the same command resumes an interrupted run",
    "text": "the text itself is the argument, in quotes",
    "gpu": "give --device cuda",
    "cpu": "give --device cpu",
}
"""Options of other programs, and what to type instead."""

FILES = ("CONFIG", "FILE|TEXT")
"""Metavars of arguments that may be file names, which may be any bytes."""


class Command(TyperCommand):
    """A command of `tmt`.

    An option with a single value can be given once; `~` in paths is the home folder; text is UTF-8
    in every locale; the options of the program, such as `-q`, may also follow the command.
    The help shows options in groups: the group of an option is its `rich_help_panel`, and those
    without come first.
    """

    def __init__(self, *positional: Any, **named: Any) -> None:
        super().__init__(*positional, **named)
        for parameter in self.params:
            if parameter.param_type_name == "option" and parameter.opts[0] in SHORT:
                parameter.opts.append(SHORT[parameter.opts[0]])

    def make_parser(self, ctx: Any) -> Any:
        """Return a parser that refuses what would otherwise be ignored."""
        parser: Any = super().make_parser(ctx)
        read = parser.parse_args
        program = ctx.find_root()
        options = [p for p in program.command.params if p.name in ("quiet", "verbose", "debug")]
        for option in options:
            option.add_to_parser(parser, program)

        def parse_args(args: list[str]) -> tuple[dict[str, Any], list[str], list[Any]]:
            """Return values by parameter, what is left over, and the parameters as given."""
            try:
                values, rest, order = read(args)
            except typer.TyperException as error:
                if hasattr(error, "possibilities"):  # there is no such option
                    self._explain(error)
                raise
            if ctx.resilient_parsing:  # the shell completes a line
                return values, rest, order
            for parameter, count in Counter(order).items():
                if count > 1 and _has_one_value(parameter):
                    ctx.fail(f"{parameter.opts[0]} is given {count} times; it takes one value")
            if rest:
                ctx.fail(self._about_extra(rest))
            if given := {p.name: values.pop(p.name) for p in options if p.name in values}:
                program.params.update(given)
                program.invoke(program.command.callback, **program.params)
            return values, rest, order

        parser.parse_args = parse_args
        return parser

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line into `ctx.params`."""
        ctx.meta[ARGUMENTS] = list(args)
        try:
            rest = super().parse_args(ctx, args)
        except typer.BadParameter as error:  # in the words of pydantic
            error.message = error.message.removeprefix("Value error, ").partition(", unable")[0]
            error.message = error.message.replace("Input should be", "must be")
            raise
        for parameter in [] if ctx.resilient_parsing else self.params:
            if parameter.name in ctx.params and parameter.metavar not in FILES:
                ctx.params[parameter.name] = _as_typed(ctx.params[parameter.name])
        return rest

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each group, in the order of their first options."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            group = getattr(parameter, "rich_help_panel", None) or "Options"
            if parameter.param_type_name == "argument":  # without its type in Python
                group, record = "Arguments", (parameter.metavar or parameter.name, record[1])
            groups.setdefault(group, []).append(record)
        for group, records in groups.items():
            if records:
                with formatter.section(group):
                    formatter.write_dl(records)

    def _explain(self, error: Any) -> None:
        """Complete the message about an unknown option."""
        name = error.option_name.lstrip("-").replace("-", "_")
        own = [option for p in self.params for option in p.opts if p.param_type_name == "option"]
        near = difflib.get_close_matches(error.option_name, own, n=1, cutoff=CLOSE)
        error.possibilities = []
        sets_decoding = any((p.metavar or "").startswith("decoding.") for p in self.params)
        if sets_decoding and (spelling := _moved(name)):
            error.message = f"{error.option_name} is now {spelling}"
            return
        hint = ELSEWHERE.get(name, "")
        if near:
            hint = f"did you mean {near[0]}?"
        elif "--set" in own and not sets_decoding:
            hint = hint or _as_setting(name)
        error.message += f"; {hint}" if hint else ""

    def _about_extra(self, rest: list[str]) -> str:
        """Return the message about arguments that the command does not take."""
        shown = " ".join(rest)
        if any(p.name == "settings" for p in self.params) and "=" in rest[0]:
            return f"Got unexpected extra argument(s) ({shown}): put --set before each setting"
        return f"Got unexpected extra argument(s) ({shown})"


def _has_one_value(parameter: Any) -> bool:
    """Whether the last value of a repeated option would win, also of `--x/--no-x`."""
    if parameter.param_type_name != "option" or parameter.multiple:
        return False
    return not parameter.is_flag or bool(parameter.secondary_opts)


def _as_typed(value: Any) -> Any:
    """Decode text, and replace `~` at the start of paths; leave other values alone."""
    if isinstance(value, str):
        return as_text(value)
    if isinstance(value, Path):
        return Path(os.path.expanduser(value))
    return type(value)(map(_as_typed, value)) if isinstance(value, list | tuple) else value


def _as_setting(name: str) -> str:
    """Return how to give an option as a setting of the config; nothing if there is none."""
    from transformer_mt.config.mistakes import settings_called

    found = settings_called(name)
    found.sort(key=lambda path: not path.startswith("training."))
    return f"give --set {found[0]}=.." if found else ""


def _moved(name: str) -> str:
    """Return the new spelling of an option that is a decoding setting now; nothing if it is not."""
    from transformer_mt.config.decoding import DecodingSettings

    if name == "devices":
        return "--device"
    setting = {"samples": "mbr_samples"}.get(name, name)
    return f"--set decoding.{setting}=.." if setting in DecodingSettings.model_fields else ""


def examples(*lines: str) -> str:
    """Lay out the examples that end the help text of a command, one command line each.

    Pass the result as `epilog` of the command.
    """
    # The control character tells the formatter to leave the line breaks alone.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
