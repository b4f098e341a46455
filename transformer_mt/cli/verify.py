"""`tmt verify`: integrity checks of models, runs, corpora and tokenizers."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.errors import ModelError
from transformer_mt.locations import newest_run

EXAMPLES = (
    "tmt verify runs/mine",
    "tmt verify runs/mine/best --no-score",
    "tmt verify data/corpora/0123456789abcdef --json",
)


def verify(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory of a model, run, corpus or tokenizer.")
    ] = Path("runs/latest"),
    score: Annotated[
        bool,
        typer.Option(help="Translate the validation set again and compare the scores."),
    ] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per finding.")
    ] = False,
) -> None:
    """Verify files by their hashes, and models by their scores."""
    if directory.name == "latest" and not directory.is_dir():
        directory = newest_run(directory.parent) or directory
    if not directory.exists():
        raise ModelError(
            f"{directory}: no such folder: expected a model, a run, a corpus or a tokenizer"
        )

    from transformer_mt.training.verification import verify as verify_directory

    problems = 0
    for finding in verify_directory(directory, rescore=score):
        problems += finding.problem is not None
        if as_json:
            typer.echo(json.dumps(asdict(finding), default=str, ensure_ascii=False))
        else:
            verdict = "ok" if finding.problem is None else f"NOT OK: {finding.problem}"
            fact = f" ({finding.fact})" if finding.fact and finding.problem is None else ""
            typer.echo(f"{finding.directory}: {finding.what} {verdict}{fact}")
    if problems:
        raise ModelError(f"{directory}: {problems} of the checks failed")
