"""Import of Marian models in Hugging Face's format."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.unit.exchange.test_export import bundle_with
from transformer_mt.bundle import load_bundle
from transformer_mt.errors import ModelError
from transformer_mt.exchange.export import export
from transformer_mt.exchange.from_huggingface import import_huggingface, save_imported

transformers = pytest.importorskip("transformers", reason="it is in the extra `hf`")
pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")


@pytest.fixture(scope="module", params=["one vocabulary", "two vocabularies"])
def checkpoint(request, tmp_path_factory, tiny_text) -> Path:
    """A random model with two SentencePiece models, as those of OPUS-MT.

    Of one vocabulary a few pieces of either language are missing.
    """
    import sentencepiece

    folder = tmp_path_factory.mktemp("opus")
    shared = request.param == "one vocabulary"
    pieces: list[str] = []
    for name, lines in zip(("source", "target"), tiny_text, strict=True):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines * 5),
            model_prefix=str(folder / name),
            vocab_size=60,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
        processor = sentencepiece.SentencePieceProcessor(str(folder / f"{name}.spm"))
        pieces += processor.id_to_piece([*range(3, processor.get_piece_size())])
    pieces = ["</s>", "<unk>", *[*dict.fromkeys(pieces)][:-3], "<pad>"]
    names = ["vocab.json"] if shared else ["vocab.json", "target_vocab.json"]
    for name in names:
        vocabulary = json.dumps({piece: number for number, piece in enumerate(pieces)})
        (folder / name).write_text(vocabulary)
    tokenizing = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "de"}
    (folder / "tokenizer_config.json").write_text(
        json.dumps(tokenizing | {"separate_vocabs": not shared})
    )
    size, pad = len(pieces), len(pieces) - 1
    config = transformers.MarianConfig(
        vocab_size=size, decoder_vocab_size=size, d_model=32, encoder_layers=2, decoder_layers=1,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
        decoder_ffn_dim=48, activation_function="swish", scale_embedding=True, pad_token_id=pad,
        eos_token_id=0, bos_token_id=0, decoder_start_token_id=pad, forced_eos_token_id=0,
        max_position_embeddings=64, share_encoder_decoder_embeddings=shared,
    )  # fmt: skip
    torch.manual_seed(1)
    model = transformers.MarianMTModel(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "bias" in name or "norm" in name:
                weight.add_(torch.randn_like(weight), alpha=0.2)
            elif "positions" not in name:
                weight.mul_(8)
        model.final_logits_bias.add_(torch.randn_like(model.final_logits_bias))
        model.final_logits_bias[0, [1, pad]] = -100
        model.final_logits_bias[0, 0] += 20  # ends before the maximum length
    model.save_pretrained(folder)
    return folder


def test_it_translates_as_the_original(checkpoint: Path, tiny_text, tmp_path: Path) -> None:
    imported = import_huggingface(checkpoint, src_lang=None, tgt_lang=None)
    tokenizer = transformers.MarianTokenizer.from_pretrained(checkpoint)
    for line in [*tiny_text[0][:5], "Zürich 漢字"]:
        theirs = tokenizer(line).input_ids
        ours = [*imported.bundle.tokenizers.src.encode(line), 3]
        assert [imported.rows[0][number] for number in ours] == theirs
    shared = not (checkpoint / "target_vocab.json").exists()
    assert imported.bundle.config.tokenizer.joint == shared
    assert imported.bundle.tokenizers.one_vocabulary or not shared  # as training asks for it
    parity = save_imported(imported, checkpoint, tmp_path / "out", sources=tiny_text[0][:10])
    assert parity is not None
    assert parity.max_difference < 1e-5
    assert parity.greedy_identical == 1
    again = load_bundle(tmp_path / "out")
    assert (again.config.data.src_lang, again.config.data.tgt_lang) == ("en", "de")
    assert torch.equal(again.model.decoder.output.bias, imported.bundle.model.decoder.output.bias)


def _copy(checkpoint: Path, folder: Path) -> Path:
    folder.mkdir()
    for path in checkpoint.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def test_all_tensors_that_do_not_fit_are_listed(checkpoint: Path, tmp_path: Path) -> None:
    folder = _copy(checkpoint, tmp_path / "copy")
    weights = load_file(folder / "model.safetensors")
    del weights["model.encoder.layers.0.fc1.bias"]
    weights["model.decoder.layers.0.fc2.bias"] = torch.zeros(7)
    weights["model.extra"] = torch.zeros(1)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    expected = (
        r"(?s)missing model.encoder.layers.0.fc1.bias.*expected \(32,\), got \(7,\).*model.extra"
    )
    with pytest.raises(ModelError, match=expected):
        import_huggingface(folder, src_lang=None, tgt_lang=None)


def test_a_pickle_is_read_as_tensors_alone(checkpoint: Path, tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "canary",))

    folder = _copy(checkpoint, tmp_path / "copy")
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    import_huggingface(folder, src_lang=None, tgt_lang=None)
    torch.save(weights | {"hostile": Hostile()}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model.bin: cannot be read"):
        import_huggingface(folder, src_lang=None, tgt_lang=None)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("final_logits_bias", torch.tensor(1.0)),
        ("model.decoder.layers.0.self_attn.q_proj.weight", torch.zeros(16, 8)),
        ("model.decoder.layers.0.self_attn.k_proj.weight", torch.zeros(8)),
        ("model.decoder.layers.0.fc1.weight", torch.tensor(1.0)),
        ("model.decoder.layers.0.fc1.bias", torch.full([48], torch.nan)),
        ("model.decoder.layers.0.fc2.bias", torch.full([32], torch.inf)),
        ("model.decoder.layers.0.final_layer_norm.bias", torch.zeros(32, dtype=torch.int64)),
        ("model.encoder.embed_positions.weight", torch.zeros(32)),
        ("model.encoder.embed_positions.weight", torch.zeros(3, 31)),
        ("model.encoder.embed_positions.weight", torch.zeros(0, 32)),
        ("model.encoder.embed_tokens.weight", torch.tensor(1.0)),
    ],
)
def test_a_misshapen_tensor_is_named(
    checkpoint: Path, tmp_path: Path, name: str, wrong: torch.Tensor
) -> None:
    folder = _copy(checkpoint, tmp_path / "copy")
    weights = load_file(folder / "model.safetensors")
    if "embed_tokens" in name and "model.shared.weight" in weights:
        name = "model.shared.weight"
    save_file(weights | {name: wrong}, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=f"{name}: expected"):
        import_huggingface(folder, src_lang=None, tgt_lang=None)


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("config.json", {"decoder_start_token_id": -1}, "decoder_start_token_id -1: expected"),
        ("config.json", {"decoder_start_token_id": "0"}, "decoder_start_token_id '0': expected"),
        ("config.json", {"decoder_start_token_id": 10**6}, "start 1000000 of config.json"),
        ("config.json", {"pad_token_id": -5}, "pad_token_id -5: expected an integer from 0"),
        ("config.json", {"pad_token_id": True}, "pad_token_id True: expected"),
        ("config.json", {"vocab_size": 7, "decoder_vocab_size": 7}, "vocab.json: expected 7 piec"),
        ("config.json", {"share_encoder_decoder_embeddings": "false"}, "embeddings false: expect"),
        ("config.json", {"d_model": 0}, "d_model 0: expected an integer from 1"),
        ("config.json", {"encoder_layers": 10**9}, "weights of 1000000001 layers, got"),
        ("config.json", {"encoder_attention_heads": 5, "decoder_attention_heads": 5}, "d_model"),
        ("config.json", {"dropout": "x"}, "dropout 'x': expected a number from 0 to 1"),
        ("generation_config.json", {"max_length": "x"}, "max_length 'x': expected an integer"),
        ("generation_config.json", {"num_beams": [4]}, r"num_beams \[4\]: expected an integer"),
        ("generation_config.json", {"length_penalty": torch.nan}, "length_penalty nan: expected"),
        ("tokenizer_config.json", {"source_lang": ["en"]}, "src_lang"),
        *(("vocab.json", {"</s>": value}, "expected the ids") for value in ("0", None, [0], 0.0)),
    ],
)
def test_a_hostile_setting_is_named(
    checkpoint: Path, tmp_path: Path, file: str, changes: dict[str, object], message: str
) -> None:
    folder = _copy(checkpoint, tmp_path / "copy")
    content = json.loads((folder / file).read_text()) | changes
    (folder / file).write_text(json.dumps(content))
    with pytest.raises(ModelError, match=message):
        import_huggingface(folder, src_lang=None, tgt_lang=None)


def test_a_decoder_without_start_token_starts_from_pad(checkpoint: Path, tmp_path: Path) -> None:
    folder = _copy(checkpoint, tmp_path / "copy")
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(content | {"decoder_start_token_id": None}))
    rows = import_huggingface(folder, src_lang=None, tgt_lang=None).rows
    assert rows[1][2] == content["pad_token_id"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", None, "no such file"),
        ("config.json", "{", "cannot be read as JSON"),
        ("config.json", "[]", "expected an object"),
        (
            "config.json",
            '{"model_type": "bart"}',
            r"(?s)model_type bart: expected marian or m2m_100.*d_model",
        ),
        ("vocab.json", '{"a": 0, "b": 0}', "each once"),
        ("source.spm", "no model", "SentencePiece model"),
        ("target.spm", None, "cannot be read"),
        ("model.safetensors", None, "no model.safetensors and no pytorch_model.bin"),
    ],
)
def test_a_file_that_is_missing_or_damaged_is_named(
    checkpoint: Path, tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    folder = _copy(checkpoint, tmp_path / "copy")
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(ModelError, match=message):
        import_huggingface(folder, src_lang=None, tgt_lang=None)


def test_the_wavelengths_of_a_table_of_positions_are_kept(tiny_bundle: Path, tmp_path) -> None:
    positions = {"type": "sinusoidal", "endpoint": True}
    export(bundle_with(tiny_bundle, positions=positions), "huggingface", tmp_path, sentences=None)
    imported = import_huggingface(tmp_path, src_lang=None, tgt_lang=None)
    assert imported.bundle.config.model.positions.endpoint
    weights = load_file(tmp_path / "model.safetensors")
    weights["model.encoder.embed_positions.weight"] += 1
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="expected sinusoids"):
        import_huggingface(tmp_path, src_lang=None, tgt_lang=None)
