"""`tmt export`: models for other programs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from transformer_mt.cli.input_lines import parallel_lines
from transformer_mt.cli.options import ModelPath
from transformer_mt.errors import ConfigError, TmtError
from transformer_mt.exchange.settings import Quantization
from transformer_mt.locations import find_bundle

if TYPE_CHECKING:
    from transformer_mt.bundle import Bundle
    from transformer_mt.exchange.export import Sentences

CheckFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--check",
        metavar="FILE",
        help="Source sentences to compare the two programs on. Default: the validation set.",
    ),
]
NoCheck: TypeAlias = Annotated[bool, typer.Option("--no-check", help="Do not compare them.")]
NumSentences: TypeAlias = Annotated[
    int, typer.Option("--sentences", metavar="N", min=1, help="Sentences to compare them on.")
]

SourceCode: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="CODE", help="Source language of a package, of a model of several languages."
    ),
]
TargetCode: TypeAlias = Annotated[
    str | None, typer.Option(metavar="CODE", help="Target language of a package, the same way.")
]

EXAMPLES = (
    "tmt export --to ctranslate2 --output exported",
    "tmt export --to ctranslate2 --quantization int8 --model runs/base --output base_ct2",
    "tmt export --to huggingface --check test.en --output base_hf",
    "tmt export --to argos --quantization int8 --output package",
    "tmt export --to bergamot --quantization int8 --output browser",
)


def export(
    *,
    to: Annotated[
        Literal["ctranslate2", "huggingface", "argos", "marian", "bergamot"],
        typer.Option(help="Program to export to."),
    ],
    output: Annotated[Path, typer.Option("--output", metavar="DIR", help="Directory to write.")],
    model: ModelPath = None,
    quantization: Annotated[
        Quantization, typer.Option(help="Type of the weights on disk: see docs/exchange.md.")
    ] = "float32",
    src_lang: SourceCode = None,
    tgt_lang: TargetCode = None,
    check: CheckFile = None,
    no_check: NoCheck = False,
    num_sentences: NumSentences = 100,
) -> None:
    """Export a model to another program's format.

    The exported model is loaded there and compared with the original: log-probabilities, greedy and
    beam search, BLEU. `parity.json` has the figures. A model that differs is not written.
    """
    if check is not None and no_check:
        raise ConfigError("give one of --check and --no-check")
    path = find_bundle(model)
    lines = None if check is None else parallel_lines(check)[0]

    from transformer_mt.bundle import load_bundle
    from transformer_mt.exchange.export import Sentences
    from transformer_mt.exchange.export import export as export_model
    from transformer_mt.translation.directions import directed

    bundle = load_bundle(path)
    if src_lang is not None or tgt_lang is not None:
        data = bundle.config.data
        source, target = src_lang or data.src_lang, tgt_lang or data.tgt_lang
        bundle = directed(bundle, source=source, target=target)
    sentences = None
    if lines is not None:
        sentences = Sentences(lines[:num_sentences], None)
    elif not no_check:
        sentences = validation_sentences(bundle, path, num_sentences)
    parity = export_model(bundle, to, output, sentences=sentences, quantization=quantization)
    typer.echo(f"{output}: {'not compared' if parity is None else parity.summary()}")


def validation_sentences(bundle: "Bundle", path: Path, number: int) -> "Sentences":
    """Read the first sentences of the validation set of a model's config.

    Raises:
        ConfigError: If it is not there.
    """
    from transformer_mt.data.evaluation_sets import VALIDATION, read_test_sets
    from transformer_mt.exchange.export import Sentences

    try:
        found, *_ = read_test_sets(bundle.config, [VALIDATION], run=path.parent)
    except TmtError as error:
        raise ConfigError(
            f"no validation set to compare on ({error}): give --check FILE, or --no-check"
        ) from error
    return Sentences(found.sources[:number], found.references[:number], found.direction)
