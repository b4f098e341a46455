"""Pictures in patches: text and names as ids, fonts, files of all sorts."""

import json
import pickle

import numpy as np
import pytest
from PIL import Image

from transformer_mt.config.pictures import PatchInput
from transformer_mt.errors import DataError
from transformer_mt.text import picture_files
from transformer_mt.text.fonts import FontFile, LineDrawing
from transformer_mt.text.patches import EMPTY, PatchTokenizer, patch_tokenizer
from transformer_mt.text.picture_files import drawn_name, read_ink, with_noise
from transformer_mt.text.tokenizer import PATCHES, Tokenizer
from transformer_mt.text.tokenizer_directory import read_tokenizers
from transformer_mt.text.tokenizer_pair import Tokenizers

LINES = [
    "A dog, 3 cats.",
    "größer",
    "e\u0301 \u0410 \u6f22 \U0001f600",
    "iiiiiiiiiiiiiiiiiiii",
    "\udcff",
    " ",
]


@pytest.fixture(scope="module")
def lines() -> PatchTokenizer:
    return patch_tokenizer(PatchInput(type="patches"), names_pictures=False)


@pytest.fixture
def pictures() -> PatchTokenizer:
    return PatchTokenizer(8, 4)


@pytest.mark.parametrize("line", LINES)
def test_ids_are_text_and_their_rows_the_picture_and_a_white_end(lines, line):
    ids = lines.encode(line)
    text = line.replace("\udcff", "\ufffd")
    assert lines.decode(ids) == text
    assert "".join(text[a:b] for a, b in lines.spans(ids)) == text
    rows = lines.draw(ids)
    ink = LineDrawing(lines.fonts, height=16).ink(text)
    assert rows.shape == (-(-ink.shape[1] // 8) + 1, 16 * 8)
    assert len(rows) <= len(ids) + 1
    drawn = np.concatenate([row.reshape(16, 8) for row in rows], axis=1)
    np.testing.assert_array_equal(drawn[:, : ink.shape[1]], ink)
    assert not drawn[:, ink.shape[1] :].any()


def test_a_character_is_the_id_of_the_patch_in_which_it_begins(lines):
    line = "A wide line"
    starts, _ = LineDrawing(lines.fonts, height=16).starts(line)
    found = {
        place: (start, end) for place, (start, end) in enumerate(lines.spans(lines.encode(line)))
    }
    for number, start in enumerate(starts):
        first, end = found[start // 8]
        assert first <= number < end
    assert EMPTY in lines.encode("W")[1:]


def test_a_character_that_no_font_has_is_an_empty_box_and_said(lines):
    assert not lines.has_unseen(lines.encode("A dog"))
    assert lines.has_unseen(lines.encode("A \u6f22"))
    assert lines.draw(lines.encode("\u6f22")).any()
    both = LineDrawing([FontFile.find("cmr10.ttf"), *lines.fonts], height=16)
    assert both.has("\u00e9")  # of the second font
    np.testing.assert_array_equal(
        both.ink("\u00e9"), LineDrawing(lines.fonts, height=16).ink("\u00e9")
    )


def test_a_saved_tokenizer_brings_its_fonts(lines, tiny_bundle, tmp_path, monkeypatch):
    target = Tokenizer.load(tiny_bundle / "joint.model")
    Tokenizers(src=lines, tgt=target).save(tmp_path)
    monkeypatch.setattr(FontFile, "find", None)  # no font is looked for
    loaded = read_tokenizers(tmp_path)
    assert loaded.fingerprint() == Tokenizers(src=lines, tgt=target).fingerprint()
    for other in (loaded.src, pickle.loads(pickle.dumps(lines))):
        np.testing.assert_array_equal(
            other.draw(other.encode("Ab")), lines.draw(lines.encode("Ab"))
        )


def test_a_font_that_forbids_copies_is_known_by_its_hash(lines, tmp_path, monkeypatch):
    monkeypatch.setitem(vars(lines.fonts[0]), "may_be_embedded", False)
    lines.save(tmp_path / "src.model")
    assert [path.name for path in tmp_path.iterdir()] == [PATCHES]
    assert PatchTokenizer.load(tmp_path / PATCHES).fingerprint() == lines.fingerprint()
    facts = json.loads((tmp_path / PATCHES).read_text())
    facts["fonts"][0]["sha256"] = "0"
    (tmp_path / PATCHES).write_text(json.dumps(facts))
    with pytest.raises(DataError, match=r"DejaVuSans\.ttf of sha256 0, .*another version"):
        PatchTokenizer.load(tmp_path / PATCHES)


def test_a_missing_font_is_named(tmp_path):
    (tmp_path / "no.ttf").write_text("no font")
    wrong = {"nowhere.ttf": "no such font", str(tmp_path / "no.ttf"): "cannot be read"}
    for name, what in wrong.items():
        with pytest.raises(DataError, match=f"{name}: {what}"):
            FontFile.find(name)


def test_pictures_of_every_kind_are_scaled_grey_ink(pictures, tmp_path):
    grey = np.linspace(0, 255, 16 * 24).reshape(16, 24).astype(np.uint8)
    alpha = np.zeros((16, 24, 4), dtype=np.uint8)  # black, seen where it is opaque
    alpha[..., 3] = 255 - grey
    kinds = {
        "grey.png": Image.fromarray(grey),
        "deep picture.png": Image.fromarray(grey.astype(np.uint16) * 257),  # 16 bits
        "clear.png": Image.fromarray(alpha),
        "colour.png": Image.fromarray(np.stack([grey] * 3, axis=-1)),
        "float.tif": Image.fromarray(grey / 255),
    }
    found = {}
    for name, image in kinds.items():
        image.save(tmp_path / name)
        ids = pictures.encode(str(tmp_path / name))
        assert pictures.decode(ids) == str(tmp_path / name)
        found[name] = pictures.draw(ids)
    for name, rows in found.items():
        np.testing.assert_allclose(rows.astype(int), found["grey.png"], atol=2, err_msg=name)


def test_what_is_no_picture_is_refused_by_name(pictures, tmp_path, monkeypatch):
    (tmp_path / "text.png").write_text("no picture")
    noise = np.random.default_rng(1).integers(0, 256, (39, 40), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:600])
    Image.fromarray(np.zeros((40, 40), dtype=np.uint8)).save(tmp_path / "large.png")
    Image.fromarray(np.zeros((1, 40), dtype=np.uint8)).save(tmp_path / "long.png")
    monkeypatch.setattr(picture_files, "MAX_PIXELS", 1599)
    monkeypatch.setattr(picture_files, "MAX_WIDTH", 319)
    for name, what in {
        "text.png": "no picture, or damaged",
        "cut.png": "no picture, or damaged",
        "large.png": "40 x 40 pixels; at most 1,599",
        "long.png": "320 pixels wide when scaled to a height of 8; at most 319",
        "none.png": "no such picture file",
        ".": "no such picture file",
    }.items():
        with pytest.raises(DataError, match=what) as caught:
            pictures.encode(str(tmp_path / name))
        assert str(tmp_path / name) in str(caught.value)
    with pytest.raises(DataError, match="expected the path of a picture"):
        pictures.encode('{"text": "no font"}')


def test_noise_is_a_function_of_its_key_and_keeps_the_size(pictures):
    name = drawn_name("A dog", "DejaVuSans.ttf", 1.0)
    ids = pictures.encode(name)
    first, again, other = (pictures.draw(ids, key) for key in ((1, 2, 3), (1, 2, 3), (1, 3, 3)))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    ink = read_ink(name, height=8, random=np.random.default_rng(1))
    assert ink.shape == with_noise(ink, 0.5, np.random.default_rng(2)).shape


def test_noise_makes_lines_smaller_and_larger_and_puts_them_higher_and_lower():
    ink = np.zeros((24, 60), dtype=np.uint8)
    ink[8:16, 10:50] = 255
    found = [with_noise(ink, 0.5, np.random.default_rng(seed)) > 128 for seed in range(60)]
    assert all(lines.any() for lines in found)
    heights = {int(lines.any(axis=1).sum()) for lines in found}
    tops = {int(lines.any(axis=1).argmax()) for lines in found}
    assert min(heights) < 8 < max(heights)
    assert min(tops) < 4
    assert max(tops) > 12
    blank = np.zeros((24, 60), dtype=np.uint8)
    assert not (with_noise(blank, 0.5, np.random.default_rng(1)) > 128).any()


def test_a_font_of_tex_lacks_characters_in_whose_places_it_has_other_glyphs():
    characters = FontFile.find("cmr10.ttf").characters
    assert characters.issuperset("Aa1(%)'\"")
    assert not characters & set("{}<>|_\\")
    assert FontFile.find("DejaVuSans.ttf").characters.issuperset("{}<>|_\\")


def test_half_of_a_name_is_never_looked_for(pictures, tmp_path, caplog):
    from transformer_mt.text.lines import unchanged
    from transformer_mt.translation.long_lines import split_lines

    name = tmp_path / "a. B wide.png"
    Image.fromarray(np.zeros((8, 400), dtype=np.uint8)).save(name)
    parts, _ = split_lines(
        [str(name), "", str(name)[:-1], drawn_name("A", "DejaVuSans.ttf", 0)],
        pictures,
        clean=unchanged,
        max_tokens=50,
        languages=("en", "en"),
        numbers=[3, 4, 5, 6],
    )
    assert [len(own) for own in parts] == [0, 0, 0, 1]
    assert "line 3: " in caplog.text
    assert "100 patches wide; at most 50" in caplog.text
    assert "line 5: " in caplog.text
