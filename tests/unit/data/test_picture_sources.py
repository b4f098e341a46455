"""Sources of pictures, and runs on them."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from pydantic import TypeAdapter, ValidationError

from tests.tiny_runs import interrupt_at, weights_at
from transformer_mt.config.sources import Source
from transformer_mt.data.pair_source import PairSource
from transformer_mt.data.sources import open_source
from transformer_mt.errors import DataError, InterruptedRun
from transformer_mt.text.fonts import FontFile, LineDrawing
from transformer_mt.training.trainer import train

FONTS = ["DejaVuSans.ttf", "cmr10.ttf"]
PATCHES = {
    "d_model": 16,
    "d_ff": 32,
    "num_heads": 2,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "tie_embeddings": "target",
    "encoder_input": {"type": "patches", "height": 8, "patch_width": 6},
}


def open_(**settings: object) -> PairSource:
    source = TypeAdapter[Source](Source).validate_python(settings)
    return open_source(source, src_lang="en", tgt_lang="en")


def test_lines_are_broken_and_drawn_with_a_font_that_has_all_of_them(tmp_path, caplog):
    text = tmp_path / "lines.txt"
    text.write_text("one two three\n\nné\n\u6f22\nfour\n" * 3)
    source = open_(type="rendered", text=[str(text)], fonts=FONTS, max_characters=8, noise=0.25)
    pairs = list(source)
    assert [tgt for _, tgt in pairs] == ["one two", "three", "né", "four"] * 3
    names = [json.loads(src) for src, _ in pairs]
    assert [name["text"] for name in names] == [tgt for _, tgt in pairs]
    assert {name["font"] for name in names} == set(FONTS)
    assert {name["font"] for name in names if name["text"] == "né"} == {FONTS[0]}
    assert {name["noise"] for name in names} == {0.25}
    assert "3 lines left out: no font has all of their characters" in caplog.text
    assert list(source) == pairs
    assert list(open_(**settings_of(text), seed=2)) != pairs
    with pytest.raises(DataError, match=r"nowhere\.ttf: no such font"):
        open_(type="rendered", text=[str(text)], fonts=["nowhere.ttf"])


def settings_of(text: Path) -> dict[str, object]:
    return {"type": "rendered", "text": [str(text)], "fonts": FONTS, "max_characters": 8}


def test_paths_start_from_the_folder_of_their_table_and_contents_count(tmp_path):
    picture = tmp_path / "a b.png"
    Image.new("L", (20, 8)).save(picture)
    table = tmp_path / "pairs.tsv"
    table.write_text("a b.png\ta  text\n")
    source = open_(type="images", path=str(table))
    assert list(source) == [(str(picture), "a  text")]
    before = source.fingerprint()
    assert source.fingerprint() == before
    Image.new("L", (21, 8)).save(picture)
    assert source.fingerprint() != before
    picture.unlink()
    with pytest.raises(DataError, match=r"a b\.png: cannot be read"):
        source.fingerprint()


@pytest.fixture
def images(tmp_path) -> dict[str, object]:
    """A table of drawn digits."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    drawing = LineDrawing([FontFile.find("DejaVuSans.ttf")], height=8)
    rows = []
    for number in range(24):
        Image.fromarray(255 - drawing.ink(str(100 + number))).save(folder / f"{number} .png")
        rows.append(f"{number} .png\t{100 + number}\n")
    (folder / "all.tsv").write_text("".join(rows))
    return {"type": "images", "path": str(folder / "all.tsv")}


def test_a_run_on_pictures_resumes_to_the_bit_and_reads_paths(
    run_config, images, tmp_path, monkeypatch
):
    from transformer_mt import load

    text = tmp_path / "lines.txt"
    text.write_text("12 34\n5 6 7\n" * 8)
    drawn = settings_of(text) | {"noise": 0.5, "fonts": FONTS[:1]}
    changes = {"data__train": [images, drawn], "data__valid": images, "model": PATCHES}
    whole = train(run_config("whole", **changes))
    parts = run_config("parts", **changes)
    interrupt_at(monkeypatch, 3)
    with pytest.raises(InterruptedRun):
        train(parts)
    monkeypatch.undo()
    resumed = train(parts)
    expected, found = (weights_at(Path(run.run_dir), 6) for run in (whole, resumed))
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name
    model = load(whole.model_dir)
    folder = Path(str(images["path"])).parent
    names = [str(folder / "3 .png"), "", str(folder / "none.png"), str(folder / "3 .png")]
    found = [translation.text for translation in model.translate(names)]
    assert found[0] == found[3] != ""
    assert found[1:3] == ["", ""]


def test_source_sentences_are_drawn_and_need_no_vocabulary(run_config):
    changes = {"model": PATCHES, "training__max_steps": 2}
    run = train(run_config(**changes))
    files = {path.name for path in Path(run.model_dir).iterdir()}
    assert {"src.patches.json", "src.font-0.ttf", "tgt.model"} < files
    assert not {"src.model", "joint.model"} & files
    again = train(run_config("again", training__init_from=run.run_dir, **changes))
    assert again.step == 2


def test_settings_that_do_not_go_with_pictures_are_refused(run_config, images):
    text = {"type": "reverse", "num_pairs": 9}
    for changes, what in (
        ({"data__train": [images]}, "gives pictures: take"),
        ({"data__train": [images, text], "model": PATCHES}, "do not mix"),
        ({"model": PATCHES | {"tie_embeddings": "all"}}, "no source embedding: take target"),
    ):
        with pytest.raises(ValidationError, match=what):
            run_config(**changes)
