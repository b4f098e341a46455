"""Import of Marian's own models: `.npz` or binary, with SentencePiece vocabularies.

A bundle has the ids pad 0, unk 1, bos 2 and eos 3, so the vocabulary is sorted anew. Marian has
neither pad nor bos: they get a row of zeros, with which its decoder starts, too, and an output bias
that makes them impossible.

Positions are Marian's. Hugging Face's conversion of the same file has the paper's instead (see
`positions.endpoint` in the settings), and translates a little otherwise.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.bundle import Bundle, weights_of
from transformer_mt.config.schema import Config
from transformer_mt.errors import ModelError
from transformer_mt.exchange.from_huggingface import Imported
from transformer_mt.exchange.huggingface import NEVER
from transformer_mt.exchange.marian import twin_of
from transformer_mt.exchange.marian_binary import read_binary
from transformer_mt.exchange.marian_names import (
    FIXED,
    OPTIONS_NAME,
    OUTPUT,
    TYING,
    embedding_name,
    tensor_names,
)
from transformer_mt.exchange.marian_vocabulary import (
    MarianVocabulary,
    laid_over,
    native_vocabulary,
    parsed_settings,
    read_settings,
)
from transformer_mt.exchange.numbers import (
    NOT_FINITE,
    Number,
    check_weights,
    config_of,
    numbers,
    parsed,
    wrong_numbers,
)
from transformer_mt.models.build import build_model
from transformer_mt.text.tokenizer_pair import Tokenizers

DECODER_FILES = ("decoder.yml", "config.yml")
ACTIVATIONS = ("relu", "swish")
SIZE = Number(least=1)
SIZES = dict.fromkeys(
    ("dim-emb", "enc-depth", "dec-depth", "transformer-heads", "transformer-dim-ffn"), SIZE
)
DECODING = {
    "beam-size": Number(least=1, default=6),
    "normalize": Number(most=100, whole=False, default=0),
    "max-length-factor": Number(most=1000, whole=False, default=3),
}
"""Settings of `decoder.yml`."""
NORMALIZE = {"": 1, "true": 1, "false": 0}
"""What words mean in place of its number."""
LONGEST = 256
"""Tokens of a target in the comparison."""


def is_native(directory: Path) -> bool:
    """Tell a folder of Marian's own format."""
    return not (directory / "config.json").exists() and bool(_models(directory))


def import_native(directory: Path, *, src_lang: str | None, tgt_lang: str | None) -> Imported:
    """Read a model of Marian.

    Args:
        directory: With one model, `.npz` or `.bin`; its vocabularies, `.spm`, or `.yml` with
            `source.spm` and `target.spm`; and perhaps `decoder.yml`.
        src_lang: Language of the source; None: undetermined.
        tgt_lang: Language of the target.

    Returns:
        The model, which translates as it did there, up to ties.

    Raises:
        ModelError: If a file is missing or damaged, tensors are missing, unexpected or of another
            shape (all are listed), or the model has parts that there are not here.
    """
    decoding = _decoder_settings(directory)
    path = _model_path(directory, decoding)
    tensors = _tensors(path)
    options = _options(path, tensors)
    model = _model_settings(path, options)
    shared = model["tie_embeddings"] == "all"
    _check_sizes(path, options, tensors, model["tie_embeddings"])
    (src_tokenizer, src), (tgt_tokenizer, tgt) = _vocabularies(directory, decoding, options, shared)
    tokenizers = Tokenizers(src_tokenizer, tgt_tokenizer)
    config = _config(
        directory, model, decoding, (src_lang or "und", tgt_lang or "und"),
        vocab_size=len(tgt.rows), shared=shared,
    )  # fmt: skip
    check_weights(path, config, sum(tensor.size for tensor in tensors.values()))
    built = build_model(config.model, src_vocab_size=len(src.rows), tgt_vocab_size=len(tgt.rows))
    _fill(path, weights_of(built), tensors, {"encoder": src, "decoder": tgt}, model)
    names = [vocabulary.names_of_rows() for vocabulary in (src, tgt)]
    tensors[OPTIONS_NAME] = options["array"]
    return Imported(
        Bundle(config, tokenizers, built.eval()),
        (src.rows, tgt.rows),
        max_length=LONGEST,
        twin=lambda: twin_of(tensors, tokenizers, *names),
        package="ctranslate2",
        extra="ct2",
    )


def _models(directory: Path) -> list[Path]:
    found = [*directory.glob("*.npz"), *directory.glob("*.bin")]
    return sorted(path for path in found if ".optimizer." not in path.name)


def _decoder_settings(directory: Path) -> dict[str, Any]:
    """Read the settings of a search, with their defaults."""
    paths = [directory / name for name in DECODER_FILES if (directory / name).exists()]
    found = read_settings(paths[0]) if paths else {}
    search = {name: parsed(found.get(name)) for name in DECODING}
    if isinstance(word := search["normalize"], str):
        search["normalize"] = NORMALIZE.get(word.lower(), word)
    return found | numbers(paths[0] if paths else directory, search, DECODING)


def _listed(value: Any) -> list[str]:
    return value.split() if isinstance(value, str) else list(map(str, value))


def _model_path(directory: Path, decoding: Mapping[str, Any]) -> Path:
    named = [directory / Path(name).name for name in _listed(decoding.get("models", []))]
    found = named or _models(directory)
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise ModelError(f"{directory}: expected one model, .npz or .bin, got {names}")
    return found[0]


def _tensors(path: Path) -> dict[str, NDArray[Any]]:
    try:
        if path.suffix == ".bin":
            return read_binary(path)
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except Exception as error:  # whatever a damaged or hostile file makes the readers raise
        raise ModelError(f"{path}: cannot be read as a model of Marian: {error}") from error


def _options(path: Path, tensors: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Take the options out of the tensors; the array they were is kept as `array`."""
    array = tensors.pop(OPTIONS_NAME, None)
    if array is None:
        raise ModelError(f"{path}: no {OPTIONS_NAME}, which a model of Marian has")
    try:
        text = array.tobytes().rstrip(b"\0").decode()
    except ValueError as error:
        raise ModelError(f"{path}: {OPTIONS_NAME} cannot be read: {error}") from error
    return parsed_settings(text, f"{path}: {OPTIONS_NAME}") | {"array": array}


def _word(value: Any) -> Any:
    """Write a value of ours as the reader of strings gives it."""
    return value if isinstance(value, list) else str(value).lower() if value is not None else ""


def _model_settings(path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the same model here.

    Raises:
        ModelError: With all options that there are not here.
    """
    wrong = []
    for name, value in FIXED.items():
        allowed = [_word(value)] + [""] * (name == "transformer-postprocess-emb")
        if (found := options.get(name, _word(value))) not in allowed:
            wrong.append(f"{name} {found}: expected {value}")
    activation = options.get("transformer-ffn-activation", "swish")
    if activation not in ACTIVATIONS:
        wrong.append(
            f"transformer-ffn-activation {activation}: expected {' or '.join(ACTIVATIONS)}"
        )
    tied = {name: options.get(name, "false") == "true" for name in TYING["all"]}
    if tied["tied-embeddings-all"] or (tied["tied-embeddings-src"] and tied["tied-embeddings"]):
        tied = TYING["all"]
    tying = next((name for name, one in TYING.items() if one == tied), None)
    if tying is None:
        wrong.append("tied-embeddings-src true: expected tied-embeddings, too")
    sizes = {name: parsed(options.get(name)) for name in SIZES}
    wrong += wrong_numbers(sizes, SIZES)
    if wrong:
        raise ModelError("\n".join([f"{path}: a model that cannot be imported:", *wrong]))
    d_model, encoder, decoder, heads, d_ff = sizes.values()
    return {
        "type": "transformer",
        "d_model": d_model,
        "d_ff": d_ff,
        "num_heads": heads,
        "num_encoder_layers": encoder,
        "num_decoder_layers": decoder,
        "activation": activation,
        "positions": {"type": "sinusoidal", "endpoint": True},
        "tie_embeddings": tying,
        "output_bias": True,
        "decoder_start": "zeros",
    }


def _check_sizes(
    path: Path, options: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], tying: str
) -> None:
    """Refuse vocabularies larger than their embeddings, before memory is taken for them."""
    given = options.get("dim-vocabs")
    sizes = [SIZE.of(parsed(size)) for size in given] if isinstance(given, list) else []
    if len(sizes) != 2 or None in sizes:
        raise ModelError(f"{path}: expected dim-vocabs of two numbers")
    for side, size in zip(("encoder", "decoder"), sizes, strict=True):
        name = embedding_name(side, tying)
        shape = tensors[name].shape if name in tensors else ()
        if size is None or size > max(shape[:1], default=0):
            raise ModelError(f"{path}: dim-vocabs {size}: expected the rows of {name}, got {shape}")


def _vocabularies(
    directory: Path, decoding: Mapping[str, Any], options: Mapping[str, Any], shared: bool
) -> list[tuple[Any, MarianVocabulary]]:
    """Read the vocabularies of both sides, and lay them over their SentencePiece models."""
    names = [Path(name).name for name in _listed(decoding.get("vocabs", []))]
    if not names:
        joint = (directory / "vocab.spm").exists()
        names = ["vocab.spm"] * 2 if joint else ["source.spm", "target.spm"]
    if len(names) != 2:
        raise ModelError(f"{directory}: expected two vocabularies, got {names}")
    found = [
        native_vocabulary(directory / name, int(size))
        for name, size in zip(names, options["dim-vocabs"], strict=True)
    ]
    if shared and found[0].pieces != found[1].pieces:
        raise ModelError(f"{directory}: tied-embeddings-all, but {' and '.join(names)} differ")
    models = [
        directory / (name if name.endswith(".spm") else own)
        for name, own in zip(names, ("source.spm", "target.spm"), strict=True)
    ]
    src, tgt = (laid_over(*pair) for pair in zip(models, found, strict=True))
    if shared and models[0] == models[1]:
        return [src, src]
    if shared:  # each with the pieces of the other
        tgt = laid_over(models[1], src[1])
        src = laid_over(models[0], tgt[1])
    return [src, tgt]


def _config(
    directory: Path,
    model: Mapping[str, Any],
    decoding: Mapping[str, Any],
    languages: Sequence[str],
    *,
    vocab_size: int,
    shared: bool,
) -> Config:
    """Make the config of the bundle; its files of text are names to replace before training."""
    values = {
        "tokenizer": {"type": "unigram", "vocab_size": vocab_size, "joint": shared},
        "model": model,
        "decoding": {
            "beam_size": decoding["beam-size"],
            "length_penalty_kind": "average",
            "length_penalty": decoding["normalize"],
            "max_length_factor": decoding["max-length-factor"],
            "max_length_offset": 1,
        },
    }
    return config_of(directory, languages, values)


def _fill(
    path: Path,
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, NDArray[Any]],
    vocabularies: Mapping[str, MarianVocabulary],
    model: Mapping[str, Any],
) -> None:
    """Copy their tensors into ours.

    Raises:
        ModelError: With all tensors that are missing, unexpected or of another shape.
    """
    wrong, used = [], set()

    def take(name: str, shape: Sequence[int]) -> Tensor:
        """Return a tensor in our form; zeros in place of one that is wrong."""
        there = tuple(shape)[::-1] if len(shape) == 2 else (1, *shape)
        used.add(name)
        if (found := theirs.get(name)) is None:
            wrong.append(f"missing {name}")
        elif found.shape != there or found.dtype.kind != "f":
            wrong.append(f"{name}: expected {there} of floats, got {found.shape} {found.dtype}")
        elif not np.isfinite(single := found.astype(np.float32)).all():
            wrong.append(f"{name}: {NOT_FINITE}")
        else:
            return torch.from_numpy(single).T.reshape(*shape)
        return torch.zeros(*shape)

    for name, weight in ours.items():
        side = name.partition(".")[0]
        vocabulary = vocabularies[side]
        num_rows = max(vocabulary.rows)  # the next one is the row of pad and bos
        if name == "decoder.output.bias":
            there = f"{OUTPUT}_b"
            bias = take(there, [num_rows]) if there in theirs else torch.zeros(num_rows)
            weight.copy_(torch.cat([bias, torch.tensor([NEVER])])[vocabulary.rows])
            weight[vocabulary.num_known :] = NEVER
        elif name.endswith(("embedding.weight", "decoder.output.weight")):
            width = weight.shape[1]
            if name == "decoder.output.weight":
                rows = take(f"{OUTPUT}_W", [num_rows, width])
            else:
                rows = take(embedding_name(side, model["tie_embeddings"]), [width, num_rows]).T
            weight.copy_(torch.cat([rows, torch.zeros(1, width)])[vocabulary.rows])
        else:
            parts = tensor_names(name)
            shape = (len(weight) // len(parts), *weight.shape[1:])
            weight.copy_(torch.cat([take(part, shape) for part in parts]))
    wrong += [f"unexpected {name}" for name in theirs if name not in used]
    if wrong:
        raise ModelError("\n".join([f"{path}: weights of another architecture:", *wrong]))
