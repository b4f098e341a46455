"""`tmt evaluate`: scores of test sets and of existing translations."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from transformer_mt.cli.evaluation_extras import (
    Checks,
    MetricCommands,
    MetricTimeout,
    ReportFile,
    SentenceFile,
    TermFile,
    TrainText,
    Wanted,
)
from transformer_mt.cli.evaluation_output import EvaluationOutput
from transformer_mt.cli.input_lines import parallel_lines
from transformer_mt.cli.model_loading import in_direction, load_of_options
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
    Precision,
    References,
    SourceLanguage,
    Sources,
    TargetLanguage,
    given_options,
    search_options_of,
)
from transformer_mt.cli.output_files import check_output, progress_bar, results_to
from transformer_mt.cli.scoring_options import (
    ByLength,
    LengthEdges,
    LengthFigure,
    ScoringLanguage,
    check_length_options,
    language_of,
    named_test_set,
)
from transformer_mt.config.training import METRIC_LABELS, MetricName
from transformer_mt.errors import ConfigError
from transformer_mt.translation.load import make_translator

if TYPE_CHECKING:
    from transformer_mt.assessment.sentences import ScoredText
    from transformer_mt.bundle import Bundle
    from transformer_mt.config.languages import Direction
    from transformer_mt.data.evaluation_sets import TestSet
    from transformer_mt.translation.translator import Translator

Bleu: TypeAlias = Annotated[bool, typer.Option("--bleu", help="BLEU (Papineni et al. 2002).")]
Chrf: TypeAlias = Annotated[bool, typer.Option("--chrf", help="chrF (Popović 2015).")]
Chrfpp: TypeAlias = Annotated[
    bool, typer.Option("--chrf++", help="chrF++, with words (Popović 2017).")
]
Ter: TypeAlias = Annotated[
    bool, typer.Option("--ter", help="TER (Snover et al. 2006); lower is better.")
]
Cer: TypeAlias = Annotated[
    bool,
    typer.Option("--cer", help="Character error rate; lower is better (needs the extra images)."),
]
Wer: TypeAlias = Annotated[
    bool, typer.Option("--wer", help="Word error rate; lower is better (needs the extra images).")
]
Exact: TypeAlias = Annotated[
    bool, typer.Option("--exact", help="Percentage of lines that equal their reference.")
]
TestSetNames: TypeAlias = Annotated[
    list[str],
    typer.Option(
        metavar="NAME",
        help="Test set of the model's config, or `valid`; repeatable. Default: all test sets.",
    ),
]
Hypotheses: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Existing translations to score, - for stdin; needs --ref, no model. With --checks "
        "and the like, a --model judges them.",
    ),
]
Kept: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Save the translations: in this file, or with several test sets as NAME.txt in this "
        "directory.",
    ),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON object per test set.")
]

Confidence: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--confidence",
        help="Add ± half of the 95% confidence interval (bootstrap, 1000 samples).",
    ),
]

WITH_HYPOTHESES = {
    "--hyp", "--ref", "--tgt-lang", "--bleu", "--chrf", "--chrf++", "--ter", "--cer", "--wer",
    "--exact", "--confidence", "--json", "--metric-cmd", "--metric-timeout", "--checks",
    "--glossary", "--sentences", "--report", "--train-text",
}  # fmt: skip
"""Options that have an effect with --hyp; --src has one with some of the last."""
JUDGING = {"--model", "--ensemble-weights", "--to", "--from", "--device", "--precision"}
"""Options of a model that judges existing translations."""


EXAMPLES = (
    "tmt evaluate --bleu",
    "tmt evaluate --model runs/base --bleu --chrf --test-set newstest2014",
    "tmt evaluate --cer --exact",
    "tmt evaluate --src test.en --ref test.de --output test.hyp",
    "tmt evaluate --hyp test.hyp --ref test.de --tgt-lang de --json",
    "tmt evaluate --hyp test.hyp --ref first.de --ref second.de --confidence",
    "tmt evaluate --hyp test.hyp --src test.en --ref test.de --checks --report test.html",
    "tmt evaluate --hyp test.hyp --src test.en --ref test.de --checks --model runs/base",
    "tmt evaluate --metric-cmd 'comet=comet-score -s {src} -t {hyp} -r {ref}'",
    "tmt evaluate --bleu --by-length --length-edges 10,20,30 --figure by_length.png",
)


def evaluate(
    ctx: typer.Context,  # holds all options, also those that no line below names
    bleu: Bleu = False,
    chrf: Chrf = False,
    chrfpp: Chrfpp = False,
    ter: Ter = False,
    cer: Cer = False,
    wer: Wer = False,
    exact: Exact = False,
    confidence: Confidence = False,
    model: ModelPaths = None,
    ensemble_weights: EnsembleWeights = None,
    test_set: TestSetNames = [],
    src: Sources = None,
    hyp: Hypotheses = None,
    ref: References = [],
    target_language: TargetLanguage = None,
    source_language: SourceLanguage = None,
    tgt_lang: ScoringLanguage = None,
    output: Kept = None,
    by_length: ByLength = False,
    length_edges: LengthEdges = None,
    figure: LengthFigure = None,
    as_json: AsJson = False,
    metric_cmd: MetricCommands = [],
    metric_timeout: MetricTimeout = 3600.0,
    checks: Checks = False,
    glossary: TermFile = None,
    sentences: SentenceFile = None,
    report: ReportFile = None,
    train_text: TrainText = None,
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    batch_tokens: BatchTokens = None,
    device: Devices = "auto",
    precision: Precision = "fp32",
    engine: Engine = "torch",
    num_workers: NumWorkers = None,
    settings: DecodingOverrides = [],
) -> None:
    """Translate and score test sets, or score existing translations.

    The default metrics are BLEU and chrF. Each score is printed with its sacreBLEU signature.
    """
    metrics: list[MetricName] = [n for n in METRIC_LABELS if ctx.params[n]] or ["bleu", "chrf"]
    edges = check_length_options(by_length, length_edges, figure)
    if hyp is not None and edges is not None:
        raise ConfigError("--by-length: no effect with --hyp")
    wanted = Wanted.of_options(ctx.params, edges)
    results = EvaluationOutput(wanted, metrics, as_json=as_json)
    if hyp is not None:
        _check_finished(ctx, wanted)
        results.add_finished(_finished(ctx, hyp, ref, src, tgt_lang))
        return results.finish(str(hyp))
    _check_sources(ctx)
    given = search_options_of(ctx)
    named = None if src is None else named_test_set(src, ref)  # before the model is loaded
    bundle = load_of_options(ctx)
    test_sets = [named] if named else _test_sets_of(bundle, test_set)
    _check_kept(output, test_sets, src, *ref)
    if named is not None:
        bundle = in_direction(ctx, bundle)
        tgt_lang = language_of(tgt_lang, named.references, of_model=bundle.config.data.tgt_lang)
    _score_test_sets(
        lambda bundle: make_translator(bundle, given),
        bundle,
        test_sets,
        results,
        metrics=metrics,
        tgt_lang=tgt_lang,
        confidence=wanted.confidence,
        output=output,
    )
    results.finish(f"Model: {bundle.directory}" if bundle.directory else "An ensemble")


def _test_sets_of(bundle: "Bundle", names: Sequence[str]) -> list["TestSet"]:
    from transformer_mt.data.evaluation_sets import read_test_sets

    run = bundle.directory and bundle.directory.parent
    return read_test_sets(bundle.config, names, run=run)


def _score_test_sets(
    make: "Callable[[Bundle], Translator]",
    bundle: "Bundle",
    test_sets: Sequence["TestSet"],
    results: EvaluationOutput,
    *,
    metrics: list[MetricName],
    tgt_lang: str | None,
    confidence: bool,
    output: Path | None,
) -> None:
    """Translate, keep, score and print each test set."""
    from transformer_mt.assessment.sentences import ScoredText
    from transformer_mt.evaluation import judge_own, translate_and_score
    from transformer_mt.translation.directions import directed

    translators: dict[Direction | None, Translator] = {}
    has_tags = bundle.config.data.language_tags is not None
    for test in test_sets:
        direction = test.direction if has_tags else None
        source, target = direction or (None, None)
        model = bundle if direction is None else directed(bundle, source=source, target=target)
        if direction not in translators:
            translators[direction] = make(model)
        translator = translators[direction]
        language = tgt_lang or model.config.data.tgt_lang
        with progress_bar(test.name, " sentences") as on_progress:
            evaluation = translate_and_score(
                translator,
                test.sources,
                test.references,
                metrics=metrics,
                tgt_lang=language,
                on_progress=on_progress,
                more_references=test.more_references,
                confidence=confidence,
            )
        if output is not None:
            _keep(evaluation.hypotheses, output, test.name if len(test_sets) > 1 else None)
        found = judge_own(translator, evaluation.translations) if results.judges else None
        text = ScoredText(
            test.name,
            evaluation.hypotheses,
            test.references,
            language,
            test.more_references,
            test.sources,
            model.config.data.src_lang,
            *(() if found is None else (found.confidences, found.coverage)),
        )
        lengths = translator.source_lengths(test.sources)
        results.add(text, evaluation.scores, lengths, direction=direction)


def _check_finished(ctx: typer.Context, wanted: Wanted) -> None:
    """Refuse options that have no effect on existing translations, or need their sources."""
    useless = set(given_options(ctx)) - WITH_HYPOTHESES
    useless -= {"--src"} if wanted.reads_sources else set()
    useless -= JUDGING if wanted.assesses and ctx.params["model"] else set()
    _check_files("--hyp", ctx.params["ref"], useless)
    wanted.check_sources(
        are_given=ctx.params["src"] is not None, are_judged=bool(ctx.params["model"])
    )


def _check_sources(ctx: typer.Context) -> None:
    """Refuse options that need --src or do not go with it."""
    options = ctx.params
    src, ref = options["src"], options["ref"]
    if (options["target_language"] or options["source_language"]) and src is None:
        raise ConfigError("--to and --from need --src: test sets have their own languages")
    if src is not None or ref:
        _check_files("--src", ref if src else [], {"--test-set"} if options["test_set"] else set())


def _check_files(option: str, ref: Sequence[Path], useless: set[str]) -> None:
    if not ref:
        raise ConfigError("--ref is needed with --hyp and with --src, and only there: give both")
    if useless:
        raise ConfigError(f"{', '.join(sorted(useless))}: no effect with {option}")


def _check_kept(output: Path | None, test_sets: Sequence["TestSet"], *read: Path | None) -> None:
    """Refuse a path for translations that could not be written."""
    if len(test_sets) == 1:
        check_output(output, *read)
    elif output is not None and output.exists() and not output.is_dir():
        raise ConfigError(
            f"cannot write {output}: it is a file, but {len(test_sets)} test sets need a folder"
        )
    elif output is not None:
        for test in test_sets:
            check_output(output / f"{test.name}.txt")


def _finished(
    ctx: typer.Context, hyp: Path, ref: Sequence[Path], src: Path | None, tgt_lang: str | None
) -> "ScoredText":
    """Read existing translations; a model that is named judges them."""
    from transformer_mt.assessment.sentences import ScoredText

    hypotheses, references, *others = parallel_lines(hyp, *ref, *([src] if src else []))
    sources = others.pop() if src else None
    found = None
    if sources is not None and ctx.params["model"]:
        from transformer_mt.evaluation import judge

        bundle = in_direction(ctx, load_of_options(ctx))
        found = judge(make_translator(bundle, search_options_of(ctx)), sources, hypotheses)
    return ScoredText(
        hyp.name,
        hypotheses,
        references,
        language_of(tgt_lang, references),
        others,
        sources,
        confidences=None if found is None else found.confidences,
        coverage=None if found is None else found.coverage,
    )


def _keep(hypotheses: Sequence[str], path: Path, name: str | None) -> None:
    if name is not None:
        path.mkdir(parents=True, exist_ok=True)
        path = path / f"{name}.txt"
    with results_to(path) as file:
        file.writelines(f"{hypothesis}\n" for hypothesis in hypotheses)
