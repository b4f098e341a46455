"""`tmt translate`: lines in, translations out."""

import json
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import typer

from transformer_mt.cli.demands import with_demands
from transformer_mt.cli.help import GroupedCommand, examples
from transformer_mt.cli.model_options import (
    SEARCH,
    BatchTokens,
    BeamSize,
    Device,
    LengthPenalty,
    LengthPenaltyKind,
    MaxLengthFactor,
    MaxLengthOffset,
    ModelPath,
    Precision,
    load_model,
    make_translator,
)
from transformer_mt.cli.search_options import (
    BeamGroups,
    CoveragePenalty,
    DiversityPenalty,
    GlossaryFile,
    MaxLength,
    MinLength,
    MinLengthRatio,
    NoRepeatNgram,
    Phrases,
    Prefix,
    RepetitionPenalty,
    Sample,
    Seed,
    Suppress,
    Tab,
    Temperature,
    TopK,
    TopP,
)
from transformer_mt.cli.streams import (
    check_output,
    is_regular_file,
    progress_bar,
    replacing_bad_bytes,
    results_to,
    standard_input,
)
from transformer_mt.errors import ConfigError

if TYPE_CHECKING:
    from transformer_mt.decoding.translator import Candidate, Translation

logger = logging.getLogger(__name__)


def register(app: typer.Typer) -> None:
    """Add `tmt translate` to the program."""
    app.command(
        cls=GroupedCommand,
        epilog=examples(
            "tmt translate < input.txt > output.txt",
            "tmt translate --model runs/base --input input.txt --output output.txt",
            "tmt translate --beam-size 8 --n-best 8 < input.txt",
            "tmt translate --sample --n-best 5 --top-p 0.9 < input.txt",
            "tmt translate --glossary terms.tsv < input.txt",
            "echo 'A dog runs.' | tmt translate --json",
        ),
    )(translate)


def translate(
    model: ModelPath = None,
    input: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Lines to translate. Default: stdin.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write. Default: stdout.")
    ] = None,
    beam_size: BeamSize = None,
    n_best: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            rich_help_panel=SEARCH,
            help="Translations of each line, best first, each on a line: "
            "NUMBER ||| TEXT ||| LogProb= X ||| SCORE; lines are counted from 0.",
        ),
    ] = 1,
    beam_groups: BeamGroups = None,
    diversity_penalty: DiversityPenalty = None,
    coverage_penalty: CoveragePenalty = None,
    length_penalty: LengthPenalty = None,
    length_penalty_kind: LengthPenaltyKind = None,
    max_length_factor: MaxLengthFactor = None,
    max_length_offset: MaxLengthOffset = None,
    max_length: MaxLength = None,
    min_length: MinLength = None,
    min_length_ratio: MinLengthRatio = None,
    sample: Sample = False,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    no_repeat_ngram: NoRepeatNgram = None,
    repetition_penalty: RepetitionPenalty = None,
    suppress: Suppress = [],  # noqa: B006 - typer reads the default; nothing changes it
    prefix: Prefix = None,
    constraints: Phrases = None,
    tab: Tab = None,
    glossary: GlossaryFile = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="One JSON object for each line: text, tokens, log_prob, score, and with --n-best "
            "the list n_best of the same.",
        ),
    ] = False,
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    errors: Annotated[
        Literal["strict", "replace"],
        typer.Option(
            help="What to do with bytes that are not UTF-8: stop, or read them as U+FFFD."
        ),
    ] = "strict",
) -> None:
    """Translate text, one sentence on a line.

    Line N of the output translates line N of the input; blank lines stay blank. Output begins
    while later lines are still being read, and at a terminal every line is answered at once. A line
    too long for the model is translated in parts, with a warning.
    """
    if sample and beam_size is not None:
        raise ConfigError("--beam-size has no effect with --sample: --n-best N gives N samples")
    if beam_size is not None and n_best > beam_size:
        raise ConfigError(f"--n-best {n_best} needs --beam-size {n_best} or more; got {beam_size}")
    if (constraints or glossary or tab == "constraints") and (sample or beam_groups):
        raise ConfigError(
            "--sample and --beam-groups do not go with --constraints, --glossary and --tab "
            "constraints: only plain beam search can hold them"
        )
    check_output(output, input, prefix, constraints, glossary)
    at_terminal = input is None and sys.stdin.isatty()
    chunks = with_demands(_read(input, errors), prefix=prefix, phrases=constraints, tab=tab)
    bundle = load_model(model, device=device, precision=precision)
    translator = make_translator(
        bundle,
        {
            "beam_size": beam_size,
            "length_penalty": length_penalty,
            "length_penalty_kind": length_penalty_kind,
            "max_length_factor": max_length_factor,
            "max_length_offset": max_length_offset,
            "batch_tokens": batch_tokens,
            "n_best": n_best,
            "sample": sample,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
            "beam_groups": beam_groups,
            "diversity_penalty": diversity_penalty,
            "coverage_penalty": coverage_penalty,
            "max_length": max_length,
            "min_length": min_length,
            "min_length_ratio": min_length_ratio,
            "no_repeat_ngram": no_repeat_ngram,
            "repetition_penalty": repetition_penalty,
            "suppress": tuple(suppress),
        },
        glossary=glossary,
    )
    if at_terminal:
        logger.info("type a sentence and press Enter; Ctrl-D ends")
    layout = _json_lines if as_json else _n_best_lines if n_best > 1 else _text_lines
    num_lines = num_terms = num_terms_met = 0
    started = time.monotonic()
    # Beside lines that appear on the same screen, a bar would only be in the way.
    with (
        results_to(output) as results,
        progress_bar("translate", " lines", wanted=not results.isatty()) as show,
    ):
        for translations in translator.translate_chunks(chunks):
            for number, translation in enumerate(translations, start=num_lines):
                num_terms += len(translation.terms)
                num_terms_met += translation.num_terms_met
                for line in layout(number, translation):
                    results.write(line + "\n")
            results.flush()
            num_lines += len(translations)
            show(num_lines, None)
    seconds = time.monotonic() - started
    logger.info("%d lines in %.1f s", num_lines, seconds)
    if glossary is not None:
        share = f" ({num_terms_met / num_terms:.1%})" if num_terms else ""
        logger.info(
            "terms of the glossary in the output: %d of %d%s", num_terms_met, num_terms, share
        )


def _read(path: Path | None, errors: Literal["strict", "replace"]) -> Iterator[list[str]]:
    """Open the input; from what is not a file, lines are taken as they come."""
    from transformer_mt.decoding.chunks import chunks_as_they_come, chunks_of
    from transformer_mt.text.lines import open_binary

    stream = standard_input() if path is None else open_binary(path)
    all_there = is_regular_file(stream) if path is None else path.is_file()
    lines = _lines(stream, "stdin" if path is None else str(path), errors)
    if all_there:
        return chunks_of(lines)
    return chunks_as_they_come(lines)


def _lines(stream: BinaryIO, name: str, errors: Literal["strict", "replace"]) -> Iterator[str]:
    from transformer_mt.text.lines import decode_lines

    with stream:
        good = replacing_bad_bytes(stream) if errors == "replace" else stream
        yield from decode_lines(good, name)


def _text_lines(number: int, translation: "Translation") -> list[str]:
    return [translation.text]


def _n_best_lines(number: int, translation: "Translation") -> list[str]:
    return [
        f"{number} ||| {candidate.text} ||| LogProb= {candidate.log_prob:.6f} ||| "
        f"{candidate.score:.6f}"
        for candidate in translation.n_best
    ]


def _json_lines(number: int, translation: "Translation") -> list[str]:
    record = _record(translation.n_best[0])
    if len(translation.n_best) > 1:
        record["n_best"] = [_record(candidate) for candidate in translation.n_best]
    return [json.dumps(record, ensure_ascii=False)]


def _record(candidate: "Candidate") -> dict[str, Any]:
    return {
        "text": candidate.text,
        "tokens": candidate.tokens,
        "log_prob": candidate.log_prob,
        "score": candidate.score,
    }
