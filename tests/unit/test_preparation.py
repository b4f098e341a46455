"""What a run reads, before anything expensive happens."""

from pathlib import Path

import pytest

from tests.tiny_runs import tiny_config
from transformer_mt.errors import DataError
from transformer_mt.training.preparation import open_sources
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
