"""Export to Marian's own format and import of it."""

from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch
import yaml

from tests.unit.exchange.test_export import AS_MARIAN, bundle_with
from transformer_mt.bundle import Bundle, load_bundle
from transformer_mt.errors import ConfigError, ModelError
from transformer_mt.exchange import from_marian
from transformer_mt.exchange.export import export
from transformer_mt.exchange.from_huggingface import Imported, save_imported
from transformer_mt.exchange.from_marian import import_native, is_native
from transformer_mt.translation.scoring import token_log_probs

OPTIONS = "special:model.yml"


@pytest.fixture
def original(tiny_bundle: Path) -> Bundle:
    return bundle_with(tiny_bundle, **AS_MARIAN, output_bias=True, activation="swish")


@pytest.fixture
def folder(original: Bundle, tmp_path: Path) -> Path:
    export(original, "marian", tmp_path / "model", sentences=None)
    return tmp_path / "model"


def read(folder: Path) -> Imported:
    return import_native(folder, src_lang="en", tgt_lang="de")


def change(folder: Path, **tensors: np.ndarray | None) -> None:
    """Replace tensors of a model file, or remove them."""
    with np.load(folder / "model.npz") as file:
        changed = {**file, **tensors}
    kept = {name: tensor for name, tensor in changed.items() if tensor is not None}
    np.savez(folder / "model.npz", **kept)


def with_options(folder: Path, **options: object) -> None:
    with np.load(folder / "model.npz") as file:
        found = yaml.safe_load(file[OPTIONS].tobytes()[:-1])
    found |= {name.replace("_", "-"): value for name, value in options.items()}
    change(folder, **{OPTIONS: np.frombuffer(yaml.safe_dump(found).encode() + b"\0", np.int8)})


def scores(bundle: Bundle, lines: list[str]) -> list[list[float]]:
    """Log-probabilities of lines as translations of themselves."""
    encode = bundle.tokenizers.src.encode
    return token_log_probs(bundle, [(encode(line), encode(line)) for line in lines])


@pytest.mark.parametrize("tying", ["all", "target", "none"])
def test_a_model_comes_back_as_it_went(tiny_bundle, tiny_text, tmp_path, tying: str) -> None:
    original = bundle_with(
        tiny_bundle, **AS_MARIAN, output_bias=True, tie_embeddings=tying, num_encoder_layers=2
    )
    export(original, "marian", tmp_path / "model", sentences=None)
    assert is_native(tmp_path / "model")
    imported = read(tmp_path / "model").bundle
    lines = tiny_text[0][:5]
    for ours, theirs in zip(scores(original, lines), scores(imported, lines), strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-5)
    assert imported.config.decoding.beam_size == original.config.decoding.beam_size


def test_vocabularies_have_the_ids_of_marian(original: Bundle, folder: Path, tiny_text) -> None:
    theirs = sentencepiece.SentencePieceProcessor(str(folder / "vocab.spm"))
    special = theirs.eos_id(), theirs.unk_id(), theirs.bos_id(), theirs.pad_id()
    assert special == (0, 1, -1, -1)
    assert theirs.get_piece_size() % 8 == 0
    ours = original.tokenizers.src
    for line in [*tiny_text[0][:3], "Zürich 漢字"]:
        assert theirs.encode(line, out_type=str) == ours.pieces(ours.encode(line))
        assert theirs.decode(theirs.encode(line)) == ours.decode(ours.encode(line))


def test_a_vocabulary_in_yaml_lies_over_two_sentencepiece_models(
    original: Bundle, folder: Path, tiny_text
) -> None:
    """As in the files of OPUS-MT."""
    theirs = sentencepiece.SentencePieceProcessor(str(folder / "vocab.spm"))
    pieces = theirs.id_to_piece(list(range(theirs.get_piece_size())))
    numbers = yaml.safe_dump({piece: number for number, piece in enumerate(pieces)})
    (folder / "opus.vocab.yml").write_text(numbers)
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes((folder / "vocab.spm").read_bytes())
    (folder / "vocab.spm").unlink()
    names = ["/elsewhere/opus.vocab.yml"] * 2
    (folder / "decoder.yml").write_text(yaml.safe_dump({"vocabs": names, "normalize": 1}))
    imported = read(folder).bundle
    lines = tiny_text[0][:3]
    np.testing.assert_allclose(scores(imported, lines)[0], scores(original, lines)[0], atol=1e-5)
    assert imported.config.decoding.length_penalty == 1
    assert imported.config.decoding.max_length_factor == 3


def test_it_translates_as_ctranslate2_reads_the_same_file(
    folder, tiny_text, tmp_path, monkeypatch
) -> None:
    pytest.importorskip("ctranslate2")
    monkeypatch.setattr(from_marian, "LONGEST", 16)
    parity = save_imported(read(folder), folder, tmp_path / "out", sources=tiny_text[0][:8])
    assert parity is not None
    assert parity.max_difference < 1e-5
    assert parity.greedy_identical == 1
    assert load_bundle(tmp_path / "out").config.data.tgt_lang == "de"


def test_bergamot_in_8_bits_is_nearly_the_same(original: Bundle, tiny_text, tmp_path) -> None:
    export(original, "bergamot", tmp_path / "out", sentences=None, quantization="int8")
    card = (tmp_path / "out" / "README.md").read_text()
    assert 'model: read("model.intgemm8.bin"), vocabs: [read("vocab.spm")],' in card
    imported = read(tmp_path / "out").bundle
    lines = tiny_text[0][:5]
    for ours, theirs in zip(scores(original, lines), scores(imported, lines), strict=True):
        assert 1e-4 < np.abs(np.subtract(ours, theirs)).max() < 1
    with pytest.raises(ConfigError, match="int8: not for --to marian"):
        export(original, "marian", tmp_path / "no", sentences=None, quantization="int8")


def test_all_tensors_that_do_not_fit_are_listed(folder: Path) -> None:
    change(
        folder,
        encoder_l1_ffn_b1=None,
        decoder_l1_ffn_W2=np.zeros((7, 7), np.float32),
        decoder_l1_ffn_b2=np.full((1, 64), np.nan, np.float32),
        extra=np.zeros(1, np.float32),
    )
    expected = (
        r"(?s)missing encoder_l1_ffn_b1.*decoder_l1_ffn_W2: expected \(64, 64\) of floats, got "
        r"\(7, 7\).*decoder_l1_ffn_b2: expected finite numbers.*unexpected extra"
    )
    with pytest.raises(ModelError, match=expected):
        read(folder)


def test_all_options_that_there_are_not_here_are_listed(folder: Path) -> None:
    with_options(
        folder, type="amun", transformer_preprocess="n", transformer_ffn_activation="gelu",
        transformer_decoder_autoreg="rnn", dim_emb="wide",
    )  # fmt: skip
    with pytest.raises(
        ModelError,
        match=r"(?s)type amun: expected transformer.*preprocess n.*autoreg.*gelu.*dim-emb 'wide'",
    ):
        read(folder)


def test_pickled_arrays_are_not_read(folder: Path, tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "canary",))

    with np.load(folder / "model.npz") as file:
        tensors = dict(file)
    np.savez(folder / "model.npz", **tensors, hostile=np.array([Hostile()], dtype=object))
    with pytest.raises(ModelError, match="cannot be read as a model of Marian"):
        read(folder)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.npz", None, "expected one model, .npz or .bin, got none"),
        ("model.npz", "no model", "cannot be read as a model of Marian"),
        ("vocab.spm", None, "vocab.spm: cannot be read"),
        ("vocab.spm", "no model", "sound SentencePiece model"),
        ("decoder.yml", "- a list", "expected settings by name"),
        ("decoder.yml", "vocabs: [one.yml]", "expected two vocabularies"),
    ],
)
def test_a_file_that_is_missing_or_damaged_is_named(
    folder: Path, name: str, content: str | None, message: str
) -> None:
    (folder / name).unlink()
    if name == "model.npz":
        (folder / "decoder.yml").unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(ModelError, match=message):
        read(folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("beam-size: abc", r"decoder.yml: beam-size 'abc': expected an integer from 1"),
        ("beam-size: 0", "beam-size 0: expected"),
        ("normalize: [1]", "normalize .*: expected a number from 0 to 100"),
        ("normalize: nan", "normalize nan: expected"),
        ("max-length-factor: x", "max-length-factor 'x': expected"),
        ("[" * 1000, "decoder.yml: cannot be read"),
    ],
)
def test_nonsense_in_the_settings_of_the_search_is_named(
    folder: Path, settings: str, message: str
) -> None:
    (folder / "decoder.yml").write_text(settings)
    with pytest.raises(ModelError, match=message):
        read(folder)


@pytest.mark.parametrize(
    ("written", "strength"), [("", 1), (" true", 1), (" false", 0), (" 0.6", 0.6)]
)
def test_normalize_without_a_number_is_1(folder: Path, written: str, strength: float) -> None:
    (folder / "decoder.yml").write_text(f"normalize:{written}")
    assert read(folder).bundle.config.decoding.length_penalty == strength


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim_vocabs": [10**9] * 2}, r"dim-vocabs 1000000000: expected the rows of"),
        ({"dim_vocabs": "88"}, "expected dim-vocabs of two numbers"),
        ({"dim_vocabs": [-1, []]}, "expected dim-vocabs of two numbers"),
        ({"enc_depth": 10**9}, "weights of 1000000001 layers, got"),
        ({"dim_emb": 10**9, "transformer_heads": 1}, "expected .* weights of 3 layers"),
    ],
)
def test_sizes_are_those_of_the_tensors(folder: Path, options: dict, message: str) -> None:
    with_options(folder, **options)
    with pytest.raises(ModelError, match=message):
        read(folder)


def test_options_nested_too_deeply_are_refused(folder: Path) -> None:
    change(folder, **{OPTIONS: np.frombuffer(b"[" * 1000, np.int8)})
    with pytest.raises(ModelError, match=r"special:model\.yml: cannot be read"):
        read(folder)


def test_the_vocabulary_fits_the_model(folder: Path) -> None:
    with_options(folder, dim_vocabs=[8, 8])
    with pytest.raises(ModelError, match="expected the ids 0 to 7 of the model"):
        read(folder)


def test_a_model_without_output_bias_is_one_with_zeros(tiny_bundle, tmp_path, tiny_text) -> None:
    original = bundle_with(tiny_bundle, **AS_MARIAN)
    export(original, "marian", tmp_path / "model", sentences=None)
    change(tmp_path / "model", decoder_ff_logit_out_b=None)
    imported = read(tmp_path / "model").bundle
    bias = imported.model.state_dict()["decoder.output.bias"]
    assert torch.equal(bias[[0, 2]], torch.tensor([-1e4, -1e4]))
    assert bias[[1, 3]].abs().max() == 0
