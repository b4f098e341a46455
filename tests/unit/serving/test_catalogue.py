"""Models by language pair, and their replacement."""

import shutil
from pathlib import Path

import pytest

from tests.unit.serving.serving_models import load
from transformer_mt.errors import ConfigError
from transformer_mt.serving.catalogue import Catalogue, ServedModel, language_name
from transformer_mt.serving.limits import Refused


def test_names_of_languages_are_english() -> None:
    codes = ["de", "zh-Hant", "jpn_Jpan", "la"]
    assert list(map(language_name, codes)) == ["German", "Chinese (Hant)", "Japanese (Jpan)", "la"]


def test_a_pair_has_one_model_and_may_be_chosen(tiny_bundle: Path, tagged_bundle: Path) -> None:
    one, many = ServedModel(str(tiny_bundle), load), ServedModel(str(tagged_bundle), load)
    assert set(many.directions) == {("en", "de"), ("en", "fr"), ("fr", "de")}
    with pytest.raises(ConfigError, match=r"both translate en-de: name the pair"):
        Catalogue([one, many])
    with pytest.raises(ConfigError, match=r"de-en=\.\.: not a direction of this model: en-de, en-"):
        ServedModel(f"de-en={tagged_bundle}", load)
    with pytest.raises(ConfigError, match=r"de-en=\.\.: not a direction of this model: en-de$"):
        ServedModel(f"de-en={tiny_bundle}", load)
    chosen = ServedModel(f"en-fr={tagged_bundle}", load)
    both = Catalogue([one, chosen])
    assert set(both.directions) == {("en", "de"), ("en", "fr")}
    with pytest.raises(Refused, match=r"German \(de\) is not available .* French \(fr\)"):
        both.way("fr", "de")
    with pytest.raises(ConfigError, match="--pivot zz: no model has this language"):
        Catalogue([one], pivot="zz")
    renamed = ServedModel(f"zh-Hans:pt-BR={tiny_bundle}", load)
    assert set(renamed.directions) == {("zh-Hans", "pt-BR")}


def test_a_new_model_is_taken_and_a_damaged_one_is_not(
    tiny_bundle: Path, tagged_bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_bundle, folder)
    catalogue = Catalogue([ServedModel(str(folder), load)])
    first = catalogue.directions["en", "de"]
    catalogue.reload()
    assert catalogue.directions["en", "de"] is first
    shutil.rmtree(folder)
    catalogue.reload()  # between two renames
    shutil.copytree(tagged_bundle, folder)
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    catalogue.reload()
    assert catalogue.directions["en", "de"] is first
    assert [r.levelname for r in caplog.records] == ["ERROR", "ERROR"]
    assert "damaged" in caplog.text
    caplog.clear()
    catalogue.reload()
    assert not caplog.records
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "manifest.json").touch()
    catalogue.reload()
    assert catalogue.languages == ["en", "fr", "de"]
