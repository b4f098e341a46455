"""CTranslate2 as the engine of beam search: when it is taken, and how a model is opened for it.

Torch is imported only where something other than the search asks for the model.
"""

import importlib
import logging
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import cache, cached_property, lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from transformer_mt.bundle import KIND, Bundle, read_folder
from transformer_mt.errors import ConfigError, ModelError
from transformer_mt.exchange.ctranslate2 import weights_of_file, write_ctranslate2
from transformer_mt.exchange.ctranslate2_search import CTranslate2Search
from transformer_mt.exchange.settings import CTRANSLATE2, check_exportable, obstacles
from transformer_mt.extras import need
from transformer_mt.locations import EXPORT, WEIGHTS, find_bundle
from transformer_mt.processors import num_threads
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.storage.folders import kind_of
from transformer_mt.translation.load import load_model, load_on_devices
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.requests import Request

if TYPE_CHECKING:
    from transformer_mt.data.lexicon import Lexicon
    from transformer_mt.models.seq2seq import Seq2Seq
    from transformer_mt.translation.translator import Search

logger = logging.getLogger(__name__)

Engine: TypeAlias = Literal["torch", "ctranslate2", "auto"]
COMPUTE_TYPES = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}
LEAST_BEAM, MOST_PENALTY = 4, 0.6
"""Where its translations were measured to be ours: greedy search or at least this beam, and `gnmt`
with at most this strength. With a beam of 2, or another penalty, 0.2 to 1.3 % differ."""
CAN = {
    "beam_size", "length_penalty", "length_penalty_kind", "max_length", "max_length_factor",
    "max_length_offset", "n_best", "batch_tokens", "num_workers", "compile",
}  # fmt: skip
"""Options of a search that mean the same here, or do not change what is found. All others are
refused where they are set; among them what it has, but means otherwise: it gives the probability of
what it forbids to all other tokens, and here they keep their own."""
WITH_OTHERS = {"temperature", "top_k", "top_p", "seed", "diversity_penalty"}
"""Options that have an effect with a refused one only: that one is named."""


def load_for_engine(
    models: Sequence[Path],
    weights: Sequence[float] | None,
    *,
    device: str,
    precision: str,
    engine: Engine,
    threads: int | None = None,
    for_many: bool = False,
) -> Bundle:
    """Load models that an engine searches; torch only where it is needed.

    With CTranslate2, the model itself is read when something other than the search asks for it.

    Args:
        models: See `translation.load.load_on_devices`; for CTranslate2 also what `tmt export`
            wrote.
        weights: See `load_on_devices`.
        device: See `load_on_devices`; CTranslate2 searches on the CPU.
        precision: See `load_on_devices`; an export is computed in the type of its file instead of
            `fp32`.
        engine: `auto` is CTranslate2 for single sentences, in float32 and without a GPU, where it
            is installed, holds the model and gives the same text.
        threads: Of CTranslate2, each with batches of its own; None: one for each processor.
        for_many: Whether many lines come at once; torch is then as fast, or faster.

    Raises:
        ConfigError: If CTranslate2 is wanted and not installed, or cannot hold the model, with all
            reasons.
        ModelError: See `load_on_devices`.
    """
    problem = "an ensemble of models" if len(models) > 1 or weights else ""
    problem = problem or _unusable(device, precision)
    if engine == "ctranslate2":
        need("ctranslate2", extra="ct2")
        if problem:
            raise ConfigError(f"engine ctranslate2 cannot do this: {problem}: take engine torch")
    elif engine == "torch" or problem or find_spec("ctranslate2") is None:
        return load_on_devices(models, weights, device=device, precision=precision)
    directory = find_bundle(models[0] if models else None, export="ctranslate2")
    must = engine == "ctranslate2" or _is_export(directory) or find_spec("torch") is None
    may = precision == "fp32" and not for_many and not (device == "auto" and _has_gpu())
    may = must or (may and _is_usable())
    bundle = _opened(directory, precision, threads) if may else None
    if bundle is None or (not must and obstacles(bundle.config, CTRANSLATE2)):
        return load_on_devices([directory], None, device=device, precision=precision)
    check_exportable(bundle.config, CTRANSLATE2)
    logger.info("model: %s", directory)
    search = partial(
        make_search,
        precision=precision,
        threads=threads,
        may_be_torch=not must,
        opened=lru_cache(maxsize=1)(_translator),
    )
    return replace(bundle, search=search)


def make_search(
    bundle: Bundle,
    options: SearchOptions,
    lexicon: "Lexicon | None" = None,
    *,
    has_glossary: bool = False,
    precision: str = "fp32",
    threads: int | None = None,
    may_be_torch: bool = False,
    opened: Callable[[Path, str, str, int], Any] | None = None,
) -> "Search | None":
    """Make the search of CTranslate2; None: it is left to torch.

    Args:
        bundle: The model, read from a folder.
        options: How to search.
        lexicon: It has no shortlist.
        has_glossary: Whether there are terms that a translation must hold.
        precision: See `load_for_engine`.
        threads: See `load_for_engine`.
        may_be_torch: Whether to leave to torch what CTranslate2 cannot do in the same way.
        opened: Keeps the model open for further searches.

    Raises:
        ConfigError: If it cannot do what the options ask for: all of it.
    """
    found = unsupported(options, lexicon, has_glossary=has_glossary)
    if may_be_torch and (reasons := [*found, *_differing(options)]):
        logger.info("engine: torch, for %s", ", ".join(reasons))
        return None
    if found:
        raise ConfigError(
            f"engine ctranslate2 cannot do this: {', '.join(found)}: take engine torch"
        )
    if options.compile:
        logger.warning("decoding.compile has no effect with engine ctranslate2")
    assert bundle.directory is not None
    translator = (opened or _translator)(
        bundle.directory, bundle.fingerprint, COMPUTE_TYPES[precision], threads or num_threads()
    )
    search = CTranslate2Search(translator, bundle, options)
    return _WithConstraints(search, bundle, options) if may_be_torch else search


class _WithConstraints:
    """Searches with CTranslate2, and with torch for lines with phrases or a prefix."""

    def __init__(self, search: CTranslate2Search, bundle: Bundle, options: SearchOptions) -> None:
        self._search = search
        self.longest = search.longest
        self._bundle, self._options = bundle, options

    @cached_property
    def _with_torch(self) -> Callable[[Sequence[Request]], list[list[Hypothesis]]]:
        from transformer_mt.translation.batch_search import BatchSearch

        return BatchSearch(self._bundle, self._options, None)

    def __call__(self, requests: Sequence[Request]) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each sentence, best first."""
        has_some = any(request.phrases or request.prefix for request in requests)
        return (self._with_torch if has_some else self._search)(requests)


def unsupported(
    options: SearchOptions, lexicon: "Lexicon | None", *, has_glossary: bool
) -> list[str]:
    """List what CTranslate2 cannot do of what is asked for; empty: all can be done."""
    found = [
        f"decoding.{option.name} {getattr(options, option.name)}"
        for option in fields(SearchOptions)
        if option.name not in CAN | WITH_OTHERS and getattr(options, option.name) != option.default
    ]
    if options.length_penalty_kind == "reward":
        found.append("decoding.length_penalty_kind reward")
    if lexicon is not None:
        found.append("decoding.shortlist")
    if has_glossary:
        found.append("a glossary")
    return found


def _differing(options: SearchOptions) -> list[str]:
    """List the options with which CTranslate2 may find another translation."""
    found = []
    if 1 < options.beam_size < LEAST_BEAM:
        found.append(f"beam size {options.beam_size}")
    if options.length_penalty_kind != "gnmt" or options.length_penalty > MOST_PENALTY:
        found.append(f"length penalty {options.length_penalty_kind} {options.length_penalty}")
    return found


def _unusable(device: str, precision: str) -> str:
    """Name a device or precision that CTranslate2 does not do; empty: it does both."""
    if device not in ("auto", "cpu"):
        return f"device {device}"
    return "" if precision in COMPUTE_TYPES else f"precision {precision}"


def _has_gpu() -> bool:
    """Return whether torch finds a GPU; it is asked where there are signs of one."""
    signs = sys.platform == "darwin" or any(map(os.path.exists, ("/dev/nvidiactl", "/dev/kfd")))
    if not (signs or shutil.which("nvidia-smi")) or find_spec("torch") is None:
        return False
    from transformer_mt.devices import choose_device

    return choose_device("auto", setting="--device").type != "cpu"


class _ModelOnDemand:
    """A model that torch reads when a part of it is first asked for."""

    def __init__(self, read: "Callable[[], Seq2Seq]") -> None:
        self._read = cache(read)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._read(), name)


def _opened(directory: Path, precision: str, threads: int | None) -> Bundle:
    """Read all of a bundle or an export but the model."""
    is_export = _is_export(directory)
    kind, weights = (EXPORT + "ctranslate2", "model.bin") if is_export else (KIND, WEIGHTS)
    nothing = cast("Seq2Seq", None)
    bundle = read_folder(directory, lambda *_: nothing, kind=kind, weights=weights)

    def read() -> "Seq2Seq":
        """Read the model with torch, if it is still the same."""
        if is_export:
            raise ConfigError(
                f"{directory}: alignments, attention, alternatives, scores and protected markup "
                "need the model that was exported: give its folder"
            )
        loaded = load_model(directory, device="cpu", precision=precision)
        from transformer_mt.devices import prepare_threads

        prepare_threads(threads)
        if loaded.fingerprint != bundle.fingerprint:
            raise ModelError(f"{directory}: the model changed while it was used: start again")
        return loaded.model

    return replace(bundle, model=cast("Seq2Seq", _ModelOnDemand(read)))


def _is_export(directory: Path | None) -> bool:
    return directory is not None and kind_of(directory) == EXPORT + "ctranslate2"


def _is_usable() -> bool:
    """Return whether CTranslate2, which is installed, can be imported."""
    try:
        importlib.import_module("ctranslate2")
    except (ImportError, OSError) as error:
        logger.warning("engine: torch, as ctranslate2 cannot be imported: %s", error)
        return False
    return True


def _translator(directory: Path, fingerprint: str, compute_type: str, threads: int) -> Any:
    """Load an export, or convert a bundle in a temporary folder.

    Each thread takes batches of its own.
    """
    ctranslate2 = importlib.import_module("ctranslate2")
    load = partial(ctranslate2.Translator, inter_threads=threads, intra_threads=1)
    try:
        if _is_export(directory):
            kept = "default" if compute_type == "float32" else compute_type
            translator = load(str(directory), compute_type=kept)
        else:
            with TemporaryDirectory() as name:
                _convert(directory, Path(name))
                translator = load(name, compute_type=compute_type)
    except ValueError as error:
        raise ConfigError(f"engine ctranslate2: {error}") from error
    logger.info("engine: ctranslate2 %s, %s", ctranslate2.__version__, translator.compute_type)
    return translator


def _convert(directory: Path, target: Path) -> None:
    bundle = read_folder(directory, lambda *_: cast("Seq2Seq", None))
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    write_ctranslate2(
        weights_of_file(directory / WEIGHTS),
        check_exportable(bundle.config, CTRANSLATE2),
        target,
        src_pieces=src.pieces(range(src.vocab_size)),
        tgt_pieces=tgt.pieces(range(tgt.vocab_size)),
    )
