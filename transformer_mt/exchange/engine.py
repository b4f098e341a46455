"""CTranslate2 as the engine of beam search: our options in, our hypotheses out.

Its search stops when enough hypotheses have ended and divides scores by a power of the length. With
`PATIENCE` and the whole beam returned, ranking by our length penalty gives the translations of
`translation.batch_search`, up to ties and sentences that run to their maximum length.
"""

import importlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from transformer_mt.bundle import Bundle, load_bundle
from transformer_mt.data.lexicon import Lexicon
from transformer_mt.errors import ConfigError
from transformer_mt.exchange.ctranslate2 import PATIENCE, save_ctranslate2
from transformer_mt.exchange.extras import need
from transformer_mt.exchange.huggingface import length_exponent
from transformer_mt.exchange.settings import CTRANSLATE2, check_exportable, obstacles
from transformer_mt.models.transformer import TransformerEncoder
from transformer_mt.search.beams import Hypothesis
from transformer_mt.text.special_ids import EOS_ID
from transformer_mt.translation.batch_search import BatchSearch
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.requests import Request

logger = logging.getLogger(__name__)

Engine: TypeAlias = Literal["torch", "ctranslate2", "auto"]
COMPUTE_TYPES = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}
SENTENCES_AT_ONCE = 32
CANNOT = (
    "sample", "beam_groups", "coverage_penalty", "min_length", "min_length_ratio",
    "no_repeat_ngram", "repetition_penalty", "suppress",
)  # fmt: skip
"""Options of a search that it does not have, or means otherwise: what it forbids gives its
probability to all other tokens; here it keeps it."""


class CTranslate2Search:
    """Searches for the translations of a batch with CTranslate2: see `BatchSearch`.

    Args:
        bundle: A single model, read from a folder.
        options: How to search.
        lexicon: Must be None: it has no shortlist.
        precision: `fp32`, `bf16` or `int8`.

    Raises:
        ConfigError: If CTranslate2 is not installed, or cannot hold the model, or do what the
            options ask for: all reasons.
    """

    def __init__(
        self, bundle: Bundle, options: SearchOptions, lexicon: Lexicon | None, *, precision: str
    ) -> None:
        need("ctranslate2", extra="ct2")
        check_exportable(bundle.config, CTRANSLATE2)
        if found := unsupported(bundle, options, lexicon, precision=precision):
            raise ConfigError(
                f"engine ctranslate2 cannot do this: {', '.join(found)}: take engine torch"
            )
        self._options = options
        self._src, self._tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
        self._exponent = length_exponent(options.length_penalty_kind, options.length_penalty)
        assert bundle.directory is not None  # `unsupported` refuses others
        self._translator = _translator(
            bundle.directory, bundle.fingerprint, COMPUTE_TYPES[precision]
        )

    def __call__(self, requests: Sequence[Request]) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each sentence, best first.

        Raises:
            ConfigError: If a request has phrases, as of a glossary.
        """
        if any(request.phrases for request in requests):
            raise ConfigError("engine ctranslate2 cannot enforce phrases: take engine torch")
        lengths = torch.tensor([len(request.source) + 1 for request in requests])
        limits = self._options.max_lengths(lengths, longest=None).tolist()
        found = self._search(requests, max(limits))
        for place, (own, limit) in enumerate(zip(found, limits, strict=True)):
            if not own or len(own[0].tokens) >= limit:  # the limit of a longer sentence, or unk
                (found[place],) = self._search([requests[place]], limit, without_special=True)
        return found

    def _search(
        self, requests: Sequence[Request], limit: int, *, without_special: bool = False
    ) -> list[list[Hypothesis]]:
        options = self._options
        sources = [self._src.pieces(request.source) for request in requests]
        prefixes = [self._tgt.pieces(request.prefix) for request in requests]
        special = [[piece] for piece in self._tgt.pieces(range(EOS_ID))]
        results = self._translator.translate_batch(
            sources,
            target_prefix=prefixes if any(prefixes) else None,
            max_batch_size=SENTENCES_AT_ONCE,
            beam_size=options.beam_size,
            num_hypotheses=options.beam_size,
            patience=PATIENCE,
            length_penalty=self._exponent,
            min_decoding_length=0,
            max_decoding_length=limit - 1,
            suppress_sequences=special if without_special else None,
            return_scores=True,
        )
        of_prefixes = [0.0] * len(requests)
        if any(prefixes):
            scored = self._translator.score_batch(sources, prefixes)
            of_prefixes = [sum(one.log_probs[:-1]) for one in scored]
        found = []
        for source, result, of_prefix in zip(sources, results, of_prefixes, strict=True):
            beam = []
            for pieces, score in zip(result.hypotheses, result.scores, strict=True):
                log_prob = score * (len(pieces) + 1) ** self._exponent + of_prefix
                if len(pieces) == limit - 1:  # cut off there; here eos follows
                    (whole,) = self._translator.score_batch([source], [pieces])
                    log_prob = sum(whole.log_probs)
                beam.append((pieces, log_prob))
            found.append(self._ranked(beam))
        return found

    def _ranked(self, beam: Sequence[tuple[Sequence[str], float]]) -> list[Hypothesis]:
        """Rank pieces and their log-probabilities by our length penalty."""
        found = []
        for pieces, log_prob in beam:
            tokens = [self._tgt.ids[piece] for piece in pieces]
            if min(tokens, default=EOS_ID) >= EOS_ID:  # others are never generated here
                score = float(self._options.ranking.scores(np.array(log_prob), len(tokens) + 1))
                found.append(Hypothesis(tokens, log_prob, score))
        found.sort(key=lambda hypothesis: -hypothesis.score)
        return found[: self._options.n_best]


def with_engine(bundle: Bundle, engine: Engine, *, precision: str) -> Bundle:
    """Return a bundle that is searched by an engine.

    Args:
        bundle: As `translation.load.load_models` returns it.
        engine: `auto` is CTranslate2 where it is installed and holds the model, in float32.
        precision: See `CTranslate2Search`.

    Raises:
        ConfigError: See `CTranslate2Search`, for `ctranslate2`.
    """
    if engine == "torch":
        return bundle
    if engine == "auto":
        found = obstacles(bundle.config, CTRANSLATE2)
        if find_spec("ctranslate2") is None or found or precision != "fp32":
            return bundle
        return replace(bundle, search=partial(_search_by_either, precision=precision))
    need("ctranslate2", extra="ct2")
    check_exportable(bundle.config, CTRANSLATE2)
    return replace(bundle, search=partial(CTranslate2Search, precision=precision))


def _search_by_either(
    bundle: Bundle, options: SearchOptions, lexicon: Lexicon | None, *, precision: str
) -> Callable[..., list[list[Hypothesis]]]:
    """Search with CTranslate2 what it can do, and the rest as without it."""
    ours = BatchSearch(bundle, options, lexicon)
    if found := unsupported(bundle, options, lexicon, precision=precision):
        logger.info("engine: torch, as ctranslate2 cannot do %s", ", ".join(found))
        return ours
    theirs = CTranslate2Search(bundle, options, lexicon, precision=precision)

    def search(requests: Sequence[Request]) -> list[list[Hypothesis]]:
        has_phrases = any(request.phrases for request in requests)
        return ours(requests) if has_phrases else theirs(requests)

    return search


def unsupported(
    bundle: Bundle, options: SearchOptions, lexicon: Lexicon | None, *, precision: str
) -> list[str]:
    """List what CTranslate2 cannot do of what is asked for; empty: all can be done."""
    defaults = {field.name: field.default for field in fields(SearchOptions)}
    found = [
        f"decoding.{name} {getattr(options, name)}"
        for name in CANNOT
        if getattr(options, name) != defaults[name]
    ]
    if options.length_penalty_kind == "reward":
        found.append("decoding.length_penalty_kind reward")
    if lexicon is not None:
        found.append("decoding.shortlist")
    if not isinstance(bundle.model.encoder, TransformerEncoder) or bundle.directory is None:
        found.append("an ensemble of models")
    if precision not in COMPUTE_TYPES:
        found.append(f"precision {precision}")
    if next(bundle.model.parameters()).device.type != "cpu":
        found.append("a device other than the CPU")
    return found


@lru_cache(maxsize=2)
def _translator(directory: Path, fingerprint: str, compute_type: str) -> Any:
    """Convert a model in a temporary folder, and load it, once for all searches.

    Each thread takes batches of its own.
    """
    ctranslate2 = importlib.import_module("ctranslate2")
    # The model in memory may have been packed for its own engine.
    original = load_bundle(directory)
    with TemporaryDirectory() as name:
        save_ctranslate2(original, Path(name), "float32")
        try:
            translator = ctranslate2.Translator(
                name,
                compute_type=compute_type,
                inter_threads=torch.get_num_threads(),
                intra_threads=1,
            )
        except ValueError as error:
            raise ConfigError(f"engine ctranslate2: {error}") from error
    logger.info("engine: ctranslate2 %s, %s", ctranslate2.__version__, compute_type)
    return translator
