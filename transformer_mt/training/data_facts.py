"""Facts of the data of a run: what it was trained on, and that this does not change on the way."""

import logging
from collections.abc import Sequence
from typing import Any

from transformer_mt.config.schema import Config
from transformer_mt.data.corpus import Corpus
from transformer_mt.data.evaluation_sets import GUARD, VALIDATION
from transformer_mt.data.pair_source import PairSource, cleaned, hash_values
from transformer_mt.errors import UNREADABLE_JSON, DataError
from transformer_mt.log import counted
from transformer_mt.storage.folders import replace_json
from transformer_mt.storage.hashes import FileHashes
from transformer_mt.storage.untrusted import read_json
from transformer_mt.text.tokenizer_directory import save_tokenizers
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.training.run_directory import RunDirectory

logger = logging.getLogger(__name__)


def facts_of_set(
    config: Config, sources: Sequence[PairSource], hashes: FileHashes
) -> dict[str, Any]:
    """Return the facts of a set that measures a model, as JSON values."""
    texts = [source.fingerprint(hashes) for source in cleaned(sources, config.data)]
    return {
        "source": ", ".join(source.describe() for source in sources),
        "pairs": sum(1 for source in sources for _ in source),
        "texts": texts[0] if len(texts) == 1 else hash_values(texts),
    }


def facts_of(
    hashes: FileHashes, source: PairSource, corpus: Corpus, weight: float
) -> dict[str, Any]:
    """Return the facts of a training source, as JSON values."""
    return {
        "source": source.describe(),
        "texts": source.fingerprint(hashes),
        "corpus": corpus.directory.name,
        "weight": weight,
        "report": corpus.report.as_dict(),
        "src_tokens": corpus.num_src_tokens,
        "tgt_tokens": corpus.num_tgt_tokens,
    }


def record(
    run: RunDirectory, tokenizers: Tokenizers, facts: dict[str, Any], *, is_new: bool
) -> None:
    """Keep tokenizers and facts in the folder of the run, and log them.

    Raises:
        DataError: If a run that is resumed was started with others.
    """
    if is_new:
        save_tokenizers(tokenizers, run.tokenizer_dir)
    else:
        _check_unchanged(run, facts)
    replace_json(run.preparation_path, facts)
    _log(facts)


def _check_unchanged(run: RunDirectory, facts: dict[str, Any]) -> None:
    """Refuse to resume with a tokenizer or texts that the run was not started with."""
    now = [("tokenizer", str(run.tokenizer_dir), facts["tokenizers"])]
    now += [("text", part["source"], part["texts"]) for part in _texts(facts)]
    try:
        before = read_json(run.preparation_path)
        wanted = [before["tokenizers"], *(part["texts"] for part in _texts(before))]
        compared = list(zip(now, wanted, strict=True))
    except UNREADABLE_JSON as error:
        logger.warning(
            "%s: cannot be read (%s): cannot check that tokenizer and texts are unchanged",
            run.preparation_path,
            error,
        )
        return
    for (what, place, found), expected in compared:
        if found != expected:
            raise DataError(
                f"{place}: not the {what} that the run {run.root} was started with: "
                "restore it, choose another name, or start over with --fresh"
            )


def _texts(facts: dict[str, Any]) -> list[dict[str, Any]]:
    return [*facts["train"], *(facts[name] for name in (VALIDATION, GUARD) if name in facts)]


def _log(facts: dict[str, Any]) -> None:
    for part in facts["train"]:
        report = part["report"]
        dropped = ", ".join(f"{reason} {count:,}" for reason, count in report["dropped"].items())
        logger.info(
            "training on %s: %s of %s%s, %s source and %s target tokens",
            part["source"],
            f"{report['kept']:,}",
            counted(report["pairs"], "pair"),
            f" (dropped: {dropped})" if dropped else "",
            f"{part['src_tokens']:,}",
            f"{part['tgt_tokens']:,}",
        )
    for part in _texts(facts)[len(facts["train"]) :]:
        logger.info("validating on %s: %s", part["source"], counted(part["pairs"], "pair"))
        if part["texts"] in [other["texts"] for other in facts["train"]]:
            logger.warning(
                "%s: is also training text: its scores measure memorisation, not translation "
                "quality",
                part["source"],
            )
