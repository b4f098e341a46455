"""Options and work that `tmt distill` and `tmt backtranslate` share."""

import json
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from transformer_mt.cli.model_loading import in_direction, load_of_options
from transformer_mt.cli.options import search_options_of
from transformer_mt.cli.output_files import progress_bar
from transformer_mt.cli.shard_options import lines_of_part, share_of, workers_of
from transformer_mt.translation.load import make_translator

Folder: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--output",
        metavar="DIR",
        help="Directory of the pairs; the same command continues what was stopped.",
    ),
]
Keep: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="X",
        help="Share of the translations to keep: those with the highest mean log-probability of "
        "a token.",
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def write_pairs(
    ctx: typer.Context, texts: list[Path], folder: Path, writes: Literal["src", "tgt"]
) -> None:
    """Translate texts as the options of a command say, and print the source for a config.

    Args:
        ctx: Of the command.
        texts: Files of lines.
        folder: Where the pairs go.
        writes: The side that the model writes: see `translation.synthetic.synthesize`.
    """
    from transformer_mt.translation.synthetic import (
        check_texts,
        rows_of,
        shards_of,
        synthesize,
    )

    given, keep, share = search_options_of(ctx), ctx.params["keep"], share_of(ctx)
    check_texts(texts, folder, keep=keep)
    run_workers = None if share else workers_of(ctx, folder)
    bundle = in_direction(ctx, load_of_options(ctx))
    translator = make_translator(bundle, given)
    precision, part_lines = ctx.params["precision"], lines_of_part(ctx, texts)
    if share is not None:
        shards = shards_of(
            translator,
            bundle,
            texts,
            folder,
            writes=writes,
            precision=precision,
            part_lines=part_lines,
        )
        shards.work(rows_of(translator, bundle), share=share)
        return
    with progress_bar("translate", " lines") as show:
        made = synthesize(
            translator,
            bundle,
            texts,
            folder,
            writes=writes,
            keep=keep,
            precision=precision,
            part_lines=part_lines,
            run_workers=run_workers,
            on_progress=show,
        )
    if ctx.params["as_json"]:
        from dataclasses import asdict

        typer.echo(json.dumps(asdict(made), ensure_ascii=False))
        return
    tag = f", tag: {ctx.params['tag']}" if ctx.params.get("tag") else ""
    paths = (json.dumps(path, ensure_ascii=False) for path in (made.src, made.tgt))
    typer.echo("- {{type: text, src: {}, tgt: {}{}}}".format(*paths, tag))
