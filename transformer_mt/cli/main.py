"""The program `tmt`: commands, exit codes, and errors in one line.

Each command is a module `cli/NAME.py` with a function `NAME` and its `EXAMPLES`, or with a `group`
of commands. Modules are listed in `COMMANDS` with their summaries, in the order of the help page,
and are imported when their command is used. At import such a module may load the standard library,
`typer`, `errors`, `log`, `config`, `locations`, `translation.load`, `api`, and modules of `cli`
that load no more: torch, numpy, sentencepiece, sacrebleu and datasets are imported inside the
command's function, after what a user typed has been checked.

A command raises `TmtError` and does not catch it: `CommandGroup` turns it into one line on stderr
and the exit code. Results go to stdout, everything else to stderr through `logging`.
"""

import importlib
import io
import logging
import os
import sys
import traceback
from contextlib import suppress
from keyword import iskeyword
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from transformer_mt.cli.command import Command, examples
from transformer_mt.cli.output_files import named_stdout
from transformer_mt.errors import InterruptedRun, TmtError, reason_of
from transformer_mt.log import configure_logging, printable

COMMANDS = {
    "init": "Write a config for your own text.",
    "doctor": "Check environment, config and data, and forecast time and memory of training.",
    "clean": "Drop the bad pairs of a parallel text, each with its reason.",
    "train": "Train a model from a config.",
    "translate": "Translate text, one sentence per line.",
    "serve": "Serve translations over HTTP, with a web page.",
    "evaluate": "Translate and score test sets, or score existing translations.",
    "compare": "Compare systems: parameters, speed, scores, statistical significance.",
    "score": "Print log-probabilities of given translations.",
    "rescore": "Re-rank n-best lists with the scores of other models.",
    "shortlist": "Learn a lexical shortlist, which speeds up translation.",
    "distill": "Translate training text by a teacher, for a student.",
    "backtranslate": "Translate target text into synthetic source text.",
    "explain": "Write a web page that shows how a sentence is translated.",
    "average": "Average the weights of several checkpoints of a run, or of several models.",
    "export": "Export a model to another program's format.",
    "import": "Import a model of Marian, OPUS-MT, M2M-100 or NLLB.",
    "verify": "Verify files by their hashes, and models by their scores.",
    "runs": "List runs: state, best score, size, time, differences of their settings.",
    "plot": "Plot learning curves of runs.",
    "inspect": "Print parameters, FLOPs and memory of a model, and the cost of its training.",
    "bench": "Measure speed and memory of training and translation.",
    "data": "Convert, describe, split and sample parallel text.",
    "tokenizer": "Train, apply and inspect tokenizers.",
    "config": "Show, check and describe configs.",
}
"""The commands and their summaries, so that the help page needs none of their modules."""

SYNONYMS = {
    "bleu": "evaluate",
    "eval": "evaluate",
    "test": "evaluate",
    "decode": "translate",
    "predict": "translate",
    "generate": "translate",
    "fit": "train",
    "resume": "train",
}
"""Commands of other programs, and ours that do the same."""

REMOVED = {
    "attention": "use `tmt explain`, which shows every head in a browser",
}
"""Commands of earlier versions, and what to do instead."""

CLOSED_PIPE = 141  # what a shell reports for a program that SIGPIPE ended


def load_command(name: str) -> Any:
    """Import the module of a command, and make the command."""
    holder = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    # A word of Python, as `import`, has an underscore as the name of a module and a function.
    own = f"{name}_" if iskeyword(name) else name
    module = importlib.import_module(f"transformer_mt.cli.{own}")
    if hasattr(module, "group"):
        holder.add_typer(module.group, name=name)
    else:
        holder.command(name, epilog=examples(*module.EXAMPLES))(getattr(module, own))
    _adopt(holder)
    return typer.main.get_group(holder).commands[name]


def _adopt(holder: typer.Typer) -> None:
    """Make all commands parse their arguments in the same way."""
    for command in holder.registered_commands:
        if command.cls in (None, TyperCommand):
            command.cls = Command
    for group in holder.registered_groups:
        if group.typer_instance is not None:
            _adopt(group.typer_instance)


class CommandGroup(TyperGroup):
    """The commands of `tmt`, with one place where errors become messages and exit codes."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; every error but those of usage ends here."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, typer.TyperException):
            raise  # usage errors, which typer prints with exit code 2
        except Exception as error:
            raise typer.Exit(report(error, debug=ctx.params.get("debug", False))) from error


class Program(CommandGroup):
    """All commands of `COMMANDS`, each made when it is first asked for."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: dict[str, Any] = dict.fromkeys(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, None if there is none of this name."""
        if cmd_name in COMMANDS and self.commands[cmd_name] is None:
            self.commands[cmd_name] = load_command(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that a line names; `help COMMAND` is `COMMAND --help`."""
        if args[0] == "help":
            if args[1:]:
                return super().resolve_command(ctx, [args[1], "--help"])
            typer.echo(ctx.get_help())
            raise typer.Exit
        if args[0] == "lab":
            ctx.fail(
                "`tmt lab` has left the program: run `python -m experiments` in a checkout "
                "(docs/lab.md)"
            )
        if args[0] in SYNONYMS:
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{SYNONYMS[args[0]]}'?")
        if args[0] in REMOVED:
            ctx.fail(f"'{args[0]}' was removed: {REMOVED[args[0]]}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the summaries, without making the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])


def report(error: Exception, *, debug: bool) -> int:
    """Print an error on stderr, its traceback only for `debug`, and return the exit code."""
    if debug:
        traceback.print_exception(error)
    if isinstance(error, BrokenPipeError):
        return CLOSED_PIPE
    prefix = "tmt: " if isinstance(error, InterruptedRun) else "tmt: error: "
    with suppress(OSError):  # a terminal that was closed
        print(printable(f"{prefix}{describe(error)}"), file=sys.stderr)
    return error.exit_code if isinstance(error, TmtError) else 1


def describe(error: Exception) -> str:
    """Return the message of an error, in one line where the error has only one."""
    name = type(error).__name__
    if isinstance(error, TmtError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f": {error.filename}"
        return f"{reason_of(error)}{where}"
    if isinstance(error, ImportError | OSError) and (text := _broken_installation(error)):
        return text
    if name == "OutOfMemoryError":  # torch's; importing torch to name it would take seconds
        return "the device is out of memory: lower training.micro_batch_tokens or the beam"
    if name == "MemoryError" or "DefaultCPUAllocator: can't allocate memory" in str(error):
        return "there is not enough memory: take a smaller model, batch or beam"
    first_line = str(error).strip().partition("\n")[0] or "no message"
    return (
        f"Internal error ({name}: {first_line}). This is a bug: rerun with `tmt --debug ..` and "
        "report the traceback."
    )


def _broken_installation(error: ImportError | OSError) -> str | None:
    """Name a package that is missing or cannot be loaded; None where that is not the cause."""
    frames = traceback.walk_tb(error.__traceback__)
    modules = [str(frame.f_globals.get("__name__")).partition(".")[0] for frame, _ in frames]
    if isinstance(error, OSError) and modules[-1:] != ["ctypes"]:  # which loads shared libraries
        return None
    own = __name__.partition(".")[0]
    importing = [m for m in modules if m not in sys.stdlib_module_names and m != "__main__"]
    package = importing[-1] if importing else own
    wanted = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
    if wanted == own:
        return None
    if isinstance(error, ModuleNotFoundError) and wanted not in ("", package):
        return f"the Python package {wanted} is not installed: `python -m pip install {wanted}`"
    if package == own:
        package = wanted
    if package in ("", own):
        return None
    first_line = str(error).strip().partition("\n")[0]
    return (
        f"the installation of {package} is damaged or does not fit: {first_line}; install it "
        f"again: `python -m pip install --force-reinstall {package}`"
    )


def print_version(wanted: bool) -> None:
    """Print the versions on one line, and stop."""
    if not wanted:
        return
    from transformer_mt.versions import installed_versions

    versions = installed_versions()
    commit = f" ({versions['commit']})" if versions["commit"] else ""
    typer.echo(
        f"tmt {versions['transformer_mt']}{commit}, torch {versions['torch'] or 'missing'}, "
        f"Python {versions['python']}"
    )
    raise typer.Exit


app = typer.Typer(
    name="tmt",
    cls=Program,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "tmt train --config base.yaml",
        "tmt translate < input.txt > output.txt",
        "tmt evaluate --bleu",
        "tmt --debug train --config base.yaml     with the traceback of an error",
    ),
)


@app.callback()
def tmt(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=print_version, is_eager=True, help="Print versions and exit."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="TMT_DEBUG", help="Print the traceback of an error.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print more.")] = False,
) -> None:
    """Train, evaluate and use neural machine translation models."""
    if quiet and verbose:
        raise typer.BadParameter("--quiet and --verbose exclude each other")
    configure_logging(
        logging.DEBUG if debug or verbose else logging.WARNING if quiet else logging.INFO
    )


def prepare_streams() -> None:
    """Make stdout and stderr UTF-8 with bare line feeds, whatever the locale says.

    Where stderr was closed from the start, messages go nowhere; stdout is then missed by what
    writes to it.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - open until the process ends
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = named_stdout(sys.stdout)


def main() -> None:
    """Run the command line; the process ends with its exit code."""
    prepare_streams()
    try:
        app(prog_name="tmt")  # also when started as `python -m transformer_mt`
        code: str | int | None = 0
    except SystemExit as stop:
        code = stop.code
    except Exception as error:  # outside of commands: while help or version are printed
        code = report(error, debug=False)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, TmtError) as error:
        code = code or report(error, debug=False)
        # Python flushes once more at its end; let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
