"""Public corpora: from a local copy or the hub into data/NAME, whole and counted, or not at all."""

import dataclasses
import gzip
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

import get_corpus

from transformer_mt.config.loading import RECIPES

LINES = {"train": 30, "val": 4, "test_2016_flickr": 3}


def texts(split: str, language: str, count: int) -> list[str]:
    return [
        f"{language} {split} number {chr(97 + i // 5)}{chr(97 + i % 5)}x of this whole set"
        for i in range(count)
    ]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> get_corpus.Corpus:
    """Multi30k in small, with a folder in the hub's format in place of the hub."""
    hub = tmp_path / "hub"
    hub.mkdir()
    corpus = get_corpus.CORPORA["multi30k"]
    for split, count in LINES.items():
        rows = zip(texts(split, "en", count), texts(split, "de", count), strict=True)
        name = {"val": "validation", "test_2016_flickr": "test"}.get(split, split)
        with (hub / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps({"en": en, "de": de}) + "\n" for en, de in rows)
    update = {"path": str(hub), "revision": None}
    corpus = dataclasses.replace(corpus, lines=LINES, hub=corpus.hub.model_copy(update=update))
    monkeypatch.setitem(get_corpus.CORPORA, "multi30k", corpus)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return corpus


@pytest.fixture
def local(small: get_corpus.Corpus, tmp_path: Path) -> Path:
    """A local copy of it: compressed, with line ends of another system in one file."""
    folder = tmp_path / "local"
    folder.mkdir()
    for split, count in LINES.items():
        for language in ("en", "de"):
            end = "\r\n" if split == "val" else "\n"
            text = "".join(line + end for line in texts(split, language, count))
            with gzip.open(folder / f"{split}.{language}.gz", "wb") as file:
                file.write(text.encode())
    (folder / "train.fr").write_text("fr\n" * 30, encoding="utf-8")
    return folder


def run(*arguments: object) -> int:
    return get_corpus.main([str(argument) for argument in arguments])


def test_local_copy_becomes_plain_files(local: Path, tmp_path: Path) -> None:
    output = tmp_path / "data" / "multi30k"
    assert run("multi30k", "--from", local, "--output", output) == 0
    for split, count in LINES.items():
        for language in ("en", "de"):
            expected = "".join(f"{line}\n" for line in texts(split, language, count))
            assert (output / f"{split}.{language}").read_bytes() == expected.encode()
    assert (output / "train.fr").read_text(encoding="utf-8").count("\n") == 30
    assert [path.name for path in output.parent.iterdir()] == ["multi30k"]


def test_hub_and_local_copy_give_the_same_files(
    small: get_corpus.Corpus, local: Path, tmp_path: Path
) -> None:
    assert run("multi30k", "--from", local, "--output", tmp_path / "copied") == 0
    assert run("multi30k", "--output", tmp_path / "loaded") == 0
    copied, loaded = contents(tmp_path / "copied"), contents(tmp_path / "loaded")
    del copied["train.fr"], copied["manifest.json"]
    assert b'"origin": ' in loaded.pop("manifest.json")
    assert loaded == copied


def test_corpus_that_is_there_is_left_alone(
    local: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    assert run("multi30k", "--from", local, "--output", output) == 0
    assert run("multi30k", "--from", tmp_path / "nowhere", "--output", output) == 0
    assert "is current" in capsys.readouterr().out
    (output / "train.en").write_text("damaged\n", encoding="utf-8")
    assert run("multi30k", "--from", local, "--output", output) == 0
    assert (output / "train.en").read_text(encoding="utf-8").count("\n") == 30


def test_other_edition_is_refused_with_both_counts(
    local: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with gzip.open(local / "train.de.gz", "ab") as file:
        file.write(b"one more\n")
    assert run("multi30k", "--from", local, "--output", tmp_path / "out") == 3
    error = capsys.readouterr().err
    assert "train.de.gz has 31 lines; expected 30" in error
    assert not (tmp_path / "out").exists()


def test_missing_file_is_named(
    local: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (local / "val.en.gz").unlink()
    assert run("multi30k", "--from", local, "--output", tmp_path / "out") == 3
    assert "val.en" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_other_files_are_not_replaced(
    local: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (output / "train.en").write_text("mine\n", encoding="utf-8")
    assert run("multi30k", "--from", local, "--output", output) == 3
    assert "was not made by this script" in capsys.readouterr().err
    assert contents(output) == {"train.en": b"mine\n"}


def test_without_hub_and_copy_it_says_what_to_do(
    small: get_corpus.Corpus,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hub = small.hub.model_copy(update={"path": "nobody/no-such-data", "revision": "0" * 40})
    monkeypatch.setitem(get_corpus.CORPORA, "multi30k", dataclasses.replace(small, hub=hub))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert run("multi30k", "--output", tmp_path / "out") == 3
    error = capsys.readouterr().err
    assert "scripts/get_corpus.py multi30k --from DIR" in error
    assert "train.en, train.de, val.en" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_one_split_alone_is_divided_without_leaks(
    small: get_corpus.Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    alone = dataclasses.replace(
        small, lines={"train": 0, "dev": 5, "test": 4}, hub_splits={"train": "train"}
    )
    monkeypatch.setitem(get_corpus.CORPORA, "multi30k", alone)
    assert run("multi30k", "--output", tmp_path / "out") == 0
    sides = {
        (split, language): (tmp_path / "out" / f"{split}.{language}").read_text("utf-8").split("\n")
        for split in ("train", "dev", "test")
        for language in ("en", "de")
    }
    assert [len(sides[split, "en"]) - 1 for split in ("train", "dev", "test")] == [21, 5, 4]
    for split in ("train", "dev", "test"):
        assert sides[split, "de"] == [text.replace("en ", "de ", 1) for text in sides[split, "en"]]
    whole = sorted(text for s in ("train", "dev", "test") for text in sides[s, "en"] if text)
    assert whole == sorted(texts("train", "en", 30))


def test_every_corpus_pins_its_revision() -> None:
    assert len(get_corpus.CORPORA) == 4
    for corpus in get_corpus.CORPORA.values():
        assert len(corpus.hub.revision or "") == 40
        assert set(corpus.hub_splits) <= set(corpus.lines)


def test_recipes_read_the_revisions_that_the_script_pins() -> None:
    for name, corpus in get_corpus.CORPORA.items():
        if name.startswith("wmt14"):
            recipe = "base" if name == "wmt14_en_de" else "wmt14_en_fr_base"
            path = RECIPES / f"{recipe}.yaml"
            assert str(corpus.hub.revision) in path.read_text(encoding="utf-8")
