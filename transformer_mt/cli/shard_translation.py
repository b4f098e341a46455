"""Translation of files in shards, shared by workers, to one output file."""

import io
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from transformer_mt.cli.options import given_options
from transformer_mt.cli.output_files import STDOUT
from transformer_mt.cli.shard_options import lines_of_part, share_of, workers_of
from transformer_mt.cli.streaming import chunks_of, fitting_size
from transformer_mt.cli.translation_output import Job
from transformer_mt.errors import ConfigError

if TYPE_CHECKING:
    from transformer_mt.bundle import Bundle
    from transformer_mt.translation.shards import Part

KIND = "transformer_mt shards of a translation"
WHOLE_TEXTS = (
    "--alignments", "--constraints", "--corrections", "--errors", "--format", "--interactive",
    "--memory", "--prefix", "--tab",
)  # fmt: skip
"""Options that need the whole text, or its other files, in one process."""
_WRITES = ("as_json", "engine", "glossary", "n_best", "protect", "split_sentences")

logger = logging.getLogger(__name__)


def check_shards(ctx: typer.Context, inputs: Sequence[Path]) -> bool:
    """Return whether a command is to translate in shards.

    Raises:
        ConfigError: If it cannot: with other options, or without files that can be read twice.
    """
    from transformer_mt.documents.formats import LINES

    if ctx.params["shards"] is None:
        share_of(ctx)  # refuses --on
        return False
    given = [name for name in given_options(ctx) if name in WHOLE_TEXTS]
    if ctx.params["format"] == LINES:
        given.remove("--format")
    if given:
        raise ConfigError(f"--shards does not go with {' and '.join(given)}: drop one")
    if not inputs or not all(path.is_file() for path in inputs):
        raise ConfigError("--shards needs files, which each worker reads: name them")
    if ctx.params["output"] in (None, STDOUT):
        raise ConfigError("--shards needs --output FILE: its parts are kept in FILE.shards")
    return True


def translate_in_shards(
    ctx: typer.Context, texts: Sequence[Path], bundle: "Bundle", job: Job
) -> None:
    """Translate files in parts that workers share; one of them, or the caller of all.

    Args:
        ctx: Of the command; see `check_shards`.
        texts: Files of lines.
        bundle: The model.
        job: Translates with it.

    Raises:
        ConfigError: If the parts that are there were made with other options.
        TmtError: If workers fail again and again, or the disk refuses.
    """
    from transformer_mt.storage.folders import explain_write_errors, new_file
    from transformer_mt.storage.hashes import hash_file
    from transformer_mt.storage.locks import claimed
    from transformer_mt.storage.overwriting import refuse_others
    from transformer_mt.translation.shards import Shards, identity

    output: Path = ctx.params["output"]
    folder = output.with_name(f"{output.name}.shards")
    writes = {name: str(ctx.params[name]) for name in _WRITES}
    if ctx.params["glossary"] is not None:
        writes["glossary"] = hash_file(ctx.params["glossary"], "xxh3")
    about = {"kind": KIND, "format_version": 1, "writes": writes}
    about |= identity(
        job.translator,
        bundle,
        texts,
        precision=ctx.params["precision"],
        part_lines=lines_of_part(ctx, texts),
    )
    shards = Shards(folder, texts, about, suffix=".txt")

    def rows(part: "Part") -> list[str]:
        """Translate a part as the whole text is translated."""
        written = io.StringIO()
        job.num_done = part.first_line - 1
        size = fitting_size(ctx.params["batch_tokens"], for_many=False)
        job.run(chunks_of(part.lines, size), written, None, lambda done, total: None)
        return written.getvalue().removesuffix("\n").split("\n")

    if share := share_of(ctx):
        shards.work(rows, share=share)
        return
    run_workers = workers_of(ctx, folder)
    assert run_workers is not None  # there is --shards
    refuse_others(folder, KIND)
    with explain_write_errors(folder), claimed(folder):
        shards.begin()
        shards.finish(run_workers)
        with new_file(output.resolve()) as file:
            for part in shards.parts():
                with shards.path(part).open("rb") as translated:
                    shutil.copyfileobj(translated, file)
    logger.info("%s: whole; its parts are in %s, which may be removed", output, folder)
