"""Mistakes in training text that are found before the tokenizer is trained."""

from pathlib import Path

import pytest

from transformer_mt.config.data import DataSettings, TokenizerSettings
from transformer_mt.config.loading import parse_config
from transformer_mt.data.sources import filters_of, open_source
from transformer_mt.data.text_checks import check_text
from transformer_mt.errors import ConfigError, DataError

ENGLISH = [f"this is the house of a man that I have seen {i} times" for i in range(60)]
FRENCH = [f"il y a {i} chiens dans la maison et les enfants ne le sont pas" for i in range(60)]
# Languages without a list of common words: only the validation text knows them.
LETTERS = str.maketrans("0123456789", "abcdefghij")
FIRST = [" ".join(f"ka{i}{c}" for c in "xyz").translate(LETTERS) for i in range(60)]
SECOND = [line.replace("ka", "zu") for line in FIRST]
BOTH = {"en": ENGLISH, "fr": FRENCH, "eu": FIRST, "zu": SECOND}


def check(
    folder: Path,
    train: list[tuple[str, str]],
    *,
    names: tuple[str, str] = ("src", "tgt"),
    languages: tuple[str, str] = ("en", "fr"),
    split: bool = False,
    vocab_size: int = 300,
    **filters: object,
) -> None:
    """Look at files of the languages of `train`, with validation text of `languages`."""
    sources = []
    for number, pair in enumerate(train):
        paths = [folder / f"{number}.{name}" for name in names]
        for path, language in zip(paths, pair, strict=True):
            path.write_text("\n".join(BOTH[language]))
        sources.append({"type": "text", "src": str(paths[0]), "tgt": str(paths[1])})
    data = DataSettings.model_validate(
        {
            "src_lang": languages[0],
            "tgt_lang": languages[1],
            "train": sources,
            "valid": {"split": 9} if split else {"type": "tsv", "path": "valid.tsv"},
            "filters": filters,
        }
    )
    opened = [open_source(source, src_lang="", tgt_lang="") for source in data.train]
    valid = list(zip(*(BOTH[code[:2]] for code in languages), strict=True))
    check_text(data, TokenizerSettings(vocab_size=vocab_size), opened, valid)


def test_sound_text_gives_no_warning_but_of_its_size(tmp_path, caplog):
    check(tmp_path, [("en", "fr")])
    check(tmp_path, [("eu", "zu")], languages=("eu", "zu"))
    assert {record.message.partition(":")[0] for record in caplog.records} == {
        "60 pairs are few to train on"
    }


@pytest.mark.parametrize("languages", [("en", "fr"), ("eu", "zu")])
def test_exchanged_languages_are_refused(tmp_path, languages):
    with pytest.raises(DataError, match=r"0\.src .* seem to be exchanged.*Exchange src and tgt"):
        check(tmp_path, [languages[::-1]], languages=languages)


def test_exchanged_names_are_refused(tmp_path):
    names = ("fr", "en")  # of files that hold languages nobody knows
    with pytest.raises(DataError, match=r"0\.fr .*0\.en: source and target seem to be exchanged"):
        check(tmp_path, [("eu", "zu")], names=names)


def test_one_exchanged_source_of_several_or_of_all_text_is_warned_of(tmp_path, caplog):
    check(tmp_path, [("en", "fr"), ("fr", "en")])
    assert "1.src" in caplog.text
    assert "0.src" not in caplog.text
    caplog.clear()
    check(tmp_path, [("fr", "en")], split=True)
    assert "exchange them, or src_lang and tgt_lang" in caplog.text


def test_copies_are_warned_of_unless_both_languages_are_one(tmp_path, caplog):
    check(tmp_path, [("en", "en")])
    assert "60 of the first 60 pairs have their source as target" in caplog.text
    caplog.clear()
    check(tmp_path, [("en", "en")], drop_copies=False)
    check(tmp_path, [("en", "en")], languages=("en-US", "en-GB"))
    assert "source as target" not in caplog.text


def test_a_large_vocabulary_for_little_text_is_warned_of(tmp_path, caplog):
    check(tmp_path, [("en", "fr")], vocab_size=8000)
    assert "vocab_size 8,000 is much for 60 pairs" in caplog.text
    assert "1,000 would be enough" in caplog.text


CONFIG = """
name: x
data: {src_lang: en, tgt_lang: LANG, train: [SOURCE], valid: {split: 9}}
training: {max_tokens: 9, max_steps: 1, lr: 1, schedule: {type: constant}}
"""


@pytest.mark.parametrize(
    ("source", "setting"),
    [
        ("{type: text, src: a, tgt: a}", "data.train.0.tgt"),
        ("{type: tsv, path: a, src_column: 1}", "data.train.0.tgt_column"),
        ("{type: csv, path: a, src_column: en, tgt_column: en}", "data.train.0.tgt_column"),
        ("{type: jsonl, path: a, src_field: en, tgt_field: en}", "data.train.0.tgt_field"),
    ],
)
def test_one_text_as_source_and_target_is_refused(source, setting):
    text = CONFIG.replace("SOURCE", source)
    with pytest.raises(ConfigError, match=f"{setting}: is the same as src.*: the target would be"):
        parse_config(text.replace("LANG", "de"), "x.yaml")
    assert parse_config(text.replace("LANG", "en-GB"), "x.yaml")  # learns to keep text


@pytest.mark.parametrize(
    ("languages", "given", "dropped"),
    [
        (("en", "de"), None, True),
        (("en", "en"), None, False),
        (("zh-CN", "zh_TW"), None, False),
        (("en", "de"), False, False),
        (("en", "en"), True, True),
    ],
)
def test_copies_are_kept_between_varieties_of_a_language(languages, given, dropped):
    data = DataSettings.model_validate(
        {
            "src_lang": languages[0],
            "tgt_lang": languages[1],
            "train": [{"type": "tsv", "path": "x"}],
            "valid": {"split": 1},
            "filters": {} if given is None else {"drop_copies": given},
        }
    )
    assert filters_of(data, data.train[0]).drop_copies is dropped
