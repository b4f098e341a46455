"""What a run reads, before anything expensive happens."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from pydantic import ValidationError

from tests.commands import tmt
from tests.tiny_runs import tiny_config
from transformer_mt.config.schema import Config
from transformer_mt.data.evaluation_sets import read_test_sets
from transformer_mt.data.sources import ReversePairs
from transformer_mt.errors import DataError
from transformer_mt.training.prepare_data import open_sources
from transformer_mt.training.trainer import train


def test_all_sources_that_are_not_there_are_named_at_once_each_once(tmp_path: Path) -> None:
    def absent(name: str) -> dict[str, str]:
        return {"type": "tsv", "path": str(tmp_path / name)}

    config = tiny_config(
        tmp_path,
        corpus_dir=tmp_path,
        data__train=[{"type": "reverse", "num_pairs": 3}, absent("train")],
        data__valid=absent("valid"),
        data__test={"one": absent("test"), "the same": absent("test")},
    )
    with pytest.raises(DataError) as caught:
        open_sources(config)
    first, *others = str(caught.value).split("\n")
    assert first == "3 sources cannot be read:"
    assert [line.split(":")[0] for line in others] == [
        str(tmp_path / name) for name in ("train", "valid", "test")
    ]


def test_validation_text_that_is_training_text_is_warned_of(run_config, caplog):
    config = run_config(data__valid={"type": "reverse", "num_pairs": 300})
    train(config)
    assert "is also training text" in caplog.text
    caplog.clear()
    train(run_config("other"))
    assert "is also training text" not in caplog.text


def test_a_sentencepiece_model_of_its_defaults_trains_and_translates(run_config, caplog, tmp_path):
    caplog.set_level(logging.INFO)
    path = tmp_path / "spm.model"
    lines = [src for src, _ in ReversePairs(300, min_length=3, max_length=12, seed=1)]
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(lines), model_writer=file, vocab_size=15, minloglevel=4
        )
    result = train(run_config(tokenizer={"path": str(path), "sampling": 0.1}))
    assert f"{path} normalises text before it is tokenized" in caplog.text
    path.unlink()  # the model has its own copy
    translated = tmt("translate", "--model", result.run_dir, data=b"1 2 3\n\n4 5\n")
    assert translated.exit_code == 0, translated.stderr
    assert translated.stdout.count("\n") == 3


def monolingual_config(folder: Path, **changes: Any) -> Config:
    """Settings that learn from a file of digits, from pairs, and validate by restoring digits."""
    (folder / "digits").write_text("".join(f"{n} {n * n} {n + 7}\n" for n in range(90)))
    mono = {"type": "monolingual", "path": str(folder / "digits"), "tag": "<de>"}
    given = {
        "data__train": [{"type": "reverse", "num_pairs": 60}, mono],
        "data__valid": mono,
        "tokenizer": {
            "vocab_size": 27,
            "byte_fallback": False,
            "user_symbols": ["<mask>", "<de>"],
        },
        "training__max_steps": 2,
    }
    return tiny_config(folder, corpus_dir=folder / "corpora", **given | changes)


def test_monolingual_text_is_restored_from_noise_beside_pairs(tmp_path):
    result = train(monolingual_config(tmp_path))
    facts = json.loads((Path(result.run_dir) / "preparation.json").read_text())["train"]
    assert facts[1]["report"]["kept"] == 90, "copies are not dropped"
    (sample, *_) = Path(result.run_dir, "samples", "step-2.txt").read_text().split("\n")
    assert sample.startswith("source     <de>")
    assert "<mask>" in sample
    evaluated = tmt("evaluate", "--model", result.run_dir, "--test-set", "valid", "--bleu")
    assert evaluated.exit_code == 2
    assert "monolingual text, which has no translations" in evaluated.stderr


def test_tags_stand_before_the_sources_of_their_set_alone(tmp_path):
    for end in ("src", "tgt"):
        (tmp_path / f"back.{end}").write_text("".join(f"{n} {n}\n" for n in range(20, 60)))
    files = {side: str(tmp_path / f"back.{side}") for side in ("src", "tgt")}
    back = {"type": "text", **files, "tag": "<de>"}
    config = monolingual_config(
        tmp_path,
        data__train=[{"type": "reverse", "num_pairs": 60}, back],
        data__valid=back,
        data__test={"plain": {"type": "text", **files}, "tagged": back},
        data__filters__drop_copies=False,
    )
    result = train(config)
    (sample, *_) = Path(result.run_dir, "samples", "step-2.txt").read_text().split("\n")
    assert sample == "source     <de> 20 20"
    plain, with_tag = (
        read_test_sets(config, [name], run=None)[0].sources[0] for name in ("plain", "tagged")
    )
    assert (plain, with_tag) == ("20 20", "<de> 20 20")
    facts = json.loads((Path(result.run_dir) / "preparation.json").read_text())["train"]
    more = [part["src_tokens"] - part["tgt_tokens"] for part in facts]
    assert more[0] == 0
    assert more[1] >= 40, "a token for each source"


def test_an_empty_monolingual_file_is_named(tmp_path):
    config = monolingual_config(tmp_path)
    (tmp_path / "digits").write_text("")
    with pytest.raises(DataError, match=r"digits \(monolingual\): holds no"):
        train(config)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer": {"user_symbols": ["<de>"]}}, "data.train.1.noise.symbol"),
        ({"data__document": {"context_sentences": 1}}, "source type monolingual have none"),
        ({"data__test": {"x": {"type": "monolingual", "path": "y"}}}, "no translations to score"),
    ],
)
def test_monolingual_text_is_refused_where_it_makes_no_sense(tmp_path, changes, message):
    with pytest.raises(ValidationError, match=message):
        monolingual_config(tmp_path, **changes)
