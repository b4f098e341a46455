"""Warm starts: runs that begin with the weights of a finished model."""

import json
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.bundle import Bundle, load_bundle
from transformer_mt.config.data import DataSettings, TokenizerSettings
from transformer_mt.config.dumping import config_differences
from transformer_mt.config.loading import load_recorded, read_config
from transformer_mt.config.schema import Config
from transformer_mt.errors import ConfigError, ModelError
from transformer_mt.locations import WEIGHTS, find_bundle
from transformer_mt.log import JsonValue
from transformer_mt.models.build import build_on_meta
from transformer_mt.text.tokenizer_directory import read_tokenizers
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.training.checkpoint import list_checkpoints
from transformer_mt.training.freezing import freeze
from transformer_mt.training.run_directory import RunDirectory

PARTS: Mapping[str, tuple[str, ...]] = {
    "all": ("",),
    "encoder": ("encoder.",),
    "decoder": ("decoder.",),
    "embeddings": ("encoder.embedding.", "decoder.embedding.", "decoder.output."),
}
"""How the names of the weights of each part begin. A tied weight has several names."""

NEW_NOISE = 0.1
"""Noise on the rows of new pieces, in standard deviations of the old ones."""

# Changes of these make no other model of the same weights.
_HARMLESS = ("model.init", "model.dropout", "model.layer_dropout")
_HARMLESS_ENDS = ("_dropout",)
_READING = ("data.src_lang", "data.tgt_lang", "data.clean_source", "data.reverse_target")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class WarmStart:
    """The model that a run begins with.

    Attributes:
        directory: Its bundle.
        parts: Which weights are taken: see `PARTS`.
        sha256: Hash of the file of its weights.
        new_rows: For each piece that the run adds to the vocabularies the old pieces whose rows it
            begins with, one of the source and one of the target; None: the mean of all.
    """

    directory: Path
    parts: str
    sha256: str
    new_rows: tuple[tuple[int, int] | None, ...] = ()

    def apply(self, model: nn.Module) -> None:
        """Copy the weights.

        Raises:
            ModelError: If they cannot be read, or do not fit.
        """
        bundle = load_bundle(self.directory)
        copied = list(_matches(model, bundle, self.parts, new_rows=self.new_rows))
        with torch.no_grad():
            for weight, value in copied:
                weight.copy_(value)
        logger.info(
            "%s weights of %s are the first of this run",
            f"{sum(weight.numel() for weight, _ in copied):,}",
            self.directory,
        )

    def facts(self) -> dict[str, JsonValue]:
        """Return what the manifest of the run says of it."""
        return {"path": str(self.directory), "parts": self.parts, "sha256": self.sha256}


def prepare_start(config: Config, *, fresh: bool) -> tuple[Config, WarmStart | None]:
    """Find the model to start from, and take over what the config leaves out.

    Returns:
        The config with the tokenizer of that model, and its model settings if there are none; the
        model, unless there is none or the run is resumed.

    Raises:
        ConfigError: If the config describes another tokenizer, or freezes none or all weights.
        ModelError: If it is no model, or its weights do not fit.
    """
    settings = config.training
    run = RunDirectory(Path(settings.runs_dir) / config.name)
    if settings.init_from is None:
        start = None
    elif list_checkpoints(run.checkpoints_dir) and not fresh:
        recorded = load_recorded(run.config_path)
        tokenizer = recorded.tokenizer.model_copy(update={"sampling": config.tokenizer.sampling})
        return _completed(config, recorded, tokenizer), None
    else:
        try:
            bundle = load_bundle(find_bundle(Path(settings.init_from)))
        except ModelError as error:
            raise ModelError(f"training.init_from: {error}") from error
        config, start = _started(config, bundle, run)
    if settings.freeze:
        freeze(build_on_meta(config.model, src_vocab_size=8, tgt_vocab_size=8), settings.freeze)
    return config, start


def _started(config: Config, bundle: Bundle, run: RunDirectory) -> tuple[Config, WarmStart]:
    """Check that a run can start from a model."""
    directory = bundle.directory
    assert directory is not None  # it was loaded from there
    if directory.resolve().is_relative_to(run.root.resolve()):
        raise ConfigError(
            f"training.init_from: {directory} is of the run {run.root} itself: choose another name "
            "for the new run"
        )
    _check_tokenizer(config.tokenizer, bundle.tokenizers, directory)
    tokenizer = TokenizerSettings(
        path=config.tokenizer.path or str(directory),
        joint=bundle.tokenizers.one_vocabulary,
        user_symbols=config.tokenizer.user_symbols,
        sampling=config.tokenizer.sampling,
    )
    config = _completed(config, bundle.config, tokenizer)
    new_rows = _new_rows(config, bundle.tokenizers)
    model = build_on_meta(
        config.model,
        src_vocab_size=bundle.tokenizers.src.vocab_size + len(new_rows),
        tgt_vocab_size=bundle.tokenizers.tgt.vocab_size + len(new_rows),
    )
    parts = config.training.init_parts
    list(_matches(model, bundle, parts, new_rows=new_rows))
    _warn_of_differences(config, bundle.config)
    sha256 = json.loads(bundle.fingerprint)[WEIGHTS]["sha256"]
    return config, WarmStart(directory, parts, sha256, new_rows)


def _new_rows(config: Config, theirs: Tokenizers) -> tuple[tuple[int, int] | None, ...]:
    """Find what user symbols and tags that a run adds begin with: see `WarmStart`.

    Raises:
        ConfigError: If a language that another should begin like is not one of the model.
    """
    symbols = [None for text in config.tokenizer.user_symbols if text not in theirs.src.ids]
    settings = config.data.language_tags
    if settings is None:
        return tuple(symbols)
    like = {settings.tag(new): settings.tag(old) for new, old in settings.like.items()}
    for old in like.values():
        if not (theirs.src.is_control(old) and theirs.tgt.is_control(old)):
            raise ConfigError(f"data.language_tags.like: the model has no language tag '{old}'")
    new = [tag for tag in config.data.tags() if tag not in theirs.src.ids]
    tags = (
        (theirs.src.ids[like[tag]], theirs.tgt.ids[like[tag]]) if tag in like else None
        for tag in new
    )
    return (*symbols, *tags)


def _completed(config: Config, other: Config, tokenizer: TokenizerSettings) -> Config:
    """Return a config with a tokenizer, and with what it leaves out of another.

    These are the settings of the model, and the language tags.
    """
    model = config.model if "model" in config.model_fields_set else other.model
    values = config.model_dump()
    values["data"]["language_tags"] = _tags_of_both(config.data, other.data)
    return read_config(
        values | {"tokenizer": tokenizer.model_dump(), "model": model.model_dump()}, {}
    )


def _tags_of_both(data: DataSettings, theirs: DataSettings) -> dict[str, Any] | None:
    """Return the language tags of a model, with the languages that a run adds.

    Raises:
        ConfigError: If the run would put them elsewhere.
    """
    given = data.language_tags
    if theirs.language_tags is None:
        return None if given is None else given.model_dump()
    ours = {} if given is None else given.model_dump(include=given.model_fields_set)
    tags = theirs.language_tags.model_dump()
    wrong = [
        f"{name} {ours[name]} (it has {tags[name]})"
        for name in ("source", "target", "form")
        if ours.get(name, tags[name]) != tags[name]
    ]
    if wrong:
        raise ConfigError(
            f"data.language_tags: {', '.join(wrong)}: other tags than those of "
            "training.init_from: leave them out to take its own over"
        )
    read, written = theirs.languages()
    languages = dict.fromkeys((*read, *written, *ours.get("languages", [])))
    return tags | {"languages": list(languages), "like": ours.get("like", {})}


def _check_tokenizer(settings: TokenizerSettings, theirs: Tokenizers, directory: Path) -> None:
    """Refuse settings that name or describe another tokenizer than that of a model."""
    why = (
        f"than that of training.init_from {directory}, whose embeddings belong to its own pieces: "
        "leave tokenizer out to take that over"
    )
    if settings.path is not None:
        if read_tokenizers(Path(settings.path)).fingerprint() != theirs.fingerprint():
            raise ConfigError(f"tokenizer.path: {settings.path} is another tokenizer {why}")
        return
    tgt = theirs.tgt  # pictures have none for the source
    actual: dict[str, object] = {
        "type": tgt.type,
        "vocab_size": tgt.vocab_size,
        "joint": theirs.one_vocabulary,
        "byte_fallback": bool(tgt.byte_ids),
    }
    if theirs.src.patch_size is not None:  # both sides would have to grow
        actual["user_symbols"] = tgt.user_symbols
    wrong = [
        f"{name} {getattr(settings, name)} (it has {value})"
        for name, value in actual.items()
        if name in settings.model_fields_set and getattr(settings, name) != value
    ]
    if wrong:
        raise ConfigError(f"tokenizer: {', '.join(wrong)} describe another tokenizer {why}")


def _grown(
    name: str, weight: Tensor, rows: int, new_rows: Sequence[tuple[int, int] | None]
) -> Tensor:
    """Append rows to what belongs to a vocabulary; other weights stay as they are.

    A row is that of the piece it begins like; else the mean of all, and a little noise, so that two
    new pieces differ.
    """
    if not new_rows or not name.startswith(PARTS["embeddings"]) or len(weight) == rows:
        return weight
    random = torch.Generator().manual_seed(len(weight))
    # An output bias may forbid some pieces.
    mean = weight.median(0).values if weight.dim() == 1 else weight.mean(0)
    new = []
    for like in new_rows:
        if like is not None:
            new.append(weight[like[0 if name.startswith("encoder.") else 1]])
        else:
            noise = torch.randn(mean.shape, generator=random) * weight.std() * NEW_NOISE
            new.append(mean + noise if weight.dim() > 1 else mean)
    return torch.cat([weight, torch.stack(new)])


def _matches(
    model: nn.Module,
    bundle: Bundle,
    parts: str,
    *,
    new_rows: Sequence[tuple[int, int] | None] = (),
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield weights of a model, each with that of the bundle which takes its place.

    Args:
        model: Of the run.
        bundle: The model to start from.
        parts: See `PARTS`.
        new_rows: See `WarmStart`.

    Raises:
        ModelError: If some do not fit; names them all.
    """
    theirs = bundle.model.state_dict(keep_vars=True)
    names_of: defaultdict[int, list[str]] = defaultdict(list)
    ours = model.state_dict(keep_vars=True)
    for name, weight in ours.items():
        names_of[id(weight)].append(name)
    wrong = [
        f"unexpected {name} {tuple(weight.shape)}"
        for name, weight in theirs.items()
        if name not in ours and name.startswith(PARTS[parts])
    ]
    found = []
    for names in names_of.values():
        weight = ours[names[0]]
        wanted = [name for name in names if name.startswith(PARTS[parts])]
        values = {
            id(theirs[name]): _grown(name, theirs[name], len(weight), new_rows)
            for name in wanted
            if name in theirs
        }
        wrong += [f"missing {name} {tuple(weight.shape)}" for name in wanted if name not in theirs]
        wrong += [
            f"{wanted[0]} is {tuple(value.shape)} instead of {tuple(weight.shape)}"
            for value in values.values()
            if value.shape != weight.shape
        ]
        if len(values) > 1:
            wrong.append(f"{' and '.join(wanted)} are one matrix here, but differ there")
        found += [(weight, value) for value in values.values()]
    if not found and not wrong:
        raise ConfigError(f"training.init_parts: {parts}: the model has no such weights")
    if wrong:
        raise ModelError(
            f"training.init_from: {bundle.directory}: weights of another architecture: "
            + "; ".join(wrong)
            + ". Leave model out of the config to take over its settings"
        )
    yield from found


def _warn_of_differences(config: Config, other: Config) -> None:
    """Name settings by which weights that fit would mean something else."""
    differences = [
        line
        for line in config_differences(other, config)
        if line.startswith(("model.", *_READING))
        and not line.startswith(_HARMLESS)
        and not line.partition(":")[0].endswith(_HARMLESS_ENDS)
    ]
    if differences:
        logger.warning(
            "training.init_from: its weights were trained with other settings: %s",
            "; ".join(differences),
        )
