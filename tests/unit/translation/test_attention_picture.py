"""`tmt attention`: which weights are drawn, and with which letters."""

from functools import partial

import numpy as np
import pytest

from tests.commands import tmt
from transformer_mt.bundle import Bundle, load_bundle
from transformer_mt.translation import picture
from transformer_mt.translation.alignment import attention_of, candidate_of
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.translator import Translator

pytest.importorskip("matplotlib")


run = partial(tmt, "attention")


@pytest.fixture(scope="module")
def bundle(tiny_bundle) -> Bundle:
    return load_bundle(tiny_bundle)


@pytest.mark.parametrize(("layer", "head"), [(None, None), (2, None), (None, 3), (1, 4)])
def test_layers_and_heads_are_chosen_or_averaged(bundle, layer, head):
    translator = Translator(bundle, SearchOptions())
    candidate = candidate_of(translator, "The dog runs.", "der Hund")
    pairs = [(candidate.parts[0].source, candidate.parts[0].target)]
    layers = [layer] if layer else [1, 2]
    heads = [head] if head else [1, 2, 3, 4]
    matrices = [
        translator.given.source_attention(
            pairs, lambda w, at=(one, other): w[at[0] - 1, at[1] - 1]
        )[0]
        for one in layers
        for other in heads
    ]
    (found,) = attention_of(translator, [candidate], layer=layer, head=head)
    np.testing.assert_allclose(found.weights, np.mean(matrices, axis=0), rtol=1e-5)
    assert found.weights.shape == (len(found.target_tokens), len(found.source_tokens))
    assert found.target_tokens == candidate.tokens


def test_a_picture_is_drawn(tiny_bundle, tmp_path):
    path = tmp_path / "new" / "dog.png"
    result = run("A $dog$ runs.", "--model", tiny_bundle, "--layer", 2, "--head", 1, "-o", path)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{path}\n"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_a_given_translation_has_its_pieces(tiny_bundle, tmp_path):
    path = tmp_path / "dog.svg"
    result = run("The dog.", "--target", "中 das", "--model", tiny_bundle, "--output", path)
    assert result.exit_code == 0, result.stderr
    pieces = load_bundle(tiny_bundle).tokenizers.tgt
    texts = path.read_text(encoding="utf-8")
    for piece in pieces.pieces(pieces.encode("中 das")):
        assert f"<!-- {piece.replace('<', '&lt;').replace('>', '&gt;')} -->" in texts


def test_letters_come_from_the_first_font_that_has_them(monkeypatch):
    fonts = [("Latin", set("abc")), ("Other", set("abx")), ("Han", set("中国")), ("Late", {"国"})]
    monkeypatch.setattr(picture, "_fonts", lambda: iter(fonts))
    assert picture.fonts_for("ab c") == (["Latin"], [])
    assert picture.fonts_for("a国") == (["Latin", "Han"], [])
    assert picture.fonts_for("国xй") == (["Latin", "Other", "Han"], ["й"])


def test_letters_that_no_font_has_are_named(tiny_bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(picture, "_fonts", lambda: iter([("DejaVu Sans", set("Thedogr. \u2581"))]))
    path = tmp_path / "dog.png"
    result = run("The dog.", "--target", "red", "--model", tiny_bundle, "--output", path)
    assert result.exit_code == 0, result.stderr
    assert "no installed font has a glyph for" in result.stderr
    assert path.exists()


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (["dog", "--layer", 3], 2, "--layer 3: the model has 2 layers"),
        (["dog", "--head", 5], 2, "--head 5: the model has 4 heads"),
        (["dog", "-o", "picture.jpeg"], 2, "expected a name that ends in .png, .svg, .pdf"),
        (["dog", "-o", "/dev/null/a.png"], 2, "/dev/null is no folder"),
        ([" "], 3, "it is empty or blank"),
        (["dog", "--target", ""], 3, "it is empty or blank"),
    ],
)
def test_mistakes_are_named(tiny_bundle, tmp_path, monkeypatch, arguments, exit_code, words):
    monkeypatch.chdir(tmp_path)
    result = run("--model", tiny_bundle, *arguments)
    assert result.exit_code == exit_code, result.stderr
    assert words in result.stderr
