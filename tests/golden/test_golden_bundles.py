"""Models of earlier versions translate as they did then (made by make_golden.py)."""

import json
import shutil
from pathlib import Path

import pytest

from transformer_mt.bundle import load_bundle
from transformer_mt.errors import ModelError
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.translator import Translator

GOLDEN = sorted(path.parent for path in Path(__file__).parent.glob("*/bundle"))


def test_there_is_a_golden_bundle_of_at_most_a_few_hundred_kilobytes() -> None:
    assert GOLDEN
    for folder in GOLDEN:
        assert sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) < 600_000


@pytest.mark.parametrize("folder", GOLDEN, ids=lambda folder: folder.name)
def test_an_old_bundle_translates_identically(folder: Path) -> None:
    lines = (folder / "translations.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    records = [json.loads(line) for line in lines]
    assert len(records) > 40
    assert len({record["text"] for record in records}) > 30
    translator = Translator(load_bundle(folder / "bundle"), SearchOptions(beam_size=4))
    found = translator.translate([record["source"] for record in records])
    assert [t.text for t in found] == [record["text"] for record in records]
    assert [t.n_best[0].score for t in found] == pytest.approx(
        [r["score"] for r in records], abs=1e-4
    )


@pytest.mark.parametrize("folder", GOLDEN, ids=lambda folder: folder.name)
def test_a_newer_format_is_refused_with_what_to_do(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "bundle", tmp_path / "bundle")
    path = tmp_path / "bundle" / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["format_version"] = 99
    del manifest["manifest_checksum"]
    path.write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(ModelError, match=r"format_version 99 is newer .* upgrade transformer_mt"):
        load_bundle(tmp_path / "bundle")
