"""The program `tmt`: commands, exit codes, and errors in one line.

Each command is a module `cli/NAME.py` with a function

    def register(app: typer.Typer) -> None

that adds its command (or its group of commands, with `app.add_typer`) to `app`. Modules are
listed in `COMMANDS`, in the order of the help page. At import such a module may load the standard
library, `typer`, `errors`, `log` and `config`, and nothing else: torch, numpy, sentencepiece,
sacrebleu and datasets are imported inside the command's function, so that `tmt --help` answers at
once. A command raises `TmtError` and never catches it: `main` turns it into one line on stderr
and the exit code. Results go to stdout, everything else to stderr through `logging`.
"""
