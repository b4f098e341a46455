"""Architectures of Hugging Face's format that can be imported: a table, and their settings as ours.

M2M-100 and NLLB are one architecture with two kinds of tokenizers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_mt.config.schema import Config
from transformer_mt.errors import ModelError
from transformer_mt.exchange.m2m_vocabulary import read_m2m
from transformer_mt.exchange.marian_vocabulary import (
    MarianVocabulary,
    laid_over,
    read_object,
    read_vocabulary,
)
from transformer_mt.exchange.numbers import Number, config_of, numbers, wrong_numbers
from transformer_mt.text.tokenizer_pair import Tokenizers


@dataclass(frozen=True)
class Vocabularies:
    """What the files of a tokenizer say.

    Attributes:
        tokenizers: Ours.
        src: Pieces of the source, with their rows.
        tgt: Pieces of the target.
        languages: Source and target; None: not said.
        tags: Our settings of language tags; None: one direction.
    """

    tokenizers: Tokenizers
    src: MarianVocabulary
    tgt: MarianVocabulary
    languages: tuple[str | None, str | None]
    tags: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Architecture:
    """A kind of model there.

    Attributes:
        fixed: Settings of theirs, and the values that a model here can have.
        read: Reads the vocabularies, given the folder, `config.json` and the number of the first
            token of the decoder.
        model: Our settings that all such models have.
        has_bias: Whether there is a bias of the output.
    """

    fixed: Mapping[str, tuple[object, ...]]
    read: Callable[[Path, Mapping[str, Any], int], Vocabularies]
    model: Mapping[str, Any]
    has_bias: bool


def _read_marian(directory: Path, theirs: Mapping[str, Any], start: int) -> Vocabularies:
    """Read one or two vocabularies over two SentencePiece models."""
    tokenizing = read_object(directory, "tokenizer_config.json")
    shared = theirs.get("share_encoder_decoder_embeddings", True)
    size = theirs["vocab_size"]
    src = tgt = read_vocabulary(directory / "vocab.json", theirs, start, size=size)
    if not shared:
        size = theirs.get("decoder_vocab_size") or size
        tgt = read_vocabulary(directory / "target_vocab.json", theirs, start, size=size)
    source_model, target_model = directory / "source.spm", directory / "target.spm"
    src_tokenizer, src = laid_over(source_model, src)
    tgt_tokenizer, tgt = laid_over(target_model, src if shared else tgt)
    if shared:
        src_tokenizer, src = laid_over(source_model, tgt)
    return Vocabularies(
        Tokenizers(src_tokenizer, tgt_tokenizer),
        src,
        tgt,
        (tokenizing.get("source_lang"), tokenizing.get("target_lang")),
    )


def _read_m2m(directory: Path, theirs: Mapping[str, Any], start: int) -> Vocabularies:
    """Read one vocabulary with language codes."""
    tokenizing = read_object(directory, "tokenizer_config.json")
    tokenizer, vocabulary, tags = read_m2m(directory, theirs, tokenizing, start)
    given = tokenizing.get("src_lang"), tokenizing.get("tgt_lang")
    src = given[0] or ("eng_Latn" if "eng_Latn" in tags["languages"] else "en")
    tgt = given[1] or next((code for code in tags["languages"] if code != src), src)
    return Vocabularies(Tokenizers(tokenizer, tokenizer), vocabulary, vocabulary, (src, tgt), tags)


SIZE = Number(least=1)
NUMBERS = {
    **dict.fromkeys(("d_model", "vocab_size", "max_position_embeddings"), SIZE),
    **dict.fromkeys(("pad_token_id", "eos_token_id"), Number()),
    "decoder_start_token_id": Number(default=0),
    "decoder_vocab_size": Number(least=1, default=0),
    **{
        f"{side}_{part}": SIZE
        for side in ("encoder", "decoder")
        for part in ("layers", "attention_heads", "ffn_dim")
    },
    "dropout": Number(most=1, whole=False, default=0.1),
}
"""Of `config.json`; null ids and sizes have other defaults than these."""
GENERATION = {
    "max_length": Number(least=1, default=512),
    "num_beams": Number(least=1, default=4),
    "length_penalty": Number(most=100, whole=False, default=1.0),
}
"""Of `generation_config.json`."""
ACTIVATIONS = ("swish", "silu", "relu", "gelu")
ARCHITECTURES = {
    "marian": Architecture(
        fixed={
            "scale_embedding": (True,),
            "normalize_before": (False, None),
            "normalize_embedding": (False, None),
            "add_final_layer_norm": (False, None),
            "static_position_embeddings": (True, None),
            "activation_function": ACTIVATIONS,
            "share_encoder_decoder_embeddings": (True, False, None),
        },
        read=_read_marian,
        model={},
        has_bias=True,
    ),
    "m2m_100": Architecture(
        fixed={"scale_embedding": (True,), "activation_function": ACTIVATIONS},
        read=_read_m2m,
        model={"norm": "pre", "positions": {"type": "sinusoidal", "offset": 2, "endpoint": True}},
        has_bias=False,
    ),
}
"""By `model_type`."""


def architecture_of(directory: Path, theirs: Mapping[str, Any]) -> Architecture:
    """Return the architecture of a model.

    Args:
        directory: Its folder.
        theirs: Its `config.json`.

    Raises:
        ModelError: If there is none such here, with all reasons.
    """
    kind = theirs.get("model_type")
    architecture = ARCHITECTURES.get(str(kind))
    wrong = []
    if architecture is None:
        wrong.append(f"model_type {kind}: expected {' or '.join(ARCHITECTURES)}")
    wrong += [
        f"{name} {theirs.get(name)}: expected {' or '.join(map(str, values))}"
        for name, values in ({} if architecture is None else architecture.fixed).items()
        if theirs.get(name) not in values
    ]
    wrong += wrong_numbers(theirs, NUMBERS)
    for part in ("attention_heads", "ffn_dim"):
        pair = theirs.get(f"encoder_{part}"), theirs.get(f"decoder_{part}")
        if pair[0] != pair[1]:
            wrong.append(f"encoder_{part} {pair[0]} and decoder_{part} {pair[1]}: expected one")
    if wrong or architecture is None:
        raise ModelError(
            "\n".join([f"{directory / 'config.json'}: a model that cannot be imported:", *wrong])
        )
    return architecture


def imported_config(
    directory: Path,
    theirs: Mapping[str, Any],
    generation: Mapping[str, Any],
    architecture: Architecture,
    vocabularies: Vocabularies,
    *,
    languages: Sequence[str],
) -> Config:
    """Make the config of a bundle; its files of text are names to replace before training.

    Args:
        directory: The folder of the model.
        theirs: `config.json`.
        generation: The settings of `generate`.
        architecture: What `architecture_of` returned.
        vocabularies: What its `read` returned.
        languages: Source and target.

    Raises:
        ModelError: If a setting of `generate` is nonsense, or there is no such model here.
    """
    search = numbers(directory / "generation_config.json", generation, GENERATION)
    shared = vocabularies.tokenizers.one_vocabulary
    activation = theirs["activation_function"]
    longest = search["max_length"]
    values = {
        "data": {
            "filters": {"max_length": min(longest, theirs["max_position_embeddings"])},
            "language_tags": vocabularies.tags,
        },
        "tokenizer": {
            "type": vocabularies.tokenizers.tgt.type,
            "vocab_size": len(vocabularies.tgt.rows),
            "joint": shared,
        },
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
            "dropout": numbers(directory, theirs, NUMBERS)["dropout"],
            **architecture.model,
        },
        # Theirs counts the start, and the language.
        "decoding": _search(search, longest - 1 - (vocabularies.tags is not None)),
    }
    return config_of(directory, languages, values)


def _search(search: Mapping[str, Any], longest: int) -> dict[str, Any]:
    """Return our settings of a search for those of `generate`."""
    return {
        "beam_size": search["num_beams"],
        "length_penalty_kind": "average",
        "length_penalty": search["length_penalty"],
        "max_length_factor": 0,
        "max_length_offset": longest,
    }
