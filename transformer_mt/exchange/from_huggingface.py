"""Import of models in Hugging Face's format: Marian (OPUS-MT), M2M-100 and NLLB.

A bundle has the ids pad 0, unk 1, bos 2 and eos 3, so the vocabulary is reordered. Their decoder
starts from the row of pad or eos: `bos` gets a copy of it, and an output bias that makes it
impossible.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from transformer_mt.bundle import KIND, Bundle, save_bundle, weights_of
from transformer_mt.config.model import TransformerSettings
from transformer_mt.config.schema import Config
from transformer_mt.errors import ModelError
from transformer_mt.exchange.architectures import architecture_of, imported_config
from transformer_mt.exchange.huggingface import BLOCKS, NEVER, HuggingFaceTwin
from transformer_mt.exchange.marian_vocabulary import MarianVocabulary, read_object
from transformer_mt.exchange.numbers import NOT_FINITE, check_weights
from transformer_mt.exchange.parity import Parity, Twin, check, compare
from transformer_mt.extras import need
from transformer_mt.locations import WEIGHTS
from transformer_mt.models.build import build_model
from transformer_mt.nn.sinusoids import sinusoid_table
from transformer_mt.storage.overwriting import refuse_to_replace_others
from transformer_mt.translation.directions import directed

PICKLED_WEIGHTS = "pytorch_model.bin"


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


def import_huggingface(directory: Path, *, src_lang: str | None, tgt_lang: str | None) -> Imported:
    """Read a model of Hugging Face's format.

    Args:
        directory: With `config.json`, weights, and the files of its tokenizer.
        src_lang: Language of the source; None: as the files say.
        tgt_lang: Language of the target; None: the same.

    Returns:
        The model, which translates as it did there, up to ties.

    Raises:
        ModelError: If a file is missing or damaged, tensors are missing, unexpected or of another
            shape (all are listed), or the model has parts that there are not here.
    """
    theirs = read_object(directory, "config.json")
    architecture = architecture_of(directory, theirs)
    generation = theirs
    if (directory / "generation_config.json").exists():
        generation = theirs | read_object(directory, "generation_config.json")
    start = theirs.get("decoder_start_token_id")
    found = architecture.read(directory, theirs, theirs["pad_token_id"] if start is None else start)
    config = imported_config(
        directory,
        theirs,
        generation,
        architecture,
        found,
        languages=(
            src_lang or found.languages[0] or "und",
            tgt_lang or found.languages[1] or "und",
        ),
    )
    src, tgt, shared = found.src, found.tgt, found.tokenizers.one_vocabulary
    tensors = _tensors(directory)
    config = _with_their_wavelengths(directory, config, tensors)
    check_weights(directory, config, sum(tensor.numel() for tensor in tensors.values()))
    model = build_model(config.model, src_vocab_size=len(src.rows), tgt_vocab_size=len(tgt.rows))
    if not architecture.has_bias:
        tensors["final_logits_bias"] = torch.zeros(1, theirs["vocab_size"])
    vocabularies = {"encoder": src, "decoder": tgt}
    _fill(directory, weights_of(model), tensors, vocabularies, shared=shared)
    rows = (src.rows, tgt.rows)
    longest = min(config.decoding.max_length_offset, theirs["max_position_embeddings"] - 1, 256)
    return Imported(
        Bundle(config, found.tokenizers, model.eval()),
        rows,
        max_length=longest,
        twin=lambda: HuggingFaceTwin(directory, rows),
        package="transformers",
        extra="hf",
    )


def _with_their_wavelengths(
    directory: Path, config: Config, tensors: Mapping[str, Tensor]
) -> Config:
    """Take `positions.endpoint` from a table in the file, which seldom has one.

    Raises:
        ModelError: If it is a table of something else.
    """
    table = tensors.get("model.encoder.embed_positions.weight")
    assert isinstance(config.model, TransformerSettings)
    positions = config.model.positions
    if table is None or positions.type != "sinusoidal":
        return config
    width = config.model.d_model
    is_table = table.ndim == 2 and len(table) > 0 and table.shape[1] == width
    for endpoint in (False, True) if is_table else ():
        ours = sinusoid_table(*table.shape, offset=positions.offset, endpoint=endpoint)
        if np.allclose(ours, table.float().numpy(), atol=2e-3):  # float16
            positions = positions.model_copy(update={"endpoint": endpoint})
            model = config.model.model_copy(update={"positions": positions})
            return config.model_copy(update={"model": model})
    raise ModelError(
        f"{directory}: model.encoder.embed_positions.weight: expected sinusoids "
        f"(N, {width}), got a table {tuple(table.shape)}"
    )


def _tensors(directory: Path) -> dict[str, Tensor]:
    """Read the weights, in one file or several; pickles as tensors alone."""
    for name in (WEIGHTS, PICKLED_WEIGHTS):
        if (directory / name).exists():
            return _tensors_of(directory / name)
        index = f"{name}.index.json"
        if (directory / index).exists():
            shards = read_object(directory, index).get("weight_map")
            if not isinstance(shards, dict):
                raise ModelError(f"{directory / index}: expected a weight_map")
            found: dict[str, Tensor] = {}
            for shard in sorted(set(map(str, shards.values()))):
                found |= _tensors_of(directory / Path(shard).name)  # never outside the folder
            return found
    raise ModelError(f"{directory}: no {WEIGHTS} and no {PICKLED_WEIGHTS}")


def _tensors_of(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == Path(WEIGHTS).suffix:
            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise ModelError(f"{path}: no such file, which the index names") from error
    except Exception as error:  # whatever a damaged or hostile file makes the readers raise
        raise ModelError(f"{path}: cannot be read: {error}") from error
    if not isinstance(found, dict) or not all(map(_is_plain, found.values())):
        raise ModelError(f"{path}: expected tensors by name")
    return found


def _is_plain(value: object) -> bool:
    """Tell a tensor with all its values in memory, as real numbers."""
    return (
        isinstance(value, Tensor)
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and not (value.is_quantized or value.is_complex())
    )


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
    left = {name: tensor for name, tensor in theirs.items() if not _is_copy(name, theirs)}
    wrong = []

    def take(name: str, *shape: int) -> Tensor:
        """Return a tensor; zeros in place of one that is wrong."""
        if (found := left.pop(name, None)) is None:
            wrong.append(f"missing {name}")
        elif tuple(found.shape) != shape or not found.is_floating_point():
            there = f"{tuple(found.shape)} {found.dtype}".replace(" torch.float32", "")
            wrong.append(f"{name}: expected {shape}, got {there}")
        elif not found.isfinite().all():
            wrong.append(f"{name}: {NOT_FINITE}")
        else:
            return found.float()
        return torch.zeros(*shape)

    for name, weight in ours.items():
        side = name.partition(".")[0]
        vocabulary = vocabularies[side]
        num_rows = max(vocabulary.rows) + 1
        if name.endswith("embedding.weight"):
            own = f"model.{side}.embed_tokens.weight"
            found = take("model.shared.weight" if shared else own, num_rows, weight.shape[1])
            weight.copy_(found[vocabulary.rows])
        elif name == "decoder.output.bias":
            weight.copy_(_bias(take("final_logits_bias", 1, num_rows), vocabulary))
        elif name.startswith(f"{side}.final_norm."):
            weight.copy_(take(f"model.{side}.layer_norm.{name.rpartition('.')[2]}", *weight.shape))
        else:
            _, _, layer, rest = name.split(".", 3)
            block, _, kind = rest.rpartition(".")
            there = [f"model.{side}.layers.{layer}.{part}.{kind}" for part in BLOCKS[block]]
            shape = (len(weight) // len(there), *weight.shape[1:])
            weight.copy_(torch.cat([take(part, *shape) for part in there]))
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
    if name not in tied or first is None:
        return False
    return theirs[name].dtype == first.dtype and torch.equal(theirs[name], first)


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
        data = bundle.config.data
        parity = compare(
            directed(bundle, source=data.src_lang, target=data.tgt_lang),
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
