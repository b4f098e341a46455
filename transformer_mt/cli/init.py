"""`tmt init`: a config for your own text."""

import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer_mt.cli.options import Budget
from transformer_mt.cli.pair_inputs import (
    Column,
    Language,
    check_language_codes,
    columns_of,
    find_source,
)
from transformer_mt.config.budget import read_budget
from transformer_mt.config.loading import parse_config
from transformer_mt.errors import ConfigError
from transformer_mt.processors import num_processors

if TYPE_CHECKING:
    from transformer_mt.data.recipe_writer import Plan, TextFacts

logger = logging.getLogger(__name__)

EXAMPLES = (
    "tmt init corpus.en corpus.de",
    "tmt init pairs.tsv --src-lang en --tgt-lang fr",
    "tmt init memory.tmx --src-lang en --tgt-lang de",
    "tmt init pairs.csv --src-column english --tgt-column german",
    "tmt init corpus.en.gz corpus.de.gz --output first.yaml --minutes 10",
    "tmt init corpus.en corpus.de --budget 15m",
)


def init(
    src: Annotated[
        Path,
        typer.Argument(
            metavar="SRC_FILE", help="Source lines, or a table or memory with both sides."
        ),
    ],
    tgt: Annotated[
        Path | None,
        typer.Argument(metavar="TGT_FILE", help="Target lines, one for each source line."),
    ] = None,
    src_lang: Language = None,
    tgt_lang: Language = None,
    src_column: Column = None,
    tgt_column: Column = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Output file. Default: SRC-TGT.yaml.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            metavar="N", min=0.1, help="Training time. Default: depends on the text, up to 60."
        ),
    ] = None,
    budget: Budget = None,
) -> None:
    """Write a config for your own text.

    SRC_FILE and TGT_FILE are UTF-8 text: line N of one translates line N of the other. A single
    file must be a table (.tsv, .csv, .jsonl or .parquet) or a translation memory (.tmx, .xlf, .po,
    .mo, .zip of OPUS). All but zip files may be compressed (.gz, .bz2, .xz, .zst). Validation and
    test pairs are held out of the text. Languages are guessed, and model size and training time
    are chosen for this text and machine.
    """
    check_language_codes(src_lang, tgt_lang)
    if minutes is not None and budget is not None:
        raise ConfigError("--minutes and --budget exclude each other: give one")
    limit = None if budget is None else read_budget(budget)
    if limit is not None and limit[0] == "budget_minutes":
        minutes = limit[1]
    if output is not None:
        _check_output(output)
    columns = columns_of(src_column, tgt_column)
    source, named = find_source(src, tgt, (src_lang, tgt_lang), columns)

    from transformer_mt.data.recipe_writer import measure_text, plan, write_recipe
    from transformer_mt.data.sources import open_source

    facts = measure_text(open_source(source, src_lang=src_lang or "", tgt_lang=tgt_lang or ""))
    languages = _languages((src_lang, tgt_lang), named, facts)
    output = output or Path("{}-{}.yaml".format(*languages))
    _check_output(output)
    num_available, has_gpu = _machine()
    chosen = plan(
        facts, num_processors=num_available, has_gpu=has_gpu, minutes=minutes, budget=limit
    )
    text = write_recipe(output.stem, source, languages, facts, chosen)
    parse_config(text, str(output))
    with open(output, "x", encoding="utf-8") as file:
        file.write(text)
    _log_plan(facts, chosen, num_processors=num_available, has_gpu=has_gpu)
    typer.echo(f"wrote {output}. Next:")
    typer.echo(f"  tmt train --config {output}\n  tmt translate < input.txt\n  tmt evaluate --bleu")


def _check_output(path: Path) -> None:
    if path.exists():
        raise ConfigError(f"{path} exists: choose another name with --output FILE")
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: no such folder: {path.parent}")


def _languages(
    given: tuple[str | None, str | None],
    named: tuple[str | None, str | None],
    facts: "TextFacts",
) -> tuple[str, str]:
    """Decide on the languages, and log where they come from."""
    from transformer_mt.config.language_codes import plain_code
    from transformer_mt.text.languages import language_of_text

    codes = []
    for side, option, option_code, name_code, texts in zip(
        ("source", "target"),
        ("--src-lang", "--tgt-lang"),
        given,
        named,
        zip(*facts.head, strict=True),
        strict=True,
    ):
        guess = language_of_text(texts)
        code = option_code or name_code or guess
        if code is None:
            raise ConfigError(f"the language of the {side} cannot be guessed: give {option} CODE")
        origin = (
            "given" if option_code else "from the name" if name_code else "guessed from the text"
        )
        logger.info("%s language: %s (%s)", side, code, origin)
        if guess is not None and guess != plain_code(code):
            logger.warning(
                "the %s looks like %s, not %s: are the files in the right order? %s says otherwise",
                side,
                guess,
                code,
                option,
            )
        codes.append(code)
    return codes[0], codes[1]


def _machine() -> tuple[int, bool]:
    """Return the number of processors, and whether training will find a GPU; without torch."""
    from transformer_mt.versions import installed_versions

    has_driver = Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None
    is_cpu_build = (installed_versions()["torch"] or "+cpu").endswith("+cpu")
    return num_processors(), has_driver and not is_cpu_build


def _log_plan(facts: "TextFacts", chosen: "Plan", *, num_processors: int, has_gpu: bool) -> None:
    logger.info(
        "%s pairs, about %s target tokens; %d are held out for validation and %d for tests",
        f"{facts.num_pairs:,}",
        f"{facts.num_tgt_tokens:,}",
        chosen.split_valid,
        chosen.split_test,
    )
    device = "a GPU" if has_gpu else f"{num_processors} processors and no GPU"
    time = f"{chosen.minutes:g} minutes, " if chosen.minutes else ""
    logger.info(
        "%s: the %s model, %sabout %.0f passes over the text",
        device,
        chosen.size,
        time,
        chosen.passes,
    )
    if facts.num_pairs < 10_000:
        logger.warning(
            "%s pairs are few for a translation model: 10,000 give a first impression, 100,000 a "
            "useful model for such text",
            f"{facts.num_pairs:,}",
        )
    elif chosen.passes < 5:
        logger.warning(
            "the text is large for this machine: %.1f passes in %g minutes; more minutes or a GPU "
            "give a better model",
            chosen.passes,
            chosen.minutes,
        )
