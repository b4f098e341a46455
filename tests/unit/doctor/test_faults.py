"""Faults planted in text and settings: each is found, and clean ones cause no doubt."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import small_text
from transformer_mt.config.data import DataSettings, TokenizerSettings
from transformer_mt.config.loading import RECIPES, load_config
from transformer_mt.config.schema import Config
from transformer_mt.doctor.findings import Finding
from transformer_mt.doctor.settings import doubts
from transformer_mt.doctor.text import check_sources

Lines = tuple[list[str], list[str]]
Change = Callable[[Lines, Lines], Lines]

NUM_LINES = 1200


def on_some(change: Callable[[str], str], *, side: int, every: int) -> Change:
    """Change each Nth line of a side."""

    def changed(train: Lines, valid: Lines) -> Lines:
        lines = [change(x) if i % every == 0 else x for i, x in enumerate(train[side])]
        return (lines, train[1]) if side == 0 else (train[0], lines)

    return changed


def without_a_line(train: Lines, valid: Lines) -> Lines:
    return train[0][:-1], train[1][:400] + train[1][401:]


def shuffled(train: Lines, valid: Lines) -> Lines:
    return train[0], random.Random(1).sample(train[1], len(train[1]))


def exchanged(train: Lines, valid: Lines) -> Lines:
    pairs = [(t, s) if i % 20 == 0 else (s, t) for i, (s, t) in enumerate(zip(*train, strict=True))]
    src, tgt = zip(*pairs, strict=True)
    return list(src), list(tgt)


def unlike_each_other(train: Lines, valid: Lines) -> Lines:
    half = len(train[1]) // 10
    rest = random.Random(1).sample(train[1][half:], len(train[1]) - half)
    return train[0], train[1][:half] + rest


def french_from_the_middle(train: Lines, valid: Lines) -> Lines:
    french = ["le chien est dans la maison et il ne voit pas le chat"] * 1200
    return train[0] + train[0], train[1] + french[: len(train[1])]


TEXT_FAULTS: dict[str, tuple[Change, str, str]] = {
    "replacement characters": (
        on_some(lambda x: x.replace("e", "\ufffd"), side=1, every=50), "warning", "U+FFFD",
    ),
    "double encoding": (
        on_some(lambda x: f"{x} Ã¼ber", side=1, every=50), "warning", "read as Latin-1",
    ),
    "control characters": (on_some(lambda x: f"{x}\x07", side=0, every=50), "warning", "control"),
    "entities": (on_some(lambda x: f"&quot;{x}", side=0, every=50), "warning", "entities of HTML"),
    "tags": (on_some(lambda x: f"<b>{x}</b>", side=1, every=50), "warning", "tags of HTML"),
    "subwords": (on_some(lambda x: f"Ka@@ tze {x}", side=1, every=9), "warning", "another token"),
    "blank lines": (on_some(lambda x: "", side=1, every=50), "warning", "a side without text"),
    "copies": (lambda train, valid: (train[0], train[0][:90] + train[1][90:]), "warning",
               "the source as target"),
    "very long lines": (on_some(lambda x: x * 60, side=0, every=50), "warning", "more than 1,000"),
    "a lost line": (without_a_line, "problem", "a line was lost on one side"),
    "shuffled lines": (shuffled, "problem", "do not belong together"),
    "exchanged sides": (exchanged, "warning", "language of the other"),
    "another language": (french_from_the_middle, "warning", "looks like fr"),
    "repeated pairs": (lambda train, valid: (train[0] * 2, train[1] * 2), "warning",
                       "drop_duplicates"),
    "many translations": (
        lambda train, valid: (
            [x for x in train[0] for _ in range(3)],
            [f"{x} {i}" for i, x in enumerate(y for y in train[1] for _ in range(3))],
        ),
        "warning", "share a side",
    ),
    "validation text in training": (
        lambda train, valid: (train[0] + valid[0][:20], train[1] + valid[1][:20]), "warning",
        "source texts of data.valid",
    ),
    "unseen characters": (
        lambda train, valid: ([x.replace("q", "k") for x in train[0]], train[1]), "warning",
        "training never shows: q",
    ),
    "wrong order of sides": (lambda train, valid: train[::-1], "problem", "exchanged"),
}  # fmt: skip

SETTING_FAULTS = {
    "training.lr: a peak of 0.1 is high": {"lr": 0.1},
    "training.lr: a peak of 1e-06 is low": {"lr": 1e-6},
    "more than half of the run is warm-up": {"schedule": {"type": "linear", "warmup_steps": 900}},
    "nothing to select": {"validation": {"every_steps": 1000}},
    "never stops early": {"validation": {"every_steps": 100, "patience": 10}},
    "goes to wrong tokens": {"label_smoothing": 0.6},
    "ten sentences an update": {"max_tokens": 100},
    "norm of most gradients": {"clip_norm": 0.001},
    "updates nearly vanish": {"optimizer": {"type": "adam", "eps": 0.1}},
}


def settings_of(folder: Path, train: Lines, valid: Lines) -> DataSettings:
    """Write text; return settings that name it."""
    named: dict[str, Any] = {}
    for name, lines in (("train", train), ("valid", valid)):
        for side, own in zip(("en", "de"), lines, strict=True):
            (folder / f"{name}.{side}").write_text("".join(f"{x}\n" for x in own), encoding="utf-8")
        sides = {"src": str(folder / f"{name}.en"), "tgt": str(folder / f"{name}.de")}
        named[name] = {"type": "text", **sides}
    if train[0][:1] == small_text(1)[1]:  # exchanged: the names of the files must not decide
        (folder / "train.en").rename(folder / "a")
        (folder / "train.de").rename(folder / "b")
        named["train"] |= {"src": str(folder / "a"), "tgt": str(folder / "b")}
    return DataSettings.model_validate(
        {"src_lang": "en", "tgt_lang": "de", "train": [named["train"]], "valid": named["valid"]}
    )


def doubtful(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(one.status, f"{one.text} {one.advice}") for one in findings if one.status != "ok"]


def examined(folder: Path, change: Change) -> list[tuple[str, str]]:
    valid = small_text(200, seed=5)
    pairs = [pair for pair in zip(*small_text(NUM_LINES), strict=True) if pair[0] not in valid[0]]
    train = [src for src, _ in pairs], [tgt for _, tgt in pairs]
    data = settings_of(folder, change(train, valid), valid)
    return doubtful(list(check_sources(data, TokenizerSettings(path="given"))))


def test_clean_text_causes_no_doubt(tmp_path: Path) -> None:
    found = examined(tmp_path, lambda train, valid: train)
    # Few pairs are a doubt of their own, which the check of `tmt train` has.
    assert [text for _, text in found if "are few to train on" not in text] == []


@pytest.mark.parametrize("fault", TEXT_FAULTS)
def test_a_fault_of_the_text_is_found(tmp_path: Path, fault: str) -> None:
    change, status, words = TEXT_FAULTS[fault]
    found = examined(tmp_path, change)
    assert [one for one in found if one[0] == status and words in one[1]], found


@pytest.mark.parametrize("words", SETTING_FAULTS)
def test_a_doubtful_setting_is_found(words: str) -> None:
    source = {"type": "reverse", "num_pairs": 300}
    training = {"lr": 0.001, "schedule": {"type": "linear", "warmup_steps": 100}, "max_steps": 1000}
    training |= {"validation": {"every_steps": 100}}
    values = {
        "name": "doubtful",
        "data": {"src_lang": "en", "tgt_lang": "de", "train": [source], "valid": source},
    }
    assert list(doubts(Config.model_validate(values | {"training": training}))) == []
    config = Config.model_validate(values | {"training": training | SETTING_FAULTS[words]})
    found = doubtful(list(doubts(config)))
    assert len(found) == 1
    assert words in found[0][1]


@pytest.mark.parametrize("name", sorted(RECIPES.rglob("*.yaml")), ids=lambda path: path.stem)
def test_no_recipe_has_a_doubtful_setting(name: Path) -> None:
    assert doubtful(list(doubts(load_config(name)))) == []
