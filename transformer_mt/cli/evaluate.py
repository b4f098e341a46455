"""`tmt evaluate`: scores of test sets and of existing translations."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

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
    check_length_options,
    draw_lengths,
    language_of,
    length_records,
    length_table,
    named_test_set,
)
from transformer_mt.config.training import METRIC_LABELS, MetricName
from transformer_mt.errors import ConfigError
from transformer_mt.translation.load import make_translator

if TYPE_CHECKING:
    from transformer_mt.bundle import Bundle
    from transformer_mt.config.languages import Direction
    from transformer_mt.data.evaluation_sets import TestSet
    from transformer_mt.metrics.by_length import Bucket
    from transformer_mt.metrics.scores import Score
    from transformer_mt.translation.translator import Translator

Bleu: TypeAlias = Annotated[bool, typer.Option("--bleu", help="BLEU (Papineni et al. 2002).")]
Chrf: TypeAlias = Annotated[bool, typer.Option("--chrf", help="chrF (Popović 2015).")]
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
        metavar="FILE", help="Existing translations to score, - for stdin; needs --ref, no model."
    ),
]
ScoringLanguage: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="CODE",
        help="Target language, such as zh or ja, for tokenization. Default: the model's.",
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
    "--hyp", "--ref", "--tgt-lang", "--bleu", "--chrf", "--ter", "--cer", "--wer", "--exact",
    "--confidence", "--json",
}  # fmt: skip
"""Options that have an effect with --hyp."""


EXAMPLES = (
    "tmt evaluate --bleu",
    "tmt evaluate --model runs/base --bleu --chrf --test-set newstest2014",
    "tmt evaluate --cer --exact",
    "tmt evaluate --src test.en --ref test.de --output test.hyp",
    "tmt evaluate --hyp test.hyp --ref test.de --tgt-lang de --json",
    "tmt evaluate --hyp test.hyp --ref first.de --ref second.de --confidence",
    "tmt evaluate --bleu --by-length --length-edges 10,20,30 --figure by_length.png",
)


def evaluate(
    ctx: typer.Context,  # holds all options, also those that no line below names
    bleu: Bleu = False,
    chrf: Chrf = False,
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
    if hyp is not None:
        _check_files("--hyp", ref, set(given_options(ctx)) - WITH_HYPOTHESES)
        return _score_files(hyp, ref, metrics, tgt_lang, confidence=confidence, as_json=as_json)
    _check_sources(ctx)
    edges, given = check_length_options(by_length, length_edges, figure), search_options_of(ctx)
    named = None if src is None else named_test_set(src, ref)  # before the model is loaded
    bundle = load_of_options(ctx)
    test_sets = [named] if named else _test_sets_of(bundle, test_set)
    _check_kept(output, test_sets, src, *ref)
    if named is not None:
        bundle = in_direction(ctx, bundle)
        tgt_lang = language_of(tgt_lang, named.references, of_model=bundle.config.data.tgt_lang)
    buckets = _score_test_sets(
        lambda bundle: make_translator(bundle, given),
        bundle,
        test_sets,
        metrics=metrics,
        tgt_lang=tgt_lang,
        confidence=confidence,
        edges=edges,
        output=output,
        as_json=as_json,
    )
    draw_lengths(buckets, figure, metrics)


def _test_sets_of(bundle: "Bundle", names: Sequence[str]) -> list["TestSet"]:
    from transformer_mt.data.evaluation_sets import read_test_sets

    run = bundle.directory and bundle.directory.parent
    return read_test_sets(bundle.config, names, run=run)


def _score_test_sets(
    make: "Callable[[Bundle], Translator]",
    bundle: "Bundle",
    test_sets: Sequence["TestSet"],
    *,
    metrics: list[MetricName],
    tgt_lang: str | None,
    confidence: bool,
    edges: tuple[int, ...] | None,
    output: Path | None,
    as_json: bool,
) -> dict[str, list["Bucket"]]:
    """Translate, keep, score and print each test set; return scores by length where wanted."""
    from transformer_mt.evaluation import translate_and_score
    from transformer_mt.metrics.by_length import score_by_length
    from transformer_mt.translation.directions import directed

    translators: dict[Direction | None, Translator] = {}
    has_tags = bundle.config.data.language_tags is not None
    buckets: dict[str, list[Bucket]] = {}
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
        if edges is not None:
            buckets[test.name] = score_by_length(
                evaluation.hypotheses,
                test.references,
                translator.source_lengths(test.sources),
                metrics=metrics,
                tgt_lang=language,
                edges=edges,
                more_references=test.more_references,
            )
        own = buckets.get(test.name)
        _print(test.name, len(test.sources), evaluation.scores, own, direction, as_json=as_json)
    return buckets


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


def _score_files(
    hyp: Path,
    ref: Sequence[Path],
    metrics: list[MetricName],
    tgt_lang: str | None,
    *,
    confidence: bool,
    as_json: bool,
) -> None:
    from transformer_mt.metrics.scores import score
    from transformer_mt.metrics.significance import score_with_intervals

    hypotheses, references, *more = parallel_lines(hyp, *ref)
    language = language_of(tgt_lang, references)
    scored = score_with_intervals if confidence else score
    scores = scored(
        hypotheses, references, metrics=metrics, tgt_lang=language, more_references=more
    )
    _print(hyp.name, len(hypotheses), scores, None, None, as_json=as_json)


def _keep(hypotheses: Sequence[str], path: Path, name: str | None) -> None:
    if name is not None:
        path.mkdir(parents=True, exist_ok=True)
        path = path / f"{name}.txt"
    with results_to(path) as file:
        file.writelines(f"{hypothesis}\n" for hypothesis in hypotheses)


def _print(
    name: str,
    num_lines: int,
    scores: Sequence["Score"],
    buckets: "Sequence[Bucket] | None",
    direction: "Direction | None",
    *,
    as_json: bool,
) -> None:
    if as_json:
        record: dict[str, object] = {
            "test_set": name,
            "num_lines": num_lines,
            **({} if direction is None else {"src_lang": direction[0], "tgt_lang": direction[1]}),
            "scores": [
                {
                    "name": score.name,
                    "value": score.value,
                    "higher_is_better": score.higher_is_better,
                    "signature": score.signature,
                    **({} if score.half_width is None else {"half_width": score.half_width}),
                }
                for score in scores
            ],
        }
        if buckets is not None:
            record["by_length"] = length_records(buckets)
        typer.echo(json.dumps(record, ensure_ascii=False))
        return
    if direction is not None and not name.endswith(languages := "-".join(direction)):
        name = f"{name} ({languages})"
    for score in scores:
        half = "" if score.half_width is None else f" ± {score.half_width:.2f}"
        value = f"{score.value:.2f}{half}"
        typer.echo(f"{name}: {METRIC_LABELS[score.name]} = {value} ({score.signature})")
    if buckets is not None:
        for line in length_table(buckets, [score.name for score in scores]):
            typer.echo(line)
