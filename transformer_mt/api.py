"""Python interface: load a model, translate, score, evaluate, train, write training text.

These names are reached through the package: `import transformer_mt as tmt`, then `tmt.load(..)`.
Torch is imported by the functions, after they have looked for what a user named.
"""

import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

from transformer_mt.processors import set_thread_limit
from transformer_mt.translation.keywords import (
    SearchKeywords,
    checked_options,
    checked_texts,
)
from transformer_mt.translation.load import make_translator
from transformer_mt.translation.model import Model

if TYPE_CHECKING:
    from transformer_mt.config.schema import Config
    from transformer_mt.config.training import MetricName
    from transformer_mt.evaluation import Evaluation
    from transformer_mt.training.model_selection import RunResult
    from transformer_mt.translation.synthetic import SyntheticText

logger = logging.getLogger(__name__)

PathLike: TypeAlias = str | os.PathLike[str]
Precision: TypeAlias = Literal["fp32", "bf16", "fp16", "int8"]


def load(
    path: PathLike | Sequence[PathLike] | None = None,
    *,
    weights: Sequence[float] | None = None,
    device: str = "auto",
    precision: Precision = "fp32",
    engine: Literal["torch", "ctranslate2", "auto"] = "torch",
    threads: int | None = None,
) -> Model:
    """Load a model.

    Args:
        path: The folder of a run or of a model; several are an ensemble. None: the model that
            `$TMT_MODEL` names, else the best of the newest run in `runs/`.
        weights: How much each model of an ensemble counts in the mean of their probabilities.
            None: equally.
        device: `cuda`, `cuda:N`, `mps`, `cpu`, or `auto`: the first that is there. Several, with
            commas between them, or `all` CUDA devices, share long lists, a process each.
        precision: Type of weights and activations: `fp16` is for GPUs, `int8` for CPUs.
        engine: What searches on the CPU: `ctranslate2` must be installed; `auto` takes it where it
            is and can do what is asked, in float32.
        threads: Threads on the CPU, of torch for the whole process. None: as torch has it.

    Returns:
        The model, ready to translate.

    Raises:
        ModelError: If there is no model, a file of it is damaged, or models of an ensemble have
            different vocabularies.
        ConfigError: If the device is not there, or does not have the precision.
    """
    paths = [] if path is None else [path] if isinstance(path, str | os.PathLike) else list(path)
    if path is not None and not paths:
        raise ValueError("expected at least one model, got an empty list")
    if threads is not None and threads < 1:
        raise ValueError(f"expected at least one thread, got {threads}")
    set_thread_limit()
    folders = [Path(os.path.expanduser(name)) for name in paths]
    from transformer_mt.exchange.engine import load_for_engine

    bundle = load_for_engine(
        folders, weights, device=device, precision=precision, engine=engine, threads=threads
    )
    if bundle.search is None:
        from transformer_mt.devices import prepare_threads

        prepare_threads(threads)
    return Model(bundle)


def evaluate(
    model: Model,
    sources: Iterable[str],
    references: Iterable[str],
    *,
    metrics: "Sequence[MetricName]" = ("bleu", "chrf"),
    more_references: Sequence[Sequence[str]] = (),
    to: str | None = None,
    from_: str | None = None,
    tgt_lang: str | None = None,
    confidence: bool = False,
    **options: Unpack[SearchKeywords],
) -> "Evaluation":
    """Translate a test set and score the result.

    Args:
        model: The model.
        sources: Lines to translate.
        references: Their translations, one for each source.
        metrics: Any of `bleu`, `chrf`, `chrfpp` (chrF++), `ter`, `cer`, `wer` and `exact`.
        more_references: Further references, each a list with one for each source.
        to: See `Model.translate`.
        from_: See `Model.translate`.
        tgt_lang: Target language, such as `de` or `ja`, by which metrics tokenize. None: the
            model's.
        confidence: Also compute half of the 95% interval of each score, by bootstrap.
        **options: See `Model.translate`.

    Returns:
        The scores from 0 to 100, each with its sacreBLEU signature, and the translations.

    Raises:
        DataError: If there are no lines, or their numbers differ.
        ConfigError: As `Model.translate`.
    """
    given = checked_options(options)
    from transformer_mt.evaluation import translate_and_score

    model = model.directed(to, from_)
    return translate_and_score(
        make_translator(model.bundle, given),
        checked_texts(sources),
        checked_texts(references),
        metrics=metrics,
        tgt_lang=tgt_lang or model.config.data.tgt_lang,
        more_references=more_references,
        confidence=confidence,
    )


def distill(
    model: Model,
    texts: Sequence[PathLike],
    output: PathLike,
    *,
    keep: float = 1.0,
    to: str | None = None,
    from_: str | None = None,
    precision: Precision = "fp32",
    **options: Unpack[SearchKeywords],
) -> "SyntheticText":
    """Write training text for a student: lines and their translations by a teacher.

    A call that was stopped continues where it was.

    Args:
        model: The teacher.
        texts: Files of lines in the language that it reads.
        output: Folder of the pairs.
        keep: Share of the pairs to keep: those with the highest mean log-probability of a token.
        to: See `Model.translate`.
        from_: See `Model.translate`.
        precision: In which the model was loaded; what another one wrote is not continued.
        **options: See `Model.translate`.

    Returns:
        The two files (`src`, `tgt`), for `data.train` of a config, and what was left out.

    Raises:
        ConfigError: If something else is in the folder, or parts of another model, text or search.
        DataError: If a text cannot be read, or nothing is left of it.
    """
    return _synthetic(model.directed(to, from_), texts, output, "tgt", keep, precision, options)


def backtranslate(
    model: Model,
    texts: Sequence[PathLike],
    output: PathLike,
    *,
    keep: float = 1.0,
    to: str | None = None,
    from_: str | None = None,
    precision: Precision = "fp32",
    **options: Unpack[SearchKeywords],
) -> "SyntheticText":
    """Write training text of which the target is given: see `distill`.

    Args:
        model: Translates from the target language into the source language.
        texts: Files of lines of the target language.
        output: See `distill`.
        keep: See `distill`.
        to: See `distill`.
        from_: See `distill`.
        precision: See `distill`.
        **options: See `distill`.
    """
    return _synthetic(model.directed(to, from_), texts, output, "src", keep, precision, options)


def _synthetic(
    model: Model,
    texts: Sequence[PathLike],
    output: PathLike,
    writes: Literal["src", "tgt"],
    keep: float,
    precision: str,
    options: Mapping[str, Any],
) -> "SyntheticText":
    from transformer_mt.translation.synthetic import synthesize

    return synthesize(
        make_translator(model.bundle, checked_options(options)),
        model.bundle,
        [Path(os.path.expanduser(text)) for text in texts],
        Path(os.path.expanduser(output)),
        writes=writes,
        keep=keep,
        precision=precision,
    )


def train(
    config: "PathLike | Mapping[str, Any] | Config",
    overrides: Mapping[str, Any] | None = None,
    *,
    fresh: bool = False,
    budget: str | None = None,
    **settings: Any,
) -> "RunResult":
    """Train a model, or resume the run of this name where it stopped.

    Ctrl-C and the signals that ask a program to stop save the run first.

    Args:
        config: A file, the name of a recipe (`multi30k_tiny`), a mapping of settings, or a
            `Config`.
        overrides: Settings to put over it, by path: `{"training.max_steps": 1000}`.
        fresh: Put an older run of this name aside and start over.
        budget: Time, updates or target tokens of the whole run, such as `15m`, `2000steps` or
            `5Mtokens`, in place of its limits; the learning rate falls until then.
        **settings: The same by group: `name="short", training={"max_steps": 1000}`.

    Returns:
        The folder of the run (`run_dir`), that of its best model (`model_dir`, for `load`), the
        scores of that model on the validation set, and why the run ended.

    Raises:
        ConfigError: With all mistakes of the settings, or if they do not fit this machine or the
            run that is resumed.
        DataError: If the data cannot be read or used.
        DivergedError: If the loss diverges again and again.
        InterruptedRun: If a signal stopped the run; the same call resumes it.
    """
    started_at = time.monotonic()
    from transformer_mt.config.budget import within_budget
    from transformer_mt.config.loading import read_config
    from transformer_mt.config.unused import unused_settings
    from transformer_mt.data.sources import check_files
    from transformer_mt.training.signals import raise_interrupt, stop_request

    loaded = read_config(config, {**(overrides or {}), **settings})
    if budget is not None:
        loaded = within_budget(loaded, budget)
    for warning in unused_settings(loaded):
        logger.warning("%s: %s", loaded.name, warning)
    check_files(loaded.data)  # before the seconds that torch takes
    set_thread_limit()
    with stop_request(at_second=raise_interrupt):  # also during the seconds of this import
        from transformer_mt.training.trainer import train as train_model

        return train_model(loaded, fresh=fresh, started_at=started_at)
