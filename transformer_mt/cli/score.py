"""`tmt score`: log-probabilities of given translations."""

import json
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer_mt.cli.input_lines import parallel_lines
from transformer_mt.cli.model_loading import (
    check_one_process,
    in_direction,
    read_ensemble_weights,
)
from transformer_mt.cli.options import (
    BatchTokens,
    Device,
    EnsembleWeights,
    ModelPaths,
    OutputFile,
    Precision,
    SourceLanguage,
    TargetLanguage,
)
from transformer_mt.cli.output_files import check_output, results_to
from transformer_mt.errors import ConfigError
from transformer_mt.translation.load import load_models, make_translator

if TYPE_CHECKING:
    from transformer_mt.translation.results import TargetScore

logger = logging.getLogger(__name__)

# Pairs scored together: enough for batches of similar length.
CHUNK = 4096


EXAMPLES = (
    "tmt score --src test.en --tgt test.de",
    "tmt score --src test.en --tgt test.de --json > scores.jsonl",
)


def score(
    ctx: typer.Context,  # holds the languages
    src: Annotated[Path, typer.Option(metavar="FILE", help="Source lines; - for stdin.")],
    tgt: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Target lines, one for each source line; - for stdin."),
    ],
    model: ModelPaths = None,
    ensemble_weights: EnsembleWeights = None,
    output: OutputFile = None,
    per_token: Annotated[
        bool,
        typer.Option(
            "--per-token",
            help="Add the log-probability of each token, eos last: after a tab, separated by "
            "spaces.",
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object per line: log_prob, tokens, token_log_probs."
        ),
    ] = False,
    batch_tokens: BatchTokens = None,
    target_language: TargetLanguage = None,
    source_language: SourceLanguage = None,
    device: Device = "auto",
    precision: Precision = "fp32",
) -> None:
    """Print log-probabilities of given translations.

    That is the natural logarithm of the probability of each target line given its source line. A
    pair that is too long for the model gets nan (JSON: null) and a warning; the exit code stays 0.
    """
    if per_token and as_json:
        raise ConfigError("--json has the log-probabilities of tokens already: drop --per-token")
    check_output(output, src, tgt)
    sources, targets = parallel_lines(src, tgt)
    check_one_process()
    weights = read_ensemble_weights(ensemble_weights)
    bundle = load_models(model or [], weights, device=device, precision=precision)
    bundle = in_direction(ctx, bundle)
    translator = make_translator(bundle, {"batch_tokens": batch_tokens})
    num_too_long = 0
    with results_to(output) as results:
        for start in range(0, len(sources), CHUNK):
            chunk = slice(start, start + CHUNK)
            scores = translator.scorer.score(sources[chunk], targets[chunk], first_line=start + 1)
            for target_score in scores:
                results.write(_line(target_score, per_token=per_token, as_json=as_json) + "\n")
                num_too_long += math.isnan(target_score.log_prob)
            results.flush()
    if num_too_long:
        logger.warning("%d of %d pairs were too long: nan", num_too_long, len(sources))


def _line(score: "TargetScore", *, per_token: bool, as_json: bool) -> str:
    if as_json:
        record = {
            "log_prob": None if math.isnan(score.log_prob) else score.log_prob,
            "tokens": score.tokens,
            "token_log_probs": [] if math.isnan(score.log_prob) else score.token_log_probs,
        }
        return json.dumps(record, ensure_ascii=False)
    line = f"{score.log_prob:.6f}"
    if per_token:
        line += "\t" + " ".join(f"{log_prob:.6f}" for log_prob in score.token_log_probs)
    return line
