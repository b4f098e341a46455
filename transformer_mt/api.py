"""Python interface: load a model, translate, score, evaluate, train.

These names are reached through the package: `import transformer_mt as tmt`, then `tmt.load(..)`.
Torch is imported by the functions, after they have looked for what a user named.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

from transformer_mt.errors import ConfigError
from transformer_mt.processors import set_thread_limit
from transformer_mt.translation.keywords import (
    SearchKeywords,
    checked_lines,
    checked_options,
    checked_texts,
    with_prefixes,
)
from transformer_mt.translation.load import decoding_settings, make_translator

if TYPE_CHECKING:
    from transformer_mt.bundle import Bundle
    from transformer_mt.config.schema import Config
    from transformer_mt.config.training import MetricName
    from transformer_mt.evaluation import Evaluation
    from transformer_mt.training.model_selection import RunResult
    from transformer_mt.translation.requests import Line
    from transformer_mt.translation.results import TargetScore, Translation

logger = logging.getLogger(__name__)

PathLike: TypeAlias = str | os.PathLike[str]
Precision: TypeAlias = Literal["fp32", "bf16", "fp16", "int8"]
Terms: TypeAlias = PathLike | Mapping[str, str]

_Work: TypeAlias = "Callable[[Sequence[str | Line], int], list[Translation]]"


def load(
    path: PathLike | Sequence[PathLike] | None = None,
    *,
    weights: Sequence[float] | None = None,
    device: str = "auto",
    precision: Precision = "fp32",
    engine: Literal["torch", "ctranslate2", "auto"] = "torch",
    threads: int | None = None,
) -> "Model":
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


class Model:
    """A trained model, or an ensemble of several, ready to translate; `load` makes it.

    It does not change while it is used: threads may share it.

    Attributes:
        bundle: The network (`bundle.model`, a `torch.nn.Module`), the tokenizers and the settings.
    """

    def __init__(self, bundle: "Bundle") -> None:
        self.bundle = bundle

    def __repr__(self) -> str:
        """Name the model, for a person to read."""
        data, bundle = self.config.data, self.bundle
        place = "cpu" if bundle.search else next(bundle.model.parameters()).device
        return f"<Model {bundle.directory}: {data.src_lang} to {data.tgt_lang}, on {place}>"

    @property
    def config(self) -> "Config":
        """The settings it was trained with; those of the first model of an ensemble."""
        return self.bundle.config

    def translate(
        self,
        lines: "Iterable[str | Line]",
        *,
        to: str | None = None,
        from_: str | None = None,
        prefixes: Sequence[str] | None = None,
        glossary: Terms | None = None,
        split_sentences: bool | None = None,
        protect: bool = False,
        alignments: bool = False,
        **options: Unpack[SearchKeywords],
    ) -> "list[Translation]":
        """Translate lines of text; result N belongs to line N.

        A blank line comes back as it is. A sentence that is longer than the model was trained for
        is translated in parts, with a warning.

        Args:
            lines: Text, or `Line` objects, which say what a translation must hold.
            to: Code of the language to translate into, for a model of several.
            from_: Code of the language to translate from, for a model that reads its tag.
            prefixes: How each translation begins, one for each line; "" leaves it open.
            glossary: Terms whose translations must be in the output where the source has the term:
                a mapping, or a file with a term, a tab and its translation on each line.
            split_sentences: Whether to translate each sentence of a line by itself. None: yes,
                unless there are prefixes or the model reads documents.
            protect: Bring placeholders, tags, URLs and addresses through unchanged.
            alignments: Also find which words belong together: `Translation.alignment`.
            **options: How to search, such as `beam_size=8` or `n_best=8`: see `SearchKeywords`.

        Returns:
            The translations; `text`, `score` and `tokens` of the best, and `n_best`.

        Raises:
            ConfigError: If an option is out of its bounds, or does not go with another or the
                model.
            DataError: If the glossary cannot be read, or a prefix or phrase does not fit.
        """
        wanted = list(checked_lines(lines))
        if prefixes is not None:
            wanted = with_prefixes(wanted, list(prefixes))
            split_sentences = bool(split_sentences)
        model = self._directed(to, from_)
        work = model._work(options, glossary, split_sentences, protect, alignments)
        return work(wanted, 1)

    def translate_iter(
        self,
        lines: "Iterable[str | Line]",
        *,
        chunk_size: int = 1024,
        to: str | None = None,
        from_: str | None = None,
        glossary: Terms | None = None,
        split_sentences: bool | None = None,
        protect: bool = False,
        alignments: bool = False,
        **options: Unpack[SearchKeywords],
    ) -> "Iterator[Translation]":
        """Translate a stream of any length, in memory that does not grow with it.

        Args:
            lines: As in `translate`; read as results are asked for, one chunk ahead.
            chunk_size: How many lines are read and translated together: many are faster, with 1
                each line is answered before the next is read.
            to: See `translate`.
            from_: See `translate`.
            glossary: See `translate`.
            split_sentences: See `translate`.
            protect: See `translate`.
            alignments: See `translate`.
            **options: See `translate`.

        Yields:
            The translation of each line, in order.

        Raises:
            ConfigError: As `translate`, at once.
            DataError: As `translate`.
        """
        if chunk_size < 1:
            raise ValueError(f"chunk_size: expected at least 1, got {chunk_size}")
        model = self._directed(to, from_)
        work = model._work(options, glossary, split_sentences, protect, alignments)
        source = checked_lines(lines)
        chunks = iter(lambda: list(islice(source, chunk_size)), [])
        starts = count(1, chunk_size)
        return chain.from_iterable(map(work, chunks, starts))

    def score(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        to: str | None = None,
        from_: str | None = None,
        batch_tokens: int | None = None,
    ) -> "list[TargetScore]":
        """Compute how probable given translations are (teacher forcing).

        Args:
            pairs: A source and its translation each.
            to: See `translate`.
            from_: See `translate`.
            batch_tokens: Tokens in a batch, both sides together. None: as in the model's config.

        Returns:
            For each pair the natural logarithm of the probability of the translation given the
            source, and of each of its tokens; NaN, with a warning, where one is too long.
        """
        from transformer_mt.translation.scoring import TargetScorer

        sources, targets = [], []
        for number, pair in enumerate(pairs, start=1):
            if not isinstance(pair, tuple | list) or [type(text) for text in pair] != [str, str]:
                raise TypeError(f"pair {number}: expected a source and a translation, got {pair!r}")
            sources.append(pair[0])
            targets.append(pair[1])
        bundle = self._directed(to, from_).bundle
        scorer = TargetScorer(bundle, batch_tokens or self.config.decoding.batch_tokens)
        return scorer.score(sources, targets)

    def _directed(self, to: str | None, from_: str | None) -> "Model":
        """Return the model for one of its directions."""
        from transformer_mt.translation.directions import directed

        return Model(directed(self.bundle, source=from_, target=to))

    def _work(
        self,
        options: Mapping[str, Any],
        glossary: Terms | None,
        split_sentences: bool | None,
        protect: bool,
        alignments: bool,
    ) -> _Work:
        """Return what translates lines, given the number of the first."""
        given = checked_options(options)
        if alignments and not self.config.model.num_attention_layers:
            raise ConfigError(
                "alignments: this model has no attention to the whole source (model.attention "
                "none, or a decoder-only model with a pattern); leave them out"
            )
        if split_sentences is None:
            split_sentences = self.config.data.document is None
        translator = make_translator(
            self.bundle, given, glossary=glossary, split_sentences=split_sentences
        )
        layer = decoding_settings(self.bundle, given).alignment_layer
        translate: Callable[..., list[Translation]] = translator.translate
        if protect:
            from transformer_mt.translation.markup.protection import Protector

            translate = Protector(translator).translate

        def work(lines: "Sequence[str | Line]", first_line: int) -> "list[Translation]":
            """Translate, and align where that is wanted."""
            found = translate(lines, first_line=first_line)
            if not alignments:
                return found
            from transformer_mt.translation.alignment import with_alignments

            return with_alignments(translator, found, layer=layer)

        return work


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
        metrics: Any of `bleu`, `chrf` and `ter`.
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

    model = model._directed(to, from_)
    return translate_and_score(
        make_translator(model.bundle, given),
        checked_texts(sources),
        checked_texts(references),
        metrics=metrics,
        tgt_lang=tgt_lang or model.config.data.tgt_lang,
        more_references=more_references,
        confidence=confidence,
    )


def train(
    config: "PathLike | Mapping[str, Any] | Config",
    overrides: Mapping[str, Any] | None = None,
    *,
    fresh: bool = False,
    **settings: Any,
) -> "RunResult":
    """Train a model, or resume the run of this name where it stopped.

    Ctrl-C and the signals that ask a program to stop save the run first.

    Args:
        config: A file, the name of a recipe (`multi30k_tiny`), a mapping of settings, or a
            `Config`.
        overrides: Settings to put over it, by path: `{"training.max_steps": 1000}`.
        fresh: Put an older run of this name aside and start over.
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
    from transformer_mt.config.loading import read_config
    from transformer_mt.config.unused import unused_settings
    from transformer_mt.data.sources import check_files
    from transformer_mt.training.signals import raise_interrupt, stop_request

    loaded = read_config(config, {**(overrides or {}), **settings})
    for warning in unused_settings(loaded):
        logger.warning("%s: %s", loaded.name, warning)
    check_files(loaded.data)  # before the seconds that torch takes
    set_thread_limit()
    with stop_request(at_second=raise_interrupt):  # also during the seconds of this import
        from transformer_mt.training.trainer import train as train_model

        return train_model(loaded, fresh=fresh)
