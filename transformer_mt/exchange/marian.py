"""Export to Marian and Bergamot: a model file, SentencePiece vocabularies, decoding settings.

Marian's ids are eos 0 and unk 1, in its SentencePiece models, too. Pad and bos, which it does not
have, keep their rows under unused names, so that all probabilities stay as they are. Rows are
added up to a multiple of 8, which its 8-bit matrices need.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from transformer_mt.bundle import Bundle
from transformer_mt.config.decoding import DecodingSettings
from transformer_mt.config.model import TransformerSettings
from transformer_mt.exchange.ctranslate2 import MAX_POSITIONS, CTranslate2Twin
from transformer_mt.exchange.huggingface import NEVER, generation_config
from transformer_mt.exchange.marian_binary import read_binary, write_binary
from transformer_mt.exchange.marian_names import (
    OPTIONS_NAME,
    OUTPUT,
    embedding_name,
    model_options,
    tensor_names,
)
from transformer_mt.exchange.settings import BERGAMOT, MARIAN, Quantization, check_exportable
from transformer_mt.nn.sinusoids import sinusoid_table
from transformer_mt.text.model_file import with_marian_ids
from transformer_mt.text.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.text.tokenizer_pair import Tokenizers

MULTIPLE = 8
"""Numbers of rows that 8-bit matrices have."""
FILES = {"float32": "model.bin", "int8": "model.intgemm8.bin"}
"""Names for Bergamot, which takes the type of the weights from the end."""
PRECISIONS = {"float32": "float32", "int8": "int8shiftAll"}
"""Its names of the arithmetic; the second quantizes activations as they come."""


def save_marian(bundle: Bundle, directory: Path, quantization: Quantization) -> None:
    """Write a model for marian-decoder: `model.npz`, `.spm` vocabularies, `decoder.yml`.

    Args:
        bundle: The model.
        directory: An empty folder.
        quantization: float32.

    Raises:
        ConfigError: If Marian cannot hold the model, with all reasons.
        OSError: If the disk refuses.
    """
    settings = check_exportable(bundle.config, MARIAN)
    np.savez(directory / "model.npz", **_tensors(bundle, settings))  # type: ignore[arg-type]
    decoding = {
        **_decoding(bundle.config.decoding),
        "max-length": 1000,
        "max-length-crop": True,
        "mini-batch": 64,
        "maxi-batch": 100,
        "maxi-batch-sort": "src",
    }
    _save_around(bundle, directory, "decoder.yml", {"models": ["model.npz"], **decoding})


def save_bergamot(bundle: Bundle, directory: Path, quantization: Quantization) -> None:
    """Write a model for Bergamot: a binary file, `.spm` vocabularies, `config.yml`.

    Args:
        bundle: The model.
        directory: An empty folder.
        quantization: float32 or int8.

    Raises:
        ConfigError: If Bergamot cannot hold the model, with all reasons.
        OSError: If the disk refuses.
    """
    settings = check_exportable(bundle.config, BERGAMOT)
    name = FILES[quantization]
    write_binary(directory / name, _tensors(bundle, settings), int8=quantization == "int8")
    decoding = {
        **_decoding(bundle.config.decoding),
        "gemm-precision": PRECISIONS[quantization],
        "skip-cost": True,
        "alignment": "soft",
        "max-length-break": 128,
        "mini-batch-words": 1024,
        "workspace": 128,
        "ssplit-mode": "paragraph",
    }
    _save_around(bundle, directory, "config.yml", {"models": [name], **decoding})


def vocabulary_names(tokenizers: Tokenizers) -> list[str]:
    """Name the files of the source and the target vocabulary."""
    return ["vocab.spm"] * 2 if tokenizers.joint else ["source.spm", "target.spm"]


def _save_around(bundle: Bundle, directory: Path, name: str, settings: dict[str, Any]) -> None:
    tokenizers = bundle.tokenizers
    names = vocabulary_names(tokenizers)
    for path, tokenizer in zip(names, (tokenizers.src, tokenizers.tgt), strict=True):
        size = _padded(tokenizer.vocab_size)
        (directory / path).write_bytes(with_marian_ids(tokenizer.model, size))
    content = {"relative-paths": True, "vocabs": names, **settings}
    text = yaml.safe_dump(content, sort_keys=False)
    (directory / name).write_text(text, encoding="utf-8")


def _decoding(decoding: DecodingSettings) -> dict[str, Any]:
    """Return Marian's settings of the search that are nearest to ours.

    Its greatest length is a multiple of the source's: the one that is ours at 25 tokens.
    """
    nearest = generation_config(decoding)
    longest = decoding.max_length_factor + decoding.max_length_offset / 25
    return {
        "beam-size": nearest["num_beams"],
        "normalize": nearest["length_penalty"],
        "word-penalty": 0,
        "max-length-factor": round(longest, 2),
    }


def _padded(size: int) -> int:
    return size + -size % MULTIPLE


def _tensors(bundle: Bundle, settings: TransformerSettings) -> dict[str, NDArray[Any]]:
    """Give the weights Marian's names and form, and its options."""
    tokenizers, tying = bundle.tokenizers, settings.tie_embeddings
    named: dict[str, NDArray[Any]] = {}
    bias = np.zeros(tokenizers.tgt.vocab_size, np.float32)
    for name, tensor in bundle.model.state_dict().items():
        array: NDArray[Any] = tensor.detach().float().cpu().numpy()
        side = name.partition(".")[0]
        if name.endswith("embedding.weight"):
            named[embedding_name(side, tying)] = _in_their_order(array, 0)
        elif name == "decoder.output.bias":
            bias = array
        elif name == "decoder.output.weight":
            if tying == "none":
                named[f"{OUTPUT}_W"] = _in_their_order(array, 0).T
        else:
            theirs = tensor_names(name)
            for one, part in zip(theirs, np.split(array, len(theirs)), strict=True):
                named[one] = part.T if part.ndim == 2 else part[None]
    named[f"{OUTPUT}_b"] = _in_their_order(bias, NEVER)[None]
    sizes = [_padded(one.vocab_size) for one in (tokenizers.src, tokenizers.tgt)]
    options = yaml.safe_dump(model_options(settings, sizes)).encode() + b"\0"
    named[OPTIONS_NAME] = np.frombuffer(options, np.int8)
    return {name: np.ascontiguousarray(array) for name, array in sorted(named.items())}


def _in_their_order(rows: NDArray[Any], filling: float) -> NDArray[Any]:
    """Move eos and unk to the front, and add rows up to a multiple of 8."""
    first = [EOS_ID, UNK_ID, PAD_ID, BOS_ID]
    moved = np.concatenate([rows[first], rows[len(first) :]])
    widths = [(0, _padded(len(rows)) - len(rows))] + [(0, 0)] * (rows.ndim - 1)
    return np.pad(moved, widths, constant_values=filling).astype(np.float32)


def marian_twin(directory: Path, tokenizers: Tokenizers) -> CTranslate2Twin:
    """Load what `save_marian` wrote with CTranslate2's own reader of Marian's models."""
    with np.load(directory / "model.npz", allow_pickle=False) as file:
        return _twin(dict(file), tokenizers)


def bergamot_twin(directory: Path, tokenizers: Tokenizers) -> CTranslate2Twin:
    """Load what `save_bergamot` wrote in float32 in the same way."""
    return _twin(read_binary(directory / FILES["float32"]), tokenizers)


def _twin(tensors: dict[str, NDArray[Any]], tokenizers: Tokenizers) -> CTranslate2Twin:
    names = map(names_of_rows, (tokenizers.src, tokenizers.tgt))
    return twin_of(tensors, tokenizers, *names)


def twin_of(
    tensors: dict[str, NDArray[Any]],
    tokenizers: Tokenizers,
    src_names: Sequence[str],
    tgt_names: Sequence[str],
) -> CTranslate2Twin:
    """Convert a model of Marian with CTranslate2's own reader.

    Args:
        tensors: Of a model file, options included.
        tokenizers: Of the model here.
        src_names: Our piece of each row of the source vocabulary.
        tgt_names: The same of the target.
    """
    converters = importlib.import_module("ctranslate2.converters")
    d_model = tensors["encoder_l1_self_Wq"].shape[0]
    # Without a table, that reader takes the one of the paper, which is not Marian's.
    table = sinusoid_table(MAX_POSITIONS, d_model, endpoint=True)
    with TemporaryDirectory() as name:
        model, vocabularies = Path(name) / "model.npz", []
        np.savez(model, **{**tensors, "Wpos": table})  # type: ignore[arg-type]
        for side, names in (("src", src_names), ("tgt", tgt_names)):
            path = Path(name) / f"{side}.yml"
            path.write_text(_as_yaml(names), encoding="utf-8")
            vocabularies.append(str(path))
        converters.MarianConverter(str(model), vocabularies).convert(str(Path(name) / "there"))
        special = tokenizers.tgt.pieces(range(EOS_ID))
        return CTranslate2Twin(
            Path(name) / "there", tokenizers, never=[one for one in special if one in tgt_names]
        )


def names_of_rows(tokenizer: Tokenizer) -> list[str]:
    """Name the rows of an exported vocabulary by our pieces."""
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    first = [EOS_ID, UNK_ID, PAD_ID, BOS_ID]
    added = [f"<unused row {n}>" for n in range(_padded(len(pieces)) - len(pieces))]
    return [*map(pieces.__getitem__, first), *pieces[len(first) :], *added]


def _as_yaml(pieces: Sequence[str]) -> str:
    """Write a vocabulary as that reader takes it: quoted, a line each."""
    quoted = [piece.replace("\\", "\\\\").replace('"', '\\"') for piece in pieces]
    return "".join(f'"{piece}": {number}\n' for number, piece in enumerate(quoted))
