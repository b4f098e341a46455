"""Verification of runs and models: files against their hashes, a model against its own score."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.bundle import Bundle, bundle_scores, load_bundle
from transformer_mt.data.corpus import Corpus
from transformer_mt.data.evaluation_sets import VALIDATION, read_test_sets
from transformer_mt.errors import ModelError, TmtError
from transformer_mt.evaluation import mean_scores, translate_and_score
from transformer_mt.locations import WEIGHTS
from transformer_mt.storage.folders import MANIFEST, kind_of
from transformer_mt.text.tokenizer_directory import KIND as TOKENIZER_KIND
from transformer_mt.text.tokenizer_directory import load_tokenizers
from transformer_mt.training.checkpoint import list_checkpoints, read_checkpoint
from transformer_mt.training.run_directory import RunDirectory
from transformer_mt.training.validation import validation_search
from transformer_mt.translation.directions import directed
from transformer_mt.translation.translator import Translator

# Between machines, precisions and versions of torch, close hypotheses may swap ranks.
TOLERANCE = 0.1


@dataclass(frozen=True)
class Finding:
    """The result of a check of one folder.

    Attributes:
        directory: The folder.
        what: `bundle`, `checkpoint`, `corpus`, `tokenizer` or `score`.
        problem: What is wrong with it; None = nothing.
        fact: What was measured, for a person to read.
    """

    directory: Path
    what: str
    problem: str | None = None
    fact: str = ""


def verify(directory: Path, *, rescore: bool = True) -> Iterator[Finding]:
    """Check a bundle, a corpus, a tokenizer, or a run with all its bundles and checkpoints.

    Args:
        directory: The folder.
        rescore: Translate the validation set of each bundle again and compare the scores with those
            in its manifest.

    Raises:
        ModelError: If the folder is none of these.
    """
    run = RunDirectory(directory)
    if (directory / "src.tokens").exists():
        yield _check(directory, "corpus", lambda: Corpus.open(directory))
    elif kind_of(directory) == TOKENIZER_KIND:
        yield _check(directory, "tokenizer", lambda: load_tokenizers(directory))
    elif _is_bundle(directory) and not run.checkpoints_dir.is_dir():
        yield from _verify_bundle(directory, rescore=rescore)
    elif run.config_path.exists():
        yield _check(run.tokenizer_dir, "tokenizer", lambda: load_tokenizers(run.tokenizer_dir))
        for checkpoint in list_checkpoints(run.checkpoints_dir):
            yield _check(checkpoint, "checkpoint", lambda path=checkpoint: read_checkpoint(path))  # type: ignore[misc]
        for bundle in (run.best_dir, run.averaged_dir):
            if bundle.is_dir():
                yield from _verify_bundle(bundle, rescore=rescore)
    else:
        raise ModelError(f"{directory}: expected a model folder, a run, a corpus or a tokenizer")


def _is_bundle(directory: Path) -> bool:
    """Return whether a folder is a bundle, perhaps with a file missing."""
    return any((directory / name).exists() for name in (MANIFEST, WEIGHTS))


def _verify_bundle(directory: Path, *, rescore: bool) -> Iterator[Finding]:
    try:
        bundle = load_bundle(directory)
    except TmtError as error:
        yield Finding(directory, "bundle", str(error))
        return
    yield Finding(directory, "bundle")
    expected = bundle_scores(directory).get("validation", {})
    metrics = [name for name in bundle.config.training.validation.metrics if name in expected]
    if not rescore or not metrics:
        return
    try:
        found = _scores(bundle)
    except TmtError as error:
        yield Finding(directory, "score", f"its validation set cannot be scored: {error}")
        return
    for name in metrics:
        fact = f"{name} {found[name]:.2f}, {expected[name]:.2f} when it was made"
        is_same = abs(found[name] - expected[name]) <= TOLERANCE
        yield Finding(directory, "score", None if is_same else fact, fact)


def _scores(bundle: Bundle) -> dict[str, float]:
    """Score the validation set as training did."""
    run = bundle.directory and bundle.directory.parent
    sets = read_test_sets(bundle.config, [VALIDATION], run=run)
    evaluations = []
    for valid in sets:
        source, target = valid.direction or (None, None)
        model = directed(bundle, source=source, target=target)
        evaluations.append(
            translate_and_score(
                Translator(model, validation_search(bundle.config)),
                valid.sources,
                valid.references,
                metrics=bundle.config.training.validation.metrics,
                tgt_lang=model.config.data.tgt_lang,
            )
        )
    return mean_scores([one.name for one in sets], [one.scores for one in evaluations])


def _check(directory: Path, what: str, read: Callable[[], object]) -> Finding:
    try:
        read()
    except TmtError as error:
        return Finding(directory, what, str(error))
    return Finding(directory, what)
