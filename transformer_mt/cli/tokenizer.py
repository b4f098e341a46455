"""`tmt tokenizer`: training, use and inspection of tokenizers."""

import json
import logging
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from transformer_mt.cli.command import examples
from transformer_mt.cli.input_lines import standard_input
from transformer_mt.cli.options import AsJson, Overrides, argument_or_option
from transformer_mt.cli.output_files import results_to
from transformer_mt.config.data import TokenizerSettings
from transformer_mt.config.loading import find_config, load_config
from transformer_mt.errors import ConfigError, DataError

if TYPE_CHECKING:
    from transformer_mt.text.tokenizer import Tokenizer
    from transformer_mt.text.tokenizer_report import TextReport, TokenizerReport

logger = logging.getLogger(__name__)

group = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Train, apply and inspect tokenizers.",
    epilog=examples(
        "tmt tokenizer train --input train.en --input train.de --output tokenizer",
        "tmt tokenizer encode tokenizer < test.en > test.pieces",
        "tmt tokenizer decode tokenizer < test.pieces",
        "tmt tokenizer inspect tokenizer < test.en",
    ),
)

Directory: TypeAlias = Annotated[
    Path | None,
    typer.Argument(
        metavar="DIR", help="Directory of a tokenizer, model or run, or a SentencePiece model."
    ),
]
SameDirectory: TypeAlias = Annotated[
    Path | None, typer.Option("--model", metavar="DIR", help="Same as DIR.")
]
Side: TypeAlias = Annotated[
    Literal["src", "tgt"] | None,
    typer.Option(help="Side, if source and target have separate vocabularies."),
]
Ids: TypeAlias = Annotated[bool, typer.Option("--ids", help="Ids instead of pieces.")]

_DEFAULTS = TokenizerSettings()

JointText: TypeAlias = Annotated[
    list[Path], typer.Option(metavar="FILE", help="Text for a joint vocabulary; repeatable.")
]
SourceText: TypeAlias = Annotated[
    list[Path],
    typer.Option(metavar="FILE", help="Source text, for a separate vocabulary; repeatable."),
]
TargetText: TypeAlias = Annotated[
    list[Path],
    typer.Option(metavar="FILE", help="Target text, for a separate vocabulary; repeatable."),
]
OtherConfig: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="CONFIG", help="Use the training data and settings of a config instead."),
]
Kind: TypeAlias = Annotated[
    Literal["unigram", "bpe"] | None, typer.Option(help=f"Algorithm. Default: {_DEFAULTS.type}.")
]
VocabSize: TypeAlias = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help=f"Vocabulary size. Default: {_DEFAULTS.vocab_size}."),
]
Coverage: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.98,
        max=1,
        help="Share of characters in the vocabulary; others are written as bytes.",
    ),
]
ByteFallback: TypeAlias = Annotated[
    bool | None,
    typer.Option(help="Encode characters outside the vocabulary as bytes (default), or as unk."),
]
UserSymbols: TypeAlias = Annotated[
    list[str],
    typer.Option(metavar="TEXT", help="String that is always a single piece; repeatable."),
]
NumSampleLines: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help=f"Maximum lines to train on. Default: {_DEFAULTS.num_sample_lines}.",
    ),
]


@group.command(
    epilog=examples(
        "tmt tokenizer train --input train.en --input train.de --output tokenizer",
        "tmt tokenizer train --src train.en.gz --tgt train.de.gz --output tokenizer",
        "tmt tokenizer train --config base.yaml --output tokenizer --set tokenizer.type=unigram",
    )
)
def train(
    output: Annotated[Path, typer.Option(metavar="DIR", help="Output directory.")],
    input: JointText = [],
    src: SourceText = [],
    tgt: TargetText = [],
    config: OtherConfig = None,
    settings: Overrides = [],
    type: Kind = None,
    vocab_size: VocabSize = None,
    character_coverage: Coverage = None,
    byte_fallback: ByteFallback = None,
    user_symbol: UserSymbols = [],
    num_sample_lines: NumSampleLines = None,
) -> None:
    """Train a tokenizer on text files, or on the training data of a config.

    Files are UTF-8; plain, .gz, .bz2, .xz or .zst. Writes joint.model, or src.model and tgt.model.
    """
    values = {
        "type": type,
        "vocab_size": vocab_size,
        "character_coverage": character_coverage,
        "byte_fallback": byte_fallback,
        "user_symbols": user_symbol or None,
        "num_sample_lines": num_sample_lines,
    }
    given = {name: value for name, value in values.items() if value is not None}
    if (config is not None) + bool(input) + bool(src or tgt) != 1 or bool(src) != bool(tgt):
        raise ConfigError("give --input, or --src and --tgt, or --config: one of the three")
    if settings and config is None:
        raise ConfigError("--set needs --config")
    if given and config is not None:
        raise ConfigError(f"with --config, give --set tokenizer.{next(iter(given))}=.. instead")
    if any((output / f"{name}.model").exists() for name in ("joint", "src", "tgt")):
        raise ConfigError(f"--output {output} holds a tokenizer already: choose another folder")

    from transformer_mt.storage.overwriting import refuse_to_replace_others
    from transformer_mt.text.tokenizer_directory import KIND, save_tokenizers
    from transformer_mt.text.tokenizer_training import train_tokenizers

    refuse_to_replace_others(output, KIND)

    if config is not None:
        wanted, src_lines, tgt_lines = _from_config(config, settings)
    else:
        wanted = TokenizerSettings.model_validate(given | {"joint": bool(input)})
        src_lines, tgt_lines = _lines_of(input or src), _lines_of(tgt)
    tokenizers = train_tokenizers(
        src_lines, tgt_lines, **wanted.model_dump(exclude={"path", "sampling"})
    )
    save_tokenizers(tokenizers, output)
    for path in sorted(output.glob("*.model")):
        typer.echo(path)


@group.command(
    epilog=examples(
        "tmt tokenizer encode tokenizer < test.en > test.pieces",
        "tmt tokenizer encode runs/base/best --side tgt --ids < test.de",
    )
)
def encode(
    directory: Directory = None, model: SameDirectory = None, side: Side = None, ids: Ids = False
) -> None:
    """Split lines of stdin into pieces, separated by spaces.

    Pieces show a space of the text as U+2581, and bytes of characters without a piece as <0xE2>.
    """
    tokenizer = _load(argument_or_option(directory, model, "--model", "a tokenizer"), side)
    with results_to(None) as results:
        for line in _stdin_lines():
            numbers = tokenizer.encode(line)
            cells = map(str, numbers) if ids else tokenizer.pieces(numbers)
            results.write(" ".join(cells) + "\n")


@group.command(
    epilog=examples(
        "tmt tokenizer decode tokenizer < test.pieces > test.en",
        "tmt tokenizer decode runs/base/best --side tgt --ids < test.ids",
    )
)
def decode(
    directory: Directory = None, model: SameDirectory = None, side: Side = None, ids: Ids = False
) -> None:
    """Join lines of pieces, as `tmt tokenizer encode` writes them, to text."""
    tokenizer = _load(argument_or_option(directory, model, "--model", "a tokenizer"), side)
    read = _numbers if ids else _ids_of_pieces
    with results_to(None) as results:
        for line_number, line in enumerate(_stdin_lines(), 1):
            text = tokenizer.decode(read(line, tokenizer, f"stdin:{line_number}"))
            # A line feed that was a byte of the text would shift all lines after it.
            results.write(text.replace("\n", " ") + "\n")


@group.command(
    epilog=examples(
        "tmt tokenizer inspect tokenizer",
        "tmt tokenizer inspect tokenizer --input test.en --input test2.en.gz",
        "tmt tokenizer inspect runs/base/best --side tgt --json < test.de",
    )
)
def inspect(
    directory: Directory = None,
    model: SameDirectory = None,
    side: Side = None,
    input: Annotated[
        list[Path],
        typer.Option(metavar="FILE", help="Text to try it on; repeatable. Default: stdin."),
    ] = [],
    as_json: AsJson = False,
) -> None:
    """Describe a tokenizer and its output on a text: coverage, tokens per word, examples."""
    from transformer_mt.text.tokenizer_report import describe_tokenizer, measure_tokenizer

    tokenizer = _load(argument_or_option(directory, model, "--model", "a tokenizer"), side)
    report = describe_tokenizer(tokenizer)
    text = None
    if input or not standard_input().isatty():
        text = measure_tokenizer(tokenizer, _lines_of(input) if input else _stdin_lines())
    if as_json:
        found = {"tokenizer": asdict(report), "text": None if text is None else asdict(text)}
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    for name, value in [*_rows(report), *(_text_rows(text) if text and text.num_lines else [])]:
        typer.echo(f"{name:<22} {value}")


def _from_config(
    name: str, settings: list[str]
) -> tuple[TokenizerSettings, Iterable[str], Iterable[str]]:
    """Return tokenizer settings and the texts of both sides of a config."""
    from transformer_mt.data.pair_source import cleaned
    from transformer_mt.data.sources import open_each

    config = load_config(find_config(name), settings)
    if config.tokenizer.path is not None:
        raise ConfigError(
            f"tokenizer.path: the config names a trained tokenizer, {config.tokenizer.path}: "
            "there is nothing to train"
        )
    data = config.data
    sources = open_each(data.train, src_lang=data.src_lang, tgt_lang=data.tgt_lang)
    src_lines = (src for source in cleaned(sources, data) for src, _ in source)
    tgt_lines = (tgt for source in sources for _, tgt in source)
    return config.tokenizer, src_lines, tgt_lines


def _lines_of(paths: list[Path]) -> Iterator[str]:
    """Read the lines of files in order, after opening all of them once."""
    from transformer_mt.text.lines import open_binary, read_lines

    for path in paths:
        open_binary(path).close()
    return chain.from_iterable(map(read_lines, paths))


def _stdin_lines() -> Iterator[str]:
    from transformer_mt.text.lines import decode_lines

    return decode_lines(standard_input(), "stdin")


def _load(directory: Path, side: Literal["src", "tgt"] | None) -> "Tokenizer":
    from transformer_mt.text.tokenizer_pair import Tokenizers

    if (directory / "checkpoints").is_dir():  # a run
        directory = directory / "tokenizer"
    tokenizers = Tokenizers.load(directory)
    if side is None and not tokenizers.joint:
        raise ConfigError(f"{directory} has two vocabularies: give --side src or --side tgt")
    return tokenizers.tgt if side == "tgt" else tokenizers.src


def _numbers(line: str, tokenizer: "Tokenizer", place: str) -> list[int]:
    """Read ids; errors name the first invalid one."""
    ids = []
    for cell in line.split():
        # Python refuses to read numbers of thousands of digits.
        is_number = cell.isascii() and cell.isdigit() and len(cell) < 10
        if not is_number or int(cell) >= tokenizer.vocab_size:
            last = tokenizer.vocab_size - 1
            raise DataError(f"{place}: expected ids from 0 to {last}; got '{cell[:60]}'")
        ids.append(int(cell))
    return ids


def _ids_of_pieces(line: str, tokenizer: "Tokenizer", place: str) -> list[int]:
    """Read pieces; errors name the first that is not in the vocabulary."""
    ids = []
    for piece in filter(None, line.split(" ")):
        if piece not in tokenizer.ids:
            raise DataError(f"{place}: no such piece in the vocabulary: '{piece[:60]}'")
        ids.append(tokenizer.ids[piece])
    return ids


def _rows(report: "TokenizerReport") -> list[tuple[str, str]]:
    return [
        ("type", report.type),
        ("pieces", str(report.vocab_size)),
        ("  characters", str(report.num_characters)),
        ("  bytes", str(report.num_bytes)),
        ("  user symbols", " ".join(report.user_symbols) or "none"),
        ("longest pieces", " ".join(report.longest_pieces)),
        ("fingerprint", report.fingerprint),
    ]


def _text_rows(report: "TextReport") -> list[tuple[str, str]]:
    missing = " ".join(f"{_show(c)} x{count}" for c, count in report.missing_characters)
    return [
        ("lines", str(report.num_lines)),
        ("words", str(report.num_words)),
        ("tokens", str(report.num_tokens)),
        ("tokens per word", f"{report.tokens_per_word:.3f}"),
        ("tokens per line", f"{report.tokens_per_line:.1f}, at most {report.longest_line_tokens}"),
        ("characters covered", f"{100 * report.character_coverage:.4f}%"),
        ("characters missing", missing or "none"),
        ("tokens that are bytes", f"{100 * report.byte_share:.4f}%"),
        ("unknown tokens", f"{100 * report.unknown_share:.4f}%"),
        ("pieces used", f"{100 * report.used_share:.1f}%"),
        *(("example", " ".join(pieces)) for pieces in report.examples),
    ]


def _show(character: str) -> str:
    """Format a character with its code point, which stands alone if it is invisible."""
    code = f"U+{ord(character):04X}"
    visible = unicodedata.category(character)[0] not in "CMZ"
    return f"{character} ({code})" if visible else code
