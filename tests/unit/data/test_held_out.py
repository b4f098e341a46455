"""Pairs that are taken out of the training text for validation and tests."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import tmt
from tests.tiny_runs import tiny_config
from transformer_mt.config.loading import parse_config
from transformer_mt.data.corpus import Corpus
from transformer_mt.data.held_out import HeldOut, RemainingPairs, hold_out, key_of
from transformer_mt.errors import ConfigError, DataError
from transformer_mt.training.trainer import train

SPLITS = {"valid": 20, "test": 30}
DIGITS = {"type": "reverse", "num_pairs": 300}


class Pairs:
    """A source in memory."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.pairs = pairs

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)

    def describe(self) -> str:
        return "pairs"

    def fingerprint(self, hashes: object = None) -> str:
        return str(hash(tuple(self.pairs)))


def text(first: int, last: int) -> list[tuple[str, str]]:
    """Pairs with two targets for each source, and some nobody would train on."""
    pairs = [(f"Source  {i}", f"target {i} {j}") for i in range(first, last) for j in range(2)]
    return [*pairs, *((f"copy {i}", f"copy {i}") for i in range(9)), ("", "x")]


def held_out(*sources: list[tuple[str, str]], **splits: int) -> HeldOut:
    return hold_out([Pairs(pairs) for pairs in sources], splits or SPLITS, drop_copies=True)


def test_sets_have_the_wanted_sizes_and_no_source_text_stands_on_two_sides():
    pairs = text(0, 200)
    found = held_out(pairs)
    assert {name: len(set(some)) for name, some in found.sets.items()} == SPLITS
    texts = [src for some in found.sets.values() for src, _ in some]
    assert len(set(texts)) == 50
    assert all(src.startswith("Source") for src in texts), "copies and blanks are no tests"
    changed = [(f" {src.upper()} ", tgt) for src, tgt in pairs]
    rest = list(RemainingPairs(Pairs(pairs + changed), found.texts()))
    assert not {key_of(src) for src, _ in rest} & set(map(key_of, texts))
    assert len(rest) == 2 * (len(pairs) - 50 - found.num_further)


def test_the_choice_does_not_depend_on_order_or_on_other_sets():
    pairs = text(0, 200)
    found = held_out(pairs)
    shuffled = random.Random(1).sample(pairs, len(pairs))
    assert held_out(shuffled[:99], shuffled[99:]) == found
    assert held_out(pairs, test=30, valid=5).sets["test"] == found.sets["test"]
    assert held_out(pairs, test=30, valid=5).sets["valid"] == found.sets["valid"][:5]


def test_most_held_out_pairs_stay_when_the_text_grows():
    before, after = (held_out(text(0, n), test=100).sets["test"] for n in (1000, 1100))
    assert 80 <= len(set(before) & set(after)) < 100  # 1,000 of 1,100 texts are old: 91 expected


@pytest.mark.parametrize("splits", [{"valid": 150, "test": 60}, {"valid": 210}])
def test_too_little_text_is_an_error_that_suggests_a_size(splits):
    with pytest.raises(DataError, match=r"data\.valid.* 410 training pairs.* split to 20 or less"):
        held_out(text(0, 200), **splits)


def test_a_run_trains_without_them_and_evaluate_finds_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def train_with(**changes: object) -> int:
        sets = {"data__valid": {"split": 20}, "data__test": {"test": {"split": 30}}}
        return train(tiny_config(Path(), corpus_dir=Path("corpora"), **sets | changes)).step

    train_with()
    held = Path("runs/tiny/held_out")
    num_lines = {path.name: path.read_text().count("\n") for path in held.glob("*.tgt")}
    num_lines |= {path.name: path.read_text().count("\n") for path in held.glob("*.src")}
    assert num_lines == {"valid.src": 20, "valid.tgt": 20, "test.src": 30, "test.tgt": 30}
    (lengths,) = Path("corpora").glob("*/lengths")
    assert len(Corpus.open(lengths.parent)) <= 250
    evaluation = tmt("evaluate", "--bleu", "--output", "hyp")
    assert evaluation.stdout.startswith("test: BLEU = "), evaluation.stderr
    assert Path("hyp").read_text().count("\n") == 30
    assert tmt("verify", "runs/tiny").exit_code == 0
    assert tmt("compare", "runs/tiny").exit_code == 0
    with pytest.raises(ConfigError, match=r"data\.test\.more: the run .* holds out 0 pairs"):
        train_with(data__test={"test": {"split": 30}, "more": {"split": 1}})
    assert train_with(training__max_steps=8) == 8
    (held / "test.src").unlink()
    assert "put it back next to the model" in tmt("evaluate").stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data.test={'../x': {split: 3}}", "data.test.../x: is also the name of files"),
        ("data.test={valid: {split: 3}}", "data.test.valid: is also the name of files"),
        ("data.document={context_sentences: 1}", "data.valid: split takes single pairs"),
        ("data.valid={split: train}", "data.valid.split: must be a valid integer, got 'train'"),
        ("data.valid.type=hub", "data.valid.path: missing"),
        ("data.train.0={split: 3}", "data.train.0.type: missing"),
    ],
)
def test_splits_that_cannot_be_are_named(change, message):
    text = """
name: x
data:
  {src_lang: en, tgt_lang: de, train: [{type: text, src: a, tgt: b}], valid: {split: 9}}
tokenizer: {user_symbols: [<sep>]}
training: {max_tokens: 9, max_steps: 1, lr: 1, schedule: {type: constant}}
"""
    assert parse_config(text, "x.yaml", ["data.valid.split=7"]).data.splits() == {"valid": 7}
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "x.yaml", [change])
    assert message in str(caught.value)


def test_missing_validation_text_is_answered_with_split():
    with pytest.raises(ConfigError, match=r"data\.valid: missing: .*\{split: 1000\}`"):
        parse_config("data: {src_lang: en, tgt_lang: de, train: []}", "x.yaml")
