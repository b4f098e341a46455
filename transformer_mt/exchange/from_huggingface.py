"""Import of Marian models in Hugging Face's format: the OPUS-MT family.

A bundle has the ids pad 0, unk 1, bos 2 and eos 3, so the vocabulary is reordered. Their decoder
starts from the row of pad: `bos` gets a copy of it, and an output bias that makes it impossible.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from transformer_mt.bundle import KIND, Bundle, save_bundle, weights_of
from transformer_mt.config.loading import read_config
from transformer_mt.config.schema import Config
from transformer_mt.errors import ModelError
from transformer_mt.exchange.extras import need
from transformer_mt.exchange.huggingface import BLOCKS, NEVER, HuggingFaceTwin
from transformer_mt.exchange.marian_vocabulary import (
    MarianVocabulary,
    laid_over,
    read_object,
    read_vocabulary,
)
from transformer_mt.exchange.parity import Parity, Twin, check, compare
from transformer_mt.locations import WEIGHTS
from transformer_mt.models.build import build_model
from transformer_mt.storage.folders import refuse_to_replace_others
from transformer_mt.text.tokenizer_pair import Tokenizers

PICKLED_WEIGHTS = "pytorch_model.bin"

FIXED = {
    "model_type": ("marian",),
    "scale_embedding": (True,),
    "normalize_before": (False, None),
    "normalize_embedding": (False, None),
    "add_final_layer_norm": (False, None),
    "static_position_embeddings": (True, None),
    "activation_function": ("swish", "silu", "relu", "gelu"),
}
"""Settings of theirs, and the values that a model here can have."""


@dataclass(frozen=True)
class Imported:
    """A model that was read.

    Attributes:
        bundle: The model.
        rows: For each source and each target token of ours the number of theirs.
        max_length: Maximum length of translations in a comparison, in tokens.
        twin: Loads the original in its own program.
        package: What that needs, and its extra.
        extra: See `package`.
    """

    bundle: Bundle
    rows: tuple[list[int], list[int]]
    max_length: int
    twin: Callable[[], Twin]
    package: str
    extra: str


def import_marian(directory: Path, *, src_lang: str | None, tgt_lang: str | None) -> Imported:
    """Read a Marian model of Hugging Face's format.

    Args:
        directory: With `config.json`, weights, `vocab.json`, `source.spm` and `target.spm`.
        src_lang: Language of the source; None: as `tokenizer_config.json` says.
        tgt_lang: Language of the target; None: the same.

    Returns:
        The model, which translates as it did there, up to ties.

    Raises:
        ModelError: If a file is missing or damaged, tensors are missing, unexpected or of another
            shape (all are listed), or the model has parts that there are not here.
    """
    theirs = read_object(directory, "config.json")
    _check(directory, theirs)
    tokenizing = read_object(directory, "tokenizer_config.json")
    generation = theirs
    if (directory / "generation_config.json").exists():
        generation = theirs | read_object(directory, "generation_config.json")
    shared = theirs.get("share_encoder_decoder_embeddings", True)
    start = theirs.get("decoder_start_token_id", theirs["pad_token_id"])
    src = tgt = read_vocabulary(directory / "vocab.json", theirs, start)
    if not shared:
        tgt = read_vocabulary(directory / "target_vocab.json", theirs, start)
    source_model, target_model = directory / "source.spm", directory / "target.spm"
    src_tokenizer, src = laid_over(source_model, src)
    tgt_tokenizer, tgt = laid_over(target_model, src if shared else tgt)
    if shared:
        src_tokenizer, src = laid_over(source_model, tgt)
    config = _config(
        directory.resolve().name,
        theirs,
        generation,
        languages=(
            src_lang or tokenizing.get("source_lang") or "und",
            tgt_lang or tokenizing.get("target_lang") or "und",
        ),
        vocab_size=len(tgt.rows),
        shared=shared,
    )
    model = build_model(config.model, src_vocab_size=len(src.rows), tgt_vocab_size=len(tgt.rows))
    vocabularies = {"encoder": src, "decoder": tgt}
    _fill(directory, weights_of(model), _tensors(directory), vocabularies, shared=shared)
    tokenizers = Tokenizers(src_tokenizer, tgt_tokenizer)
    rows = (src.rows, tgt.rows)
    longest = min(config.decoding.max_length_offset, theirs["max_position_embeddings"] - 1, 256)
    return Imported(
        Bundle(config, tokenizers, model.eval()),
        rows,
        max_length=longest,
        twin=lambda: HuggingFaceTwin(directory, rows),
        package="transformers",
        extra="hf",
    )


def _check(directory: Path, theirs: Mapping[str, Any]) -> None:
    wrong = [
        f"{name} {theirs.get(name)}: expected {' or '.join(map(str, values))}"
        for name, values in FIXED.items()
        if theirs.get(name) not in values
    ]
    sizes = ("d_model", "vocab_size", "pad_token_id", "eos_token_id", "max_position_embeddings")
    sides = ("layers", "attention_heads", "ffn_dim")
    for name in (*sizes, *(f"{side}_{part}" for side in ("encoder", "decoder") for part in sides)):
        if type(theirs.get(name)) is not int:
            wrong.append(f"{name} {theirs.get(name)}: expected a number")
    for part in ("attention_heads", "ffn_dim"):
        pair = theirs.get(f"encoder_{part}"), theirs.get(f"decoder_{part}")
        if pair[0] != pair[1]:
            wrong.append(f"encoder_{part} {pair[0]} and decoder_{part} {pair[1]}: expected one")
    if wrong:
        raise ModelError(
            "\n".join([f"{directory / 'config.json'}: a model that cannot be imported:", *wrong])
        )


def _config(
    name: str,
    theirs: Mapping[str, Any],
    generation: Mapping[str, Any],
    *,
    languages: Sequence[str],
    vocab_size: int,
    shared: bool,
) -> Config:
    """Make the config of the bundle; its files of text are names to replace before training."""
    src, tgt = languages
    activation = theirs["activation_function"]
    longest = generation.get("max_length") or 512
    values = {
        "name": "".join(c if c.isalnum() or c in "._-" else "_" for c in name).lstrip("._-") or "m",
        "data": {
            "src_lang": src,
            "tgt_lang": tgt,
            "clean_source": False,
            "train": [{"type": "text", "src": f"train.{src}", "tgt": f"train.{tgt}"}],
            "valid": {"type": "text", "src": f"valid.{src}", "tgt": f"valid.{tgt}"},
            "filters": {"max_length": min(longest, theirs["max_position_embeddings"])},
        },
        "tokenizer": {"type": "unigram", "vocab_size": vocab_size, "joint": shared},
        "model": {
            "type": "transformer",
            "d_model": theirs["d_model"],
            "d_ff": theirs["encoder_ffn_dim"],
            "num_heads": theirs["encoder_attention_heads"],
            "num_encoder_layers": theirs["encoder_layers"],
            "num_decoder_layers": theirs["decoder_layers"],
            "activation": "swish" if activation == "silu" else activation,
            "tie_embeddings": "all" if shared else "target",
            "output_bias": True,
            "dropout": theirs.get("dropout", 0.1),
        },
        "training": {"max_epochs": 1, "lr": 1e-5, "schedule": {"type": "constant"}},
        "decoding": {
            "beam_size": generation.get("num_beams") or 4,
            "length_penalty_kind": "average",
            "length_penalty": generation.get("length_penalty", 1.0),
            "max_length_factor": 0,
            "max_length_offset": longest - 1,  # theirs counts the start
        },
    }
    return read_config(values, {})


def _tensors(directory: Path) -> dict[str, Tensor]:
    """Read the weights; pickles as tensors alone."""
    path = directory / WEIGHTS
    try:
        if path.exists():
            return load_file(path)
        path = directory / PICKLED_WEIGHTS
        found = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise ModelError(f"{directory}: no {WEIGHTS} and no {PICKLED_WEIGHTS}") from error
    except Exception as error:  # whatever a damaged or hostile file makes the readers raise
        raise ModelError(f"{path}: cannot be read: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(x, Tensor) for x in found.values()):
        raise ModelError(f"{path}: expected tensors by name")
    return found


def _fill(
    directory: Path,
    ours: Mapping[str, Tensor],
    theirs: dict[str, Tensor],
    vocabularies: Mapping[str, MarianVocabulary],
    *,
    shared: bool,
) -> None:
    """Copy their tensors into ours.

    Raises:
        ModelError: With all tensors that are missing, unexpected or of another shape.
    """
    left = {name: tensor.float() for name, tensor in theirs.items() if not _is_copy(name, theirs)}
    wrong = []

    def take(name: str) -> Tensor | None:
        if name not in left:
            wrong.append(f"missing {name}")
        return left.pop(name, None)

    def take_rows(name: str, vocabulary: MarianVocabulary) -> Tensor | None:
        found, num_rows = take(name), max(vocabulary.rows) + 1
        if found is not None and num_rows not in (len(found), found.numel()):
            wrong.append(f"{name}: expected {num_rows} tokens, got {tuple(found.shape)}")
            return None
        return found

    for name, weight in ours.items():
        side = name.partition(".")[0]
        vocabulary = vocabularies[side]
        if name.endswith("embedding.weight"):
            own = f"model.{side}.embed_tokens.weight"
            found = take_rows("model.shared.weight" if shared else own, vocabulary)
            parts = [found if found is None else found[vocabulary.rows]]
        elif name == "decoder.output.bias":
            found = take_rows("final_logits_bias", vocabulary)
            parts = [found if found is None else _bias(found, vocabulary)]
        else:
            _, _, layer, rest = name.split(".", 3)
            block, _, kind = rest.rpartition(".")
            parts = [take(f"model.{side}.layers.{layer}.{part}.{kind}") for part in BLOCKS[block]]
        sound = [part for part in parts if part is not None]
        if len(sound) == len(parts):
            whole = torch.cat(sound)
            if whole.shape == weight.shape:
                weight.copy_(whole)
            else:
                wrong.append(f"{name}: expected {tuple(weight.shape)}, got {tuple(whole.shape)}")
    wrong += [f"unexpected {name}" for name in left]
    if wrong:
        raise ModelError("\n".join([f"{directory}: weights of another architecture:", *wrong]))


def _is_copy(name: str, theirs: Mapping[str, Tensor]) -> bool:
    """Return whether a weight is a table of positions, computed here, or a copy of an embedding."""
    if "embed_positions" in name:
        return True
    tied = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight",
            "lm_head.weight")  # fmt: skip
    first = theirs.get("model.shared.weight")
    if first is None and name == "lm_head.weight":
        first = theirs.get("model.decoder.embed_tokens.weight")
    return name in tied and first is not None and torch.equal(theirs[name], first)


def _bias(bias: Tensor, vocabulary: MarianVocabulary) -> Tensor:
    """Reorder a bias (1, V); pieces that are only read get no probability."""
    found = bias.flatten()[vocabulary.rows]
    found[2] = NEVER
    found[vocabulary.num_known :] = NEVER
    return found


def save_imported(
    imported: Imported, directory: Path, output: Path, *, sources: Sequence[str] | None
) -> Parity | None:
    """Compare an imported model with its original, and write it as a bundle.

    Args:
        imported: What was read.
        directory: The original.
        output: Folder to create, or an earlier bundle to replace.
        sources: Sentences to compare on; None: they are not compared.

    Raises:
        ConfigError: If something else is in the folder, or the other program is not installed.
        TmtError: If it does not compute the same, or the disk refuses.
    """
    bundle = imported.bundle
    refuse_to_replace_others(output, KIND)
    parity = None
    if sources is not None:
        need(imported.package, extra=imported.extra)
        decoding = bundle.config.decoding
        parity = compare(
            bundle,
            imported.twin(),
            sources,
            None,
            beam_size=decoding.beam_size,
            exponent=decoding.length_penalty,
            max_length=imported.max_length,
        )
        check(parity, str(directory))
    save_bundle(
        output,
        config=bundle.config,
        tokenizers=bundle.tokenizers,
        state_dict=weights_of(bundle.model),
        scores={} if parity is None else {"parity": parity.as_json()},
    )
    return parity
