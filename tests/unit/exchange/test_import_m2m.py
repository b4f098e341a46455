"""Import of M2M-100 and NLLB models in Hugging Face's format."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from transformer_mt.bundle import load_bundle
from transformer_mt.errors import ConfigError, ModelError
from transformer_mt.exchange.from_huggingface import import_huggingface, save_imported
from transformer_mt.translation.directions import directed
from transformer_mt.translation.load import make_translator

transformers = pytest.importorskip("transformers", reason="it is in the extra `hf`")

CODES = {"m2m100": ("en", "de"), "nllb": ("eng_Latn", "deu_Latn")}
LENGTH = 40


def _tokenizer(kind: str, folder: Path) -> Any:
    """Write the files of a tokenizer, as the checkpoints of the hub have them, and load it."""
    import sentencepiece

    model = folder / "sentencepiece.bpe.model"
    processor = sentencepiece.SentencePieceProcessor(str(model))
    if kind == "nllb":
        languages = ["ace_Arab", "deu_Latn", "eng_Latn"]
        found = transformers.NllbTokenizer.from_pretrained(
            folder, src_lang="eng_Latn", extra_special_tokens=languages
        )
        found.save_pretrained(folder)  # leaves the SentencePiece model where it is
        return found
    pieces = processor.id_to_piece([*range(3, processor.get_piece_size())])
    symbols = ["<s>", "<pad>", "</s>", "<unk>"]
    vocabulary = {piece: number for number, piece in enumerate([*symbols, *pieces[:-2]])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    settings = {"tokenizer_class": "M2M100Tokenizer", "src_lang": "en", "tgt_lang": "de"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return transformers.M2M100Tokenizer.from_pretrained(folder)


@pytest.fixture(scope="module", params=["m2m100", "nllb"])
def checkpoint(request, tmp_path_factory, tiny_text) -> tuple[str, Path, Any]:
    """A random model in several files, and its tokenizer."""
    import sentencepiece

    folder = tmp_path_factory.mktemp(request.param)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*tiny_text[0], *tiny_text[1]]),
        model_prefix=str(folder / "sentencepiece.bpe"),
        vocab_size=90,
        model_type="bpe",
        minloglevel=2,
    )
    tokenizer = _tokenizer(request.param, folder)
    config = transformers.M2M100Config(
        vocab_size=len(tokenizer) + (108 if request.param == "m2m100" else 0),
        d_model=32, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
        max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(1)
    model = transformers.M2M100ForConditionalGeneration(config)
    model.generation_config.max_length = LENGTH
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.add_(torch.randn_like(weight), alpha=0.2 if "norm" in name else 0.05)
            weight.mul_(1 if "norm" in name or "bias" in name else 4)
    model.save_pretrained(folder, max_shard_size="40KB")
    assert not (folder / "model.safetensors").exists()
    return request.param, folder, tokenizer


def test_it_translates_as_generate_does(checkpoint, tiny_text, tmp_path: Path) -> None:
    kind, folder, tokenizer = checkpoint
    source, target = CODES[kind]
    imported = import_huggingface(folder, src_lang=source, tgt_lang=target)
    parity = save_imported(imported, folder, tmp_path / "out", sources=tiny_text[0][:10])
    assert parity is not None
    assert parity.max_difference < 1e-5
    assert parity.greedy_identical == parity.beam_identical == 1

    bundle = directed(load_bundle(tmp_path / "out"), source=target, target=source)
    lines = [*tiny_text[1][:4], "Zürich 漢字"]
    tokenizer.src_lang = target
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    for line in lines:
        theirs = tokenizer(line, return_tensors="pt")
        ours = [*bundle.tags.src, *bundle.tokenizers.src.encode(line), 3]
        assert [imported.rows[0][number] for number in ours] == theirs.input_ids[0].tolist()
        generated = model.generate(
            **theirs,
            forced_bos_token_id=tokenizer.convert_tokens_to_ids(
                f"__{source}__" if kind == "m2m100" else source
            ),
            num_beams=1,
            max_length=LENGTH,
        )
        (found,) = make_translator(bundle, {"beam_size": 1}).translate([line])
        (part,) = found.n_best[0].parts
        chosen = [imported.rows[1][token] for token in (*bundle.tags.tgt, *part.target)]
        assert [2, *chosen] == generated[0, :-1].tolist()


def test_the_languages_are_those_of_the_model(checkpoint) -> None:
    kind, folder, _ = checkpoint
    bundle = import_huggingface(folder, src_lang=None, tgt_lang=None).bundle
    read, written = bundle.config.data.languages()
    assert {*CODES[kind]} <= {*read} == {*written}
    assert len(read) == {"m2m100": 100, "nllb": 3}[kind]
    with pytest.raises(ConfigError, match=f"to 'xx': not a language of this model: .*{read[1]}"):
        directed(bundle, source=read[0], target="xx")
    with pytest.raises(ConfigError, match=r"from: this model has several languages"):
        directed(bundle, target=read[0])


def _copy(checkpoint, folder: Path) -> Path:
    folder.mkdir()
    for path in checkpoint[1].iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("config.json", {"vocab_size": 10**9}, r"do not fit the vocab_size 1,000,000,000"),
        ("config.json", {"vocab_size": 90}, r"do not fit the vocab_size 90"),
        (
            "tokenizer_config.json",
            {"legacy_behaviour": True},
            r"legacy_behaviour puts the language after",
        ),
        ("tokenizer_config.json", {"language_codes": "x"}, r"language_codes 'x': expected one"),
        ("tokenizer_config.json", {"language_codes": ["x"]}, r"language_codes '\['x'\]': expected"),
        ("sentencepiece.bpe.model", None, r"sentencepiece\.bpe\.model: cannot be read"),
    ],
)
def test_a_file_that_does_not_fit_is_named(
    checkpoint, tmp_path: Path, name: str, changes: dict[str, Any] | None, message: str
) -> None:
    kind, folder = checkpoint[0], _copy(checkpoint, tmp_path / "copy")
    of_kind = {"legacy_behaviour": "nllb", "language_codes": "m2m100"}
    if changes and of_kind.get(next(iter(changes)), kind) != kind:
        pytest.skip("the other kind has this setting")
    if changes is None:
        (folder / name).unlink()
    else:
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(content | changes))
    with pytest.raises(ModelError, match=message):
        import_huggingface(folder, src_lang=None, tgt_lang=None)


def test_a_shard_that_is_missing_is_named(checkpoint, tmp_path: Path) -> None:
    folder = _copy(checkpoint, tmp_path / "copy")
    shard = sorted(folder.glob("model-*.safetensors"))[1]
    assert load_file(shard)
    shard.unlink()
    with pytest.raises(ModelError, match=f"{shard.name}: no such file"):
        import_huggingface(folder, src_lang=None, tgt_lang=None)
