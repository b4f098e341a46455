"""`tmt import`: models of other programs."""

from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.export import CheckFile, NumSentences
from transformer_mt.cli.input_lines import parallel_lines
from transformer_mt.config.languages import LANGUAGE_PATTERN
from transformer_mt.errors import ConfigError

EXAMPLES = (
    "tmt import opus-mt-en-de --output en_de",
    "tmt import opus-mt-en-de --check test.en --output en_de",
    "tmt import marian_model --src-lang en --tgt-lang de --output en_de",
    "tmt translate --model en_de < input.txt",
    "tmt import nllb-200-distilled-600M --src-lang eng_Latn --tgt-lang deu_Latn --output nllb",
)


def import_(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Model of Marian, its own or Hugging Face's format."),
    ],
    *,
    output: Annotated[Path, typer.Option("--output", metavar="DIR", help="Directory to write.")],
    src_lang: Annotated[
        str | None,
        typer.Option(
            metavar="CODE",
            help="Source language; of several, that of --check. Default: the model's.",
        ),
    ] = None,
    tgt_lang: Annotated[
        str | None,
        typer.Option(metavar="CODE", help="Target language. Default: the model's."),
    ] = None,
    check: CheckFile = None,
    num_sentences: NumSentences = 100,
) -> None:
    """Import a model of Marian, OPUS-MT, M2M-100 or NLLB.

    Its format is that of Hugging Face transformers, or Marian's own. With --check, both programs
    translate sentences and are compared; that needs transformers, or for Marian's own format
    CTranslate2.
    """
    if not directory.is_dir():
        raise ConfigError(f"{directory}: no such directory")
    for option, code in (("--src-lang", src_lang), ("--tgt-lang", tgt_lang)):
        if code is not None and not LANGUAGE_PATTERN.fullmatch(code):
            raise ConfigError(f"{option} {code}: expected a language code such as de or jpn_Jpan")
    lines = None if check is None else parallel_lines(check)[0]

    from transformer_mt.exchange.from_huggingface import import_huggingface, save_imported
    from transformer_mt.exchange.from_marian import import_native, is_native

    importer = import_native if is_native(directory) else import_huggingface
    imported = importer(directory, src_lang=src_lang, tgt_lang=tgt_lang)
    parity = save_imported(imported, directory, output, sources=lines and lines[:num_sentences])
    typer.echo(f"{output}: {'not compared' if parity is None else parity.summary()}")
