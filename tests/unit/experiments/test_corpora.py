"""The benchmark of corpora measures what it says."""

from pathlib import Path
from typing import Any

import pytest

from experiments import corpora
from tests.conftest import small_text
from transformer_mt.text.tokenizer_training import train_tokenizers


def test_repeats_have_some_new_words_and_as_many_lines() -> None:
    lines, _ = small_text(80)
    assert list(corpora.varied(lines, 0)) == lines
    first, second = (list(corpora.varied(lines, repeat)) for repeat in (1, 2))
    assert len(first) == len(second) == 80
    assert sum(a != b for a, b in zip(lines, first, strict=True)) == 10
    assert sum(a != b for a, b in zip(first, second, strict=True)) == 20


def test_all_rows_of_the_table_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpora, "LOADING_SECONDS", 0.01)
    monkeypatch.setattr(corpora.mixture, "_WINDOW_PAIRS", corpora.mixture._WINDOW_PAIRS)
    text = small_text(300)
    for side, lines in zip(corpora.SIDES, text, strict=True):
        (tmp_path / f"train.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    tokenizers = train_tokenizers(*text, joint=True, type="bpe", vocab_size=350)
    tokenizers.save(tmp_path / "tokenizer")
    place = tmp_path / "2"
    place.mkdir()
    corpora.write_text(tmp_path, place, 2)
    row: dict[str, Any] = corpora.prepare(place)
    for act in (corpora.load, corpora.load_cold, corpora.load_random):
        row |= act(Path(row["directory"]))
    speed = corpora.sentencepiece_speed(tmp_path, tokenizers, num_threads=1)
    row |= {"sentencepiece_one_thread": speed, "sentencepiece_two_threads": speed}
    row |= {"prepare_peak_rss_bytes": 5e8}
    assert row["num_pairs"] == 600
    shown = corpora.table([row, row]).splitlines()
    assert len({line.count("|") for line in shown}) == 1
