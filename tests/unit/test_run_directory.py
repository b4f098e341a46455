"""The folder of a run, as commands find it."""

from pathlib import Path

import pytest

from transformer_mt.errors import ModelError
from transformer_mt.training.run_directory import find_run


@pytest.mark.parametrize("content", [b"gone\n", b"", b"\xff\xfe", None])
def test_latest_that_names_no_run_is_one_error_with_the_way_out(
    tmp_path: Path, content: bytes | None
) -> None:
    latest = tmp_path / "latest"
    if content is not None:
        latest.write_bytes(content)
    with pytest.raises(ModelError, match=r"latest: names no run: .*tmt train"):
        find_run(latest)


def test_latest_stands_for_the_run_that_it_names(tmp_path: Path) -> None:
    run = tmp_path / "mine"
    run.mkdir()
    for name in ("config.yaml", "metrics.jsonl"):
        (run / name).touch()
    (tmp_path / "latest").write_text("mine\n", encoding="utf-8")
    assert find_run(tmp_path / "latest").root == run
