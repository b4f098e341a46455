"""`tmt clean`: pairs of a parallel text that are good enough to train on."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from transformer_mt.cli.input_lines import count_lines
from transformer_mt.cli.options import AsJson, Device, Precision
from transformer_mt.cli.output_files import check_new_folder, progress_bar
from transformer_mt.cli.pair_inputs import (
    Column,
    Language,
    PairFiles,
    check_language_codes,
    columns_of,
    find_source,
)
from transformer_mt.config.cleaning import CleaningSettings
from transformer_mt.config.dumping import dump_config
from transformer_mt.config.loading import parse_settings, read_text
from transformer_mt.config.sources import Source, TextSource
from transformer_mt.errors import ConfigError

if TYPE_CHECKING:
    from transformer_mt.cleaning.decisions import Scorer
    from transformer_mt.cleaning.report import Report
    from transformer_mt.config.cleaning import ScoreRule
    from transformer_mt.data.pair_source import PairSource

RulesFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Rules in YAML. Default: those of --show-rules."),
]
RuleSettingsOption: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Override a setting, such as rules.ratio.max=4 or rules.language=null; repeatable.",
    ),
]

EXAMPLES = (
    "tmt clean train.en train.de --output data/clean",
    "tmt clean pairs.tsv --output data/clean --held-out dev.en --held-out dev.de",
    "tmt clean --config rules.yaml --output data/clean",
    "tmt clean --show-rules > rules.yaml",
    "tmt clean --output data/clean --undo numbers",
)


def clean(
    files: PairFiles = [],
    src: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Source lines: same as the first FILE.")
    ] = None,
    tgt: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Target lines: same as the second FILE.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory of the result; the same command continues what was stopped.",
        ),
    ] = None,
    config: RulesFile = None,
    settings: RuleSettingsOption = [],
    src_lang: Language = None,
    tgt_lang: Language = None,
    src_column: Column = None,
    tgt_column: Column = None,
    held_out: Annotated[
        list[Path],
        typer.Option(
            metavar="FILE", help="Lines of a development or test set, of either side; repeatable."
        ),
    ] = [],
    undo: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="Put back what a rule dropped, in the result --output."),
    ] = None,
    show_rules: Annotated[
        bool, typer.Option("--show-rules", help="Print the rules with all settings, and stop.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Processes. Default: one for each processor."),
    ] = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    as_json: AsJson = False,
) -> None:
    """Drop the bad pairs of a parallel text, each with its reason.

    DIR gets the kept pairs as two line files, the others in dropped.jsonl with the rule, what it
    measured and both texts, and a report with histograms and samples. The first rule that a pair
    breaks is its reason. stdout gets a line for each rule.
    """
    check_language_codes(src_lang, tgt_lang)
    rules = _settings(config, settings, held_out)
    if show_rules:
        typer.echo(dump_config(rules), nl=False)
        return
    if output is None:
        raise ConfigError("missing option: --output DIR")
    if undo is not None:
        from transformer_mt.cleaning.result import restore

        _print(restore(output, undo), as_json=as_json)
        return
    if src is not None or tgt is not None:
        if files or src is None or tgt is None:
            raise ConfigError("give two files, or --src FILE and --tgt FILE")
        files = [src, tgt]
    sources = _sources(files, rules, (src_lang, tgt_lang), columns_of(src_column, tgt_column))
    read = [getattr(one, name, None) for one in sources for name in ("src", "tgt", "path")]
    held = rules.rules.overlap.files if rules.rules.overlap else []
    check_new_folder(output, config, *(Path(name) for name in (*read, *held) if name))

    from transformer_mt.cleaning.clean import Job, clean
    from transformer_mt.cleaning.inputs import find_languages, held_out_hashes, open_leniently
    from transformer_mt.cleaning.shards import Checker
    from transformer_mt.processors import num_processors

    given = src_lang or rules.src_lang, tgt_lang or rules.tgt_lang
    opened = open_leniently(sources, (given[0] or "", given[1] or ""))
    total = _num_pairs(sources, opened)
    checker = Checker(
        rules.rules, find_languages(given, sources, opened), held_out_hashes(rules.rules.overlap)
    )
    checker.check()
    score, about = _scorer(rules.rules.score, device=device, precision=precision)
    with progress_bar("clean", " pairs") as show:
        job = Job(
            opened,
            checker,
            about=about,
            score=score,
            num_workers=workers or num_processors(),
            on_progress=lambda done, _: show(done, total),
        )
        report = clean(job, output)
    _print(report, as_json=as_json)


def _settings(
    config: Path | None, overrides: Sequence[str], held_out: Sequence[Path]
) -> CleaningSettings:
    """Read the rules, with the held-out files of the command line."""
    text = "" if config is None else read_text(config)
    found = parse_settings(CleaningSettings, text, str(config or "rules"), overrides)
    if not held_out:
        return found
    if found.rules.overlap is None:
        raise ConfigError("--held-out needs the rule overlap, which is switched off")
    files = [*found.rules.overlap.files, *map(str, held_out)]
    overlap = found.rules.overlap.model_copy(update={"files": files})
    rules = found.rules.model_copy(update={"overlap": overlap})
    return found.model_copy(update={"rules": rules})


def _sources(
    files: Sequence[Path],
    settings: CleaningSettings,
    wanted: tuple[str | None, str | None],
    columns: tuple[str, str] | None,
) -> list[Source]:
    """Return what the command line names, else what the rules name."""
    if files and settings.sources:
        raise ConfigError("the rules name sources: name no files, or remove them from the rules")
    if not files and not settings.sources:
        raise ConfigError("missing argument: name two line files or a table")
    if len(files) > 2:
        raise ConfigError(
            f"{files[2]}: expected two line files or one table; several texts go into `sources` of "
            "the rules"
        )
    if not files:
        return list(settings.sources)
    source, named = find_source(files[0], files[1] if files[1:] else None, wanted, columns)
    src_lang, tgt_lang = (a or b for a, b in zip(wanted, named, strict=True))
    return [source.model_copy(update={"src_lang": src_lang, "tgt_lang": tgt_lang})]


def _num_pairs(settings: Sequence[Source], sources: "Sequence[PairSource]") -> int | None:
    """Count the pairs of line files, and refuse those with unequal numbers at once."""
    total = 0
    for setting, source in zip(settings, sources, strict=True):
        if not isinstance(setting, TextSource):
            return None
        numbers = [count_lines([Path(path)]) for path in (setting.src, setting.tgt)]
        if numbers[0] != numbers[1]:
            for _ in source:  # says so
                pass
        total += numbers[0] or 0
    return total


def _scorer(
    rule: "ScoreRule | None", *, device: str, precision: str
) -> "tuple[Scorer | None, dict[str, object]]":
    """Load the models of the rule `score`."""
    if rule is None:
        return None, {}
    from transformer_mt.translation.load import load_model, make_translator

    paths = [rule.forward, *([rule.backward] if rule.backward else [])]
    bundles = [load_model(Path(path), device=device, precision=precision) for path in paths]
    scorers = [make_translator(bundle, {}).scorer for bundle in bundles]

    def score(sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        """Compute the dual conditional cross-entropy of pairs, in nats per token."""
        sides = ((sources, targets), (targets, sources))
        entropies = [
            [-s.log_prob / len(s.tokens) for s in scorer.score(*pair)]
            for scorer, pair in zip(scorers, sides, strict=False)
        ]
        if len(entropies) == 1:
            return entropies[0]
        return [(f + b) / 2 + abs(f - b) for f, b in zip(*entropies, strict=True)]

    return score, {"models": [bundle.fingerprint for bundle in bundles], "precision": precision}


def _print(report: "Report", *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(report.as_dict(), ensure_ascii=False))
        return
    typer.echo(report.table())
    src, tgt = (json.dumps(path, ensure_ascii=False) for path in (report.src, report.tgt))
    typer.echo(f"- {{type: text, src: {src}, tgt: {tgt}}}")
