"""`tmt shortlist`: lexical shortlists, for faster translation."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer_mt.cli.options import ModelPath
from transformer_mt.cli.output_files import check_output
from transformer_mt.errors import ConfigError
from transformer_mt.locations import find_bundle

if TYPE_CHECKING:
    from transformer_mt.bundle import Bundle
    from transformer_mt.config.data import DocumentSettings
    from transformer_mt.data.lexicon import Pairs

logger = logging.getLogger(__name__)


EXAMPLES = (
    "tmt shortlist --output shortlist.safetensors",
    "tmt shortlist --model runs/base --output base.shortlist --candidates 50",
    "tmt translate --model runs/base --set decoding.shortlist=base.shortlist < input.txt",
)


def shortlist(
    output: Annotated[Path, typer.Option(metavar="FILE", help="Output file.")],
    model: ModelPath = None,
    num_candidates: Annotated[
        int,
        typer.Option("--candidates", metavar="N", min=1, help="Target pieces per source piece."),
    ] = 50,
    num_frequent: Annotated[
        int,
        typer.Option(
            "--frequent", metavar="N", min=0, help="Frequent target pieces that are always allowed."
        ),
    ] = 100,
    max_pairs: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Training pairs to learn from, evenly sampled."),
    ] = 200_000,
) -> None:
    """Learn a lexical shortlist, which speeds up translation.

    It is learned from the training data of the model's config; tokenized corpora are used again.
    """
    check_output(output)
    path = find_bundle(model)

    from transformer_mt.bundle import load_bundle
    from transformer_mt.data.lexicon import learn_lexicon

    logger.info("model: %s", path)
    bundle = load_bundle(path)
    if bundle.tokenizers.src.draw is not None:
        raise ConfigError(f"{path}: reads pictures: a shortlist goes by tokens of the source")
    joined = _joined_documents(bundle)
    lexicon = learn_lexicon(
        _sentence_pairs(bundle, path.parent),
        bundle.tokenizers,
        num_candidates=num_candidates,
        num_frequent=num_frequent,
        max_pairs=max_pairs,
        always=[] if joined is None else [bundle.tokenizers.tgt.ids[joined.separator]],
    )
    lexicon.save(output, bundle.tokenizers)
    typer.echo(output)


def _joined_documents(bundle: "Bundle") -> "DocumentSettings | None":
    """Return how a model joins sentences; None: it translates each as one target."""
    data = bundle.config.data
    return None if data.has_memory else data.document


def _sentence_pairs(bundle: "Bundle", run: Path) -> "list[Pairs]":
    """Find the corpora of a model's training; of documents each sentence alone.

    With those before it, their translations would be taken for its own.
    """
    from transformer_mt.data.corpus import prepare_corpus
    from transformer_mt.data.document_pairs import LastSentences, with_context
    from transformer_mt.data.evaluation_sets import HELD_OUT
    from transformer_mt.data.held_out import read_held_out, remaining
    from transformer_mt.data.pair_source import cleaned
    from transformer_mt.data.sources import filters_of, open_each

    data, tokenizers, joined = bundle.config.data, bundle.tokenizers, _joined_documents(bundle)
    sources = open_each(data.train, src_lang=data.src_lang, tgt_lang=data.tgt_lang)
    if data.splits():
        sources = remaining(sources, read_held_out(run / HELD_OUT))
    corpora = [
        prepare_corpus(
            source,
            tokenizers,
            filters=filters_of(data, settings),
            corpus_dir=Path(data.corpus_dir),
            num_workers=data.num_workers,
        )
        for source, settings in zip(
            with_context(cleaned(sources, data), joined), data.train, strict=True
        )
    ]
    if joined is None:
        return [*corpora]
    src, tgt = (side.ids[joined.separator] for side in (tokenizers.src, tokenizers.tgt))
    return [LastSentences(corpus, (src, tgt)) for corpus in corpora]
