"""`tmt translate`: lines in, translations out."""

import logging
import sys
from contextlib import nullcontext
from functools import partial

import typer

from transformer_mt.cli.combinations import check_together
from transformer_mt.cli.command import examples
from transformer_mt.cli.constraint_inputs import with_demands
from transformer_mt.cli.input_lines import (
    STDIN,
    check_inputs,
    count_lines,
    files_and_text,
    input_chunks,
    prompted,
)
from transformer_mt.cli.input_warnings import (
    AddedTerms,
    LineNote,
    SeveralSentences,
    UnseenCharacters,
)
from transformer_mt.cli.model_loading import has_several_ranks, load_on_devices, search_options_of
from transformer_mt.cli.options import (
    BatchTokens,
    BeamSize,
    Compile,
    Device,
    Devices,
    EnsembleWeights,
    LengthPenalty,
    LengthPenaltyKind,
    MaxLengthFactor,
    MaxLengthOffset,
    ModelPaths,
    NumWorkers,
    OutputFile,
    Precision,
    given_options,
)
from transformer_mt.cli.output_files import check_output, progress_bar, results_to
from transformer_mt.cli.search_options import (
    BeamGroups,
    CoveragePenalty,
    DiversityPenalty,
    GlossaryFile,
    MaxLength,
    MinLength,
    MinLengthRatio,
    NBest,
    NoRepeatNgram,
    Phrases,
    Prefix,
    RepetitionPenalty,
    Sample,
    Seed,
    ShortlistFile,
    Suppress,
    Tab,
    Temperature,
    TopK,
    TopP,
)
from transformer_mt.cli.text_options import (
    AlignmentLayer,
    Alignments,
    Alternatives,
    AsJson,
    Attention,
    BadBytes,
    FilesOrText,
    Input,
    Mbr,
    Protect,
    Samples,
    SplitSentences,
    Timings,
)
from transformer_mt.cli.translation_output import Details, Job
from transformer_mt.errors import ConfigError
from transformer_mt.translation.load import make_translator

logger = logging.getLogger(__name__)

MBR_SAMPLES = 64


def register(app: typer.Typer) -> None:
    """Add `tmt translate` to the program."""
    app.command(
        epilog=examples(
            "tmt translate < input.txt > output.txt",
            "tmt translate -m runs/base -i input.txt -o output.txt",
            "tmt translate 'A dog runs.'",
            "tmt translate --devices all < input.txt > output.txt",
            "tmt translate --beam-size 8 --n-best 8 < input.txt",
            "tmt translate --sample --n-best 5 --top-p 0.9 < input.txt",
            "tmt translate --glossary terms.tsv < input.txt",
            "tmt translate --mbr chrf --samples 64 < input.txt",
            "tmt translate --split-sentences --protect < page.txt",
            "tmt translate --model runs/a --model runs/b --ensemble-weights 2,1 < input.txt",
            "tmt translate --alignments links.txt < input.txt",
            "echo 'A dog runs.' | tmt translate --json --alternatives 5",
        ),
    )(translate)


def translate(
    ctx: typer.Context,  # tells the options of the search, which no line below names
    files_or_text: FilesOrText = [],  # noqa: B006 - typer reads the default; nothing changes it
    model: ModelPaths = None,
    ensemble_weights: EnsembleWeights = None,
    input: Input = None,
    output: OutputFile = None,
    beam_size: BeamSize = None,
    n_best: NBest = 1,
    beam_groups: BeamGroups = None,
    diversity_penalty: DiversityPenalty = None,
    coverage_penalty: CoveragePenalty = None,
    shortlist: ShortlistFile = None,
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
    suppress: Suppress = [],  # noqa: B006
    prefix: Prefix = None,
    constraints: Phrases = None,
    tab: Tab = None,
    glossary: GlossaryFile = None,
    mbr: Mbr = None,
    samples: Samples = None,
    split_sentences: SplitSentences = None,
    protect: Protect = False,
    alignments: Alignments = None,
    alignment_layer: AlignmentLayer = None,
    attention: Attention = False,
    alternatives: Alternatives = 0,
    timings: Timings = False,
    as_json: AsJson = False,
    batch_tokens: BatchTokens = None,
    compile: Compile = False,
    device: Device = "auto",
    devices: Devices = None,
    precision: Precision = "fp32",
    num_workers: NumWorkers = None,
    errors: BadBytes = "strict",
) -> None:
    """Translate text, one sentence on a line.

    Line N of the output translates line N of the input; blank lines come back as they are. Output
    begins while later lines are still being read, and at a terminal every line is answered at once.
    A line too long for the model is translated in parts, with a warning.
    """
    more = {"a second --model": len(model or []) > 1, "--tab constraints": tab == "constraints"}
    check_together([*given_options(ctx), *(name for name, is_so in more.items() if is_so)])
    num_samples = samples or MBR_SAMPLES
    if mbr and n_best > num_samples:
        raise ConfigError(f"--n-best {n_best} needs --samples {n_best} or more; got {num_samples}")
    if beam_size is not None and n_best > beam_size:
        raise ConfigError(f"--n-best {n_best} needs --beam-size {n_best} or more; got {beam_size}")
    inputs, text = files_and_text(files_or_text, input)
    files = (*inputs, prefix, constraints, glossary, shortlist)
    check_inputs(*files)
    check_output(output, *files)
    check_output(alignments, output, *files)
    from_stdin = text is None and inputs in ([], [STDIN])
    at_terminal = from_stdin and sys.stdin is not None and sys.stdin.isatty()
    chunks = with_demands(
        input_chunks(
            inputs,
            errors,
            batch_tokens=batch_tokens,
            for_many=devices is not None or has_several_ranks(),
        )
        if text is None
        else [[text]],
        prefix=prefix,
        phrases=constraints,
        tab=tab,
    )
    bundle, copies = load_on_devices(
        model,
        ensemble_weights,
        device=device,
        devices=devices,
        num_workers=num_workers,
        precision=precision,
    )
    details = Details(
        alignments is not None, attention, alternatives, alignment_layer, timings, n_best > 1
    )
    details.check(
        num_layers=bundle.config.model.num_attention_layers,
        others={"--protect": protect, "--coverage-penalty": coverage_penalty},
    )
    choose = None
    if mbr is not None:
        from transformer_mt.translation.mbr import by_expected_utility

        tgt_lang = bundle.config.data.tgt_lang
        choose = partial(by_expected_utility, utility=mbr, tgt_lang=tgt_lang, n_best=n_best)
    speaks_of_lines = any(given is not None for given in (prefix, constraints, tab))
    is_split = split_sentences
    if is_split is None:
        is_split = bundle.config.data.document is None and not speaks_of_lines
    search_options = search_options_of(ctx)
    translator = make_translator(
        bundle,
        {
            **search_options,
            "n_best": num_samples if mbr else n_best,
            "sample": sample or mbr is not None,
        },
        glossary=glossary,
        split_sentences=is_split,
        shortlist=shortlist,
        choose=choose,
        copies=copies,
    )
    if at_terminal:
        logger.info("type a sentence and press Enter; Ctrl-D ends")
        chunks = prompted(chunks)

    from transformer_mt.translation.markup.protection import Protector

    protector = Protector(translator) if protect else None
    translate_lines = (protector or translator).translate
    num_lines = count_lines(inputs) if sys.stderr.isatty() else None
    notes: list[LineNote] = [UnseenCharacters(translator.tokenizers.src)]
    if split_sentences is None and not translator.reads_documents:
        notes.append(SeveralSentences(bundle.config.data.src_lang, is_split=is_split))
    if glossary is not None:
        plain = {**search_options, "n_best": 1, "num_workers": 1}
        notes.append(AddedTerms(lambda: make_translator(bundle, plain, split_sentences=is_split)))
    job = Job(
        translator, translate_lines, details, as_json=as_json, num_lines=num_lines, notes=notes
    )
    # Beside lines that appear on the same screen, a bar would only be in the way.
    with (
        results_to(output) as results,
        results_to(alignments) if alignments else nullcontext() as links,
        progress_bar("translate", " lines", wanted=not results.isatty()) as show,
    ):
        totals = job.run(chunks, results, links, show)
    totals.tell()
    for note in notes:
        note.tell()
    if protector is not None:
        logger.info("protected: %s", protector.counts)
    if glossary is not None:
        totals.tell_terms()
