"""Model bundle: a folder with everything that is needed to translate.

`config.yaml`, `model.safetensors`, the tokenizer files, `manifest.json` (sizes, hashes, versions,
scores) and `README.md`, the model card. For the state of the optimizer and the position in the data
see `training.checkpoint`.
"""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from transformer_mt import __version__
from transformer_mt.config.dumping import dump_config
from transformer_mt.config.loading import load_recorded
from transformer_mt.config.schema import Config
from transformer_mt.errors import UNREADABLE_JSON, ModelError, TmtError
from transformer_mt.locations import CONFIG, WEIGHTS
from transformer_mt.storage.folders import (
    MANIFEST,
    new_directory,
    os_errors_of_safetensors,
    read_manifest,
)
from transformer_mt.storage.untrusted import read_json
from transformer_mt.text.tokenizer_directory import read_tokenizers
from transformer_mt.text.tokenizer_pair import NO_TAGS, Tags, Tokenizers
from transformer_mt.versions import installed_versions

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from transformer_mt.models.seq2seq import Seq2Seq

CARD = "README.md"
KIND = "transformer_mt bundle"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Bundle:
    """A model with its tokenizers and settings.

    Attributes:
        config: The settings it was trained with.
        tokenizers: Tokenizers of both sides.
        model: The network, in evaluation mode.
        fingerprint: Sizes and hashes of the files that it was read from; empty without files.
        directory: Folder of these files.
        search: Makes the search of another engine, of the bundle, options and a lexicon, or None
            where it leaves what is asked to `translation.batch_search.BatchSearch`. None: that one.
        copies: Names of several devices that share a text, the first that of `model`, each with
            what loads the bundle again there, in a process of its own. Empty: one device.
        tags: What the model reads before each source and writes before each target, once
            `translation.directions.directed` has chosen languages.
    """

    config: Config
    tokenizers: Tokenizers
    model: "Seq2Seq"
    fingerprint: str = ""
    directory: Path | None = None
    search: Callable[..., Any] | None = None
    copies: Sequence[tuple[str, Callable[[], "Bundle"]]] = ()
    tags: Tags = NO_TAGS


def save_bundle(
    directory: Path,
    *,
    config: Config,
    tokenizers: Tokenizers,
    state_dict: "Mapping[str, Tensor]",
    scores: Mapping[str, object],
) -> None:
    """Write a bundle, or replace one atomically.

    Args:
        directory: The bundle's folder.
        config: Settings of the run.
        tokenizers: Tokenizers of the model.
        state_dict: Weights by name, tied ones once, as from `weights_of`; low-rank products are
            added to what they adapt.
        scores: Quality of the model, as JSON values, for the manifest and the model card.

    Raises:
        TmtError: If it cannot be written; an older bundle is left untouched.
    """
    from transformer_mt.nn.low_rank import merged

    about = {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "versions": installed_versions(),
        "scores": dict(scores),
    }
    state_dict = merged(state_dict)
    with new_directory(directory, about, hash_name="sha256") as folder:
        save_tensors(folder / WEIGHTS, state_dict)
        tokenizers.save(folder)
        (folder / CONFIG).write_text(dump_config(config), encoding="utf-8")
        (folder / CARD).write_text(_model_card(config, state_dict, scores), encoding="utf-8")


def load_bundle(
    directory: Path, *, device: "str | torch.device" = "cpu", dtype: "torch.dtype | None" = None
) -> Bundle:
    """Read a bundle, after checking each file against its hash.

    If a run that is training replaces it meanwhile, the new one is read.

    Args:
        directory: The bundle's folder.
        device: Device of the model.
        dtype: Type of the weights; default float32.

    Raises:
        ModelError: If a file is missing, damaged or does not fit; names the file.
    """
    return read_folder(directory, partial(_read_model, directory, device=device, dtype=dtype))


def read_folder(
    directory: Path,
    model_of: "Callable[[Config, Tokenizers], Seq2Seq]",
    *,
    kind: str = KIND,
    weights: str = WEIGHTS,
) -> Bundle:
    """Read a bundle, or what else holds the same beside the weights: see `load_bundle`.

    Args:
        directory: The folder.
        model_of: Makes the model.
        kind: Of the folder, as in its manifest.
        weights: File that has the weights.
    """
    while True:
        folder = _identity(directory)
        try:
            manifest = read_manifest(
                directory, kind, newest_version=FORMAT_VERSION, needs=(CONFIG, weights)
            )
            try:
                config = load_recorded(directory / CONFIG)
                tokenizers = read_tokenizers(directory)
            except TmtError as error:
                raise ModelError(str(error)) from error
            model = model_of(config, tokenizers)
            fingerprint = json.dumps(manifest["files"], sort_keys=True)
            return Bundle(config, tokenizers, model, fingerprint, directory)
        except ModelError:
            if _identity(directory) == folder:
                raise


def _read_model(
    directory: Path,
    config: Config,
    tokenizers: Tokenizers,
    *,
    device: "str | torch.device",
    dtype: "torch.dtype | None",
) -> "Seq2Seq":
    import torch

    from transformer_mt.models.build import build_model

    # The random initial weights are overwritten: leave the caller's random state as it is.
    with torch.random.fork_rng(devices=[]):
        model = build_model(
            config.model,
            src_vocab_size=tokenizers.src.vocab_size,
            tgt_vocab_size=tokenizers.tgt.vocab_size,
        )
    load_weights(model, directory / WEIGHTS)
    return model.to(device=device, dtype=dtype).eval()


def _identity(directory: Path) -> int | None:
    """Return the inode of a folder, which a newer folder of the same name does not share."""
    try:
        return directory.stat().st_ino
    except OSError:  # reading it gives the error
        return None


def bundle_scores(directory: Path) -> dict[str, Any]:
    """Return the scores in the manifest of a bundle; none if it cannot be read."""
    try:
        scores: dict[str, Any] = dict(read_json(directory / MANIFEST)["scores"])
        for value in (scores.get("merit", 0.0), *scores.get("validation", {}).values()):
            math.isnan(value)  # raises TypeError if it is not a number
    except (*UNREADABLE_JSON, AttributeError, OverflowError):
        return {}
    return scores


def weights_of(model: "nn.Module") -> "dict[str, Tensor]":
    """Return the weights of a model by name; a tied tensor once, under its first name."""
    names: dict[int, str] = {}
    weights: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if names.setdefault(id(tensor), name) == name:
            weights[name] = tensor.detach()
    return weights


def load_weights(model: "nn.Module", path: Path) -> None:
    """Load the weights of a model from a file; tied tensors stay tied.

    Names and shapes are checked against the model before memory is allocated for the values.

    Raises:
        ModelError: If the file is damaged, or of another architecture; names the tensors.
    """
    import torch

    weights = weights_of(model)
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            found = {name: tuple(file.get_slice(name).get_shape()) for name in names}
            _check_names(path, {name: tuple(w.shape) for name, w in weights.items()}, found)
            with torch.no_grad():
                for name, weight in weights.items():
                    weight.copy_(file.get_tensor(name))
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error


def count_parameters(directory: Path) -> int:
    """Return the number of weights in a bundle, tied ones counted once.

    Raises:
        ModelError: If they cannot be read.
    """
    path = directory / WEIGHTS
    try:
        with safe_open(path, framework="np") as file:
            return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error


def save_tensors(path: Path, tensors: "Mapping[str, Tensor]") -> None:
    """Write named tensors of any device as a safetensors file.

    Raises:
        OSError: If it cannot be written.
    """
    from safetensors.torch import save_file

    with os_errors_of_safetensors():
        save_file({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, path)
    # safetensors makes files that only the owner can read; give them the usual permissions.
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)


def _check_names(
    path: Path, expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]
) -> None:
    wrong = [f"missing {name} {expected[name]}" for name in expected if name not in found]
    wrong += [f"unexpected {name} {found[name]}" for name in found if name not in expected]
    wrong += [
        f"{name} is {found[name]} instead of {expected[name]}"
        for name in expected
        if name in found and found[name] != expected[name]
    ]
    if wrong:
        shown = "; ".join(wrong[:8]) + (f"; and {len(wrong) - 8} more" if len(wrong) > 8 else "")
        raise ModelError(f"{path}: weights of another architecture: {shown}")


def _model_card(
    config: Config, weights: "Mapping[str, Tensor]", scores: Mapping[str, object]
) -> str:
    read, written = config.data.languages()
    languages = f"{', '.join(read)} to {', '.join(written)}"
    is_named = config.data.language_tags is not None and len(written) > 1
    choice = f" --to {written[0]}" if is_named else ""
    num_parameters = sum(weight.numel() for weight in weights.values())
    lines = [
        f"# {config.name}: {languages}",
        "",
        f"A {config.model.type} of {num_parameters:,} parameters that translates from "
        f"{languages}, trained with transformer_mt {__version__}.",
        *_origin(config),
        "",
        "```",
        f"tmt translate --model .{choice} < input.txt",
        "```",
        "",
        "## Quality",
        "",
    ]
    lines += [f"- {name}: {_in_words(value)}" for name, value in scores.items() if name != "merit"]
    if not scores:
        lines.append("Not measured.")
    lines += [
        "",
        "## Files",
        "",
        f"- `{CONFIG}`: all settings, also of the data and the training",
        f"- `{WEIGHTS}`: the weights",
        "- `*.model`: SentencePiece tokenizers",
        f"- `{MANIFEST}`: sizes, hashes, versions and scores",
        "",
    ]
    return "\n".join(lines)


def _origin(config: Config) -> list[str]:
    """Describe the model that training started from, if any."""
    training = config.training
    if training.init_from is None:
        return []
    part = {"all": "weights", "embeddings": "embeddings"}.get(
        training.init_parts, f"{training.init_parts} weights"
    )
    frozen = f"; frozen: {', '.join(training.freeze)}" if training.freeze else ""
    return [f"Training started from the {part} of `{training.init_from}`{frozen}."]


def _in_words(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_in_words(part)}" for key, part in value.items())
    return str(value)
