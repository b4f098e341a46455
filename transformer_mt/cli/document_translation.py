"""Documents in `tmt translate`: the same document out, with translations in it."""

import json
import logging
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from transformer_mt.cli.input_lines import STDIN, standard_input
from transformer_mt.cli.model_loading import config_of_options
from transformer_mt.cli.options import given_options
from transformer_mt.cli.output_files import STDOUT, progress_bar, write_whole
from transformer_mt.errors import ConfigError
from transformer_mt.log import counted, printable

if TYPE_CHECKING:
    from transformer_mt.documents.document import Document
    from transformer_mt.translation.translator import Translator

logger = logging.getLogger(__name__)

FOR_LINES = (
    "--n-best",
    "--prefix",
    "--constraints",
    "--tab",
    "--alignments",
    "--errors",
    "--shards",
)
"""Options that refer to lines."""

OFTEN_LINES = ("html", "json", "jsonl", "md", "tsv")
"""Formats whose files are read as lines with these options: their names say little."""


def document_format(
    ctx: typer.Context, inputs: Sequence[Path]
) -> tuple[str, dict[str, str]] | None:
    """Return the format of the input and its options; None if it is lines of text.

    Raises:
        ConfigError: If the format is not known, or other options do not go with a document.
    """
    from transformer_mt.documents.formats import LINES, format_of, parse_format

    wanted: str | None = ctx.params["format"]
    if wanted == LINES:
        found = None
    elif wanted is not None:
        found = parse_format(wanted)
    else:
        by_name = (format_of(path.name) for path in inputs)
        found = next(((name, {}) for name in by_name if name), None)
    given = given_options(ctx)
    clash = [name for name in FOR_LINES if name in given]
    if found is not None and wanted is None and clash and found[0] in OFTEN_LINES:
        found = None
    if found is None:
        if "--memory" in given:
            raise ConfigError("--memory is for documents: name their format with --format")
        return None
    what = f"a document ({found[0]}; --format {LINES} reads it as lines)"
    if len(inputs) > 1:
        raise ConfigError(f"{inputs[0]} is {what}: give one input at a time")
    if clash:
        raise ConfigError(f"{clash[0]} refers to lines, and the input is {what}: leave it out")
    if ctx.params["as_json"] and ctx.params["output"] in (None, STDOUT):
        raise ConfigError(f"--json prints a report, and the input is {what}: give --output, too")
    return found


def translate_document(
    ctx: typer.Context,
    load: Callable[[], "Translator"],
    inputs: Sequence[Path],
    kind: str,
    options: dict[str, str],
) -> None:
    """Translate one document, list what was left as it is, and write it as a whole.

    Args:
        ctx: Of the command.
        load: Makes what translates its segments; called when the document has been read.
        inputs: The document; none: stdin.
        kind: Its format.
        options: Of the format.

    Raises:
        DataError: If it cannot be read.
        ConfigError: If it, or the translation memory, is for other languages.
    """
    from transformer_mt.translation.directions import direction_of
    from transformer_mt.translation.filling import as_json, fill_document
    from transformer_mt.translation.markup.protection import Protector
    from transformer_mt.translation.memory import TranslationMemory

    data_config = config_of_options(ctx).data
    if data_config.document is not None:
        raise ConfigError(
            f"this model reads lines in context, and cannot translate a document ({kind}) segment "
            "by segment: take another model, or --format lines"
        )
    languages = direction_of(
        data_config, source=ctx.params["source_language"], target=ctx.params["target_language"]
    )
    name, data = _content(inputs[0] if inputs else STDIN)
    memory = None
    if (earlier := ctx.params["memory"]) is not None:
        memory = TranslationMemory.load(earlier, *languages)
        logger.info("memory: %s: %s", earlier, counted(len(memory), "pair"))

    @cache
    def protector() -> Protector:
        return Protector(load(), warns=False)

    def ready(document: "Document") -> None:
        """Load the model for a document that can be translated."""
        protector()

    def translate(lines: Sequence[str]) -> list[str]:
        return [found.text for found in protector().translate(lines)]

    with progress_bar("translate", " lines") as show:
        result, report = fill_document(
            data,
            name,
            translate,
            kind=kind,
            options=options,
            languages=languages,
            memory=memory,
            check=ready,
            show=show,
        )
    write_whole(ctx.params["output"], result)
    for left in report.left:
        logger.warning("%s", printable(str(left)))
    logger.info("%s: %s", name, report)
    if ctx.params["as_json"]:
        json.dump(as_json(report), sys.stdout, ensure_ascii=False)
        print()


def _content(path: Path) -> tuple[str, bytes]:
    """Return the name of a document, for messages, and its content; `STDIN` is standard input."""
    from transformer_mt.documents.formats import MAX_BYTES, load_bytes

    if path != STDIN:
        return str(path), load_bytes(path)
    with standard_input() as stream:
        return "stdin", stream.read(MAX_BYTES + 1)
