"""`tmt translate`: lines in, translations out."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from transformer_mt.cli.constraint_inputs import with_constraints
from transformer_mt.cli.document_translation import document_format, translate_document
from transformer_mt.cli.input_lines import (
    check_inputs,
    count_lines,
    files_and_text,
    input_chunks,
    is_typed,
    prompted,
)
from transformer_mt.cli.input_warnings import (
    AddedTerms,
    InputWarning,
    SeveralSentences,
    UnseenCharacters,
)
from transformer_mt.cli.model_loading import (
    has_several_devices,
    in_direction,
    load_of_options,
)
from transformer_mt.cli.option_conflicts import checked_search_options
from transformer_mt.cli.options import (
    BatchTokens,
    BeamSize,
    DecodingOverrides,
    Devices,
    Engine,
    EnsembleWeights,
    LengthPenalty,
    ModelPaths,
    NumWorkers,
    OutputFile,
    Precision,
    SourceLanguage,
    TargetLanguage,
)
from transformer_mt.cli.output_files import check_output, progress_bar, results_to
from transformer_mt.cli.shard_options import NumShards, Place, Worker
from transformer_mt.cli.shard_translation import check_shards, translate_in_shards
from transformer_mt.cli.translation_output import Details, Job
from transformer_mt.translation.load import decoding_settings, make_translator

if TYPE_CHECKING:
    from transformer_mt.bundle import Bundle
    from transformer_mt.translation.translator import Translator

SEARCH, CONSTRAINTS, TEXT, DOCUMENTS = "Search", "Constraints", "Text", "Documents"

FilesOrText: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="FILE|TEXT", help="Same as --input; or a text, in quotes.")
]
Input: TypeAlias = Annotated[
    Path | None,
    typer.Option("--input", "--src", metavar="FILE", help="Lines to translate. Default: stdin."),
]
AsJson: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--json",
        help="One JSON object per line: text, tokens, log_prob, score, and n_best with --n-best. "
        "With a document: what became of its segments.",
    ),
]
DocumentFormat: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        rich_help_panel=DOCUMENTS,
        help="Format of a document, with options as in po:fill=all (docs/translate_documents.md); "
        "lines: plain text whatever the name says. Default: by the name of the input.",
    ),
]
MemoryFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=DOCUMENTS,
        help="Translation memory of a document: TMX, or an earlier PO, XLIFF or TSV.",
    ),
]
BadBytes: TypeAlias = Annotated[
    Literal["strict", "replace"],
    typer.Option(help="Input that is not UTF-8: stop, or read it as U+FFFD."),
]
NBest: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        rich_help_panel=SEARCH,
        help="Write the N best translations of each line: "
        "NUMBER ||| TEXT ||| LogProb= X ||| SCORE; lines are counted from 0.",
    ),
]
Sample: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--sample",
        rich_help_panel=SEARCH,
        help="Sample at random instead of beam search; --n-best N gives N samples. Equal sentences "
        "get equal samples; --set decoding.seed=N draws others.",
    ),
]
Prefix: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=CONSTRAINTS,
        help="Target prefixes: line N begins the translation of input line N; blank lines leave "
        "it free. End at a word boundary.",
    ),
]
Phrases: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--constraints",
        metavar="FILE",
        rich_help_panel=CONSTRAINTS,
        help="Phrases that outputs must contain, in any order (Post and Vilar 2018): line N for "
        "input line N, separated by tabs.",
    ),
]
Tab: TypeAlias = Annotated[
    Literal["prefix", "constraints"] | None,
    typer.Option(
        rich_help_panel=CONSTRAINTS,
        help="What follows a tab in each input line: its target prefix, or its phrases. Default: "
        "the tab is part of the text.",
    ),
]
GlossaryFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--glossary",
        metavar="FILE",
        rich_help_panel=CONSTRAINTS,
        help="Terms with their translations, separated by a tab, that outputs must contain where "
        "the source has the term.",
    ),
]
SplitSentences: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--split-sentences/--no-split-sentences",
        rich_help_panel=TEXT,
        help="Translate each sentence of a line by itself, or the whole line at once. Default: "
        "each by itself, unless --prefix, --constraints or --tab refer to whole lines.",
    ),
]
Protect: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--protect",
        rich_help_panel=TEXT,
        help="Keep placeholders ({name}, %s, %(x)d), tags, entities, URLs and e-mail addresses "
        "unchanged, and check that the output has the same ones.",
    ),
]
Alignments: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=TEXT,
        help="Write word alignments: pairs SOURCE-TARGET of words counted from 0 (Pharaoh format). "
        "With --json also in the records.",
    ),
]
Interactive: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--interactive",
        rich_help_panel=TEXT,
        help="Correct each translation: what is typed is completed, an empty line accepts.",
    ),
]
CorrectionsFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--corrections",
        metavar="FILE",
        rich_help_panel=TEXT,
        help="Append the accepted pairs of --interactive to a TSV file, for fine-tuning.",
    ),
]

EXAMPLES = (
    "tmt translate < input.txt > output.txt",
    "tmt translate -m runs/base -i input.txt -o output.txt",
    "tmt translate 'A dog runs.'",
    "tmt translate --device all < input.txt > output.txt",
    "tmt translate --beam-size 8 --n-best 8 < input.txt",
    "tmt translate --sample --n-best 5 --set decoding.top_p=0.9 < input.txt",
    "tmt translate --glossary terms.tsv < input.txt",
    "tmt translate --split-sentences --protect < page.txt",
    "tmt translate --model runs/a --model runs/b --ensemble-weights 2,1 < input.txt",
    "tmt translate --alignments links.txt < input.txt",
    "tmt translate --model runs/en_de_fr --to fr < input.txt",
    "tmt translate -i messages.po -o de.po --memory earlier.tmx",
    "tmt translate --interactive --corrections mine.tsv",
    "tmt translate --shards 8 -i large.txt -o large.de.txt",
)


def translate(
    ctx: typer.Context,  # holds the options of the search, which no line below names
    files_or_text: FilesOrText = [],
    model: ModelPaths = None,
    ensemble_weights: EnsembleWeights = None,
    input: Input = None,
    output: OutputFile = None,
    as_json: AsJson = False,
    batch_tokens: BatchTokens = None,
    device: Devices = "auto",
    precision: Precision = "fp32",
    engine: Engine = "auto",
    num_workers: NumWorkers = None,
    target_language: TargetLanguage = None,
    source_language: SourceLanguage = None,
    errors: BadBytes = "strict",
    settings: DecodingOverrides = [],
    beam_size: BeamSize = None,
    n_best: NBest = 1,
    length_penalty: LengthPenalty = None,
    sample: Sample = None,
    prefix: Prefix = None,
    constraints: Phrases = None,
    tab: Tab = None,
    glossary: GlossaryFile = None,
    split_sentences: SplitSentences = None,
    protect: Protect = False,
    alignments: Alignments = None,
    format: DocumentFormat = None,
    memory: MemoryFile = None,
    interactive: Interactive = False,
    corrections: CorrectionsFile = None,
    shards: NumShards = None,
    on: Place = "local",
    worker: Worker = None,
) -> None:
    """Translate text, one sentence per line.

    Line N of the output translates line N of the input; blank lines come back as they are. Output
    begins while later lines are still being read, and at a terminal every line is answered at once.
    A line too long for the model is translated in parts, with a warning.
    Of a document, such as a PO or XLIFF file, the same document comes out with translations in it.
    """
    given = checked_search_options(ctx)
    if interactive:
        from transformer_mt.cli.interactive import converse

        return converse(ctx, given)
    inputs, text = files_and_text(files_or_text, input)
    files = (*inputs, prefix, constraints, glossary, memory)
    check_inputs(*files)
    check_output(output, *files)
    check_output(alignments, output, *files)
    kind = document_format(ctx, [] if text is not None else inputs)
    if check_shards(ctx, inputs if text is None else []):
        bundle = in_direction(ctx, load_of_options(ctx))
        translate_in_shards(ctx, inputs, bundle, _job(ctx, bundle, given, inputs))
        return
    if kind is not None:
        translate_document(ctx, lambda: _translator(ctx, given), inputs, *kind)
        return
    at_terminal = text is None and is_typed(inputs)
    texts = [[text]] if text is not None else input_chunks(
        inputs, errors, batch_tokens=batch_tokens, for_many=has_several_devices(device)
    )  # fmt: skip
    chunks = with_constraints(texts, prefix=prefix, phrases=constraints, tab=tab)
    bundle = in_direction(ctx, load_of_options(ctx, for_many=text is None and not at_terminal))
    job = _job(ctx, bundle, given, inputs)
    if at_terminal:
        chunks = prompted(chunks)
    # Beside lines that appear on the same screen, a bar would only be in the way.
    with (
        results_to(output) as results,
        results_to(alignments) if alignments else nullcontext() as links,
        progress_bar("translate", " lines", wanted=not results.isatty()) as show,
    ):
        job.run(chunks, results, links, show)
    job.report(has_glossary=glossary is not None)


def _translator(ctx: typer.Context, given: Mapping[str, object]) -> "Translator":
    """Load the models, and make the translator."""
    bundle = in_direction(ctx, load_of_options(ctx))
    is_split, glossary = _splits_sentences(ctx, bundle), ctx.params["glossary"]
    return make_translator(bundle, given, glossary=glossary, split_sentences=is_split)


def _job(
    ctx: typer.Context,
    bundle: "Bundle",
    given: Mapping[str, object],
    inputs: Sequence[Path],
) -> Job:
    """Make the translator, and what is to be written and warned of."""
    options = ctx.params
    details = Details.of_options(options, bundle, decoding_settings(bundle, given))
    is_split, glossary = _splits_sentences(ctx, bundle), options["glossary"]
    translator = make_translator(bundle, given, glossary=glossary, split_sentences=is_split)
    notes: list[InputWarning] = [UnseenCharacters(translator.tokenizers.src)]
    is_text = not (translator.reads_documents or translator.tokenizers.src.names_pictures)
    if options["split_sentences"] is None and is_text:
        notes.append(SeveralSentences(bundle.config.data.src_lang, is_split=is_split))
    if glossary is not None:
        plain = {**given, "n_best": 1, "num_workers": 1}
        notes.append(AddedTerms(lambda: make_translator(bundle, plain, split_sentences=is_split)))
    num_lines = count_lines(inputs) if sys.stderr.isatty() else None
    return Job(translator, details, protect=options["protect"], num_lines=num_lines, notes=notes)


def _splits_sentences(ctx: typer.Context, bundle: "Bundle") -> bool:
    """Return whether each sentence of a line is translated by itself."""
    wanted: bool | None = ctx.params["split_sentences"]
    if wanted is not None:
        return wanted
    if bundle.tokenizers.src.names_pictures:
        return False
    concerns_lines = any(ctx.params[name] is not None for name in ("prefix", "constraints", "tab"))
    return bundle.config.data.document is None and not concerns_lines
