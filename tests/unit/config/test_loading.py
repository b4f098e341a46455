import copy
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.config.good_config import GOOD
from transformer_mt.config.dumping import config_differences, dump_config
from transformer_mt.config.loading import (
    RECIPES,
    find_config,
    load_config,
    load_recorded,
    parse_config,
)
from transformer_mt.config.model import LearnedPositions
from transformer_mt.config.schema import Config
from transformer_mt.config.sources import ReverseSource, TextSource
from transformer_mt.config.training import LinearSchedule, NoamSchedule
from transformer_mt.errors import ConfigError


def lines_of(error: pytest.ExceptionInfo[ConfigError]) -> list[str]:
    lines = str(error.value).split("\n")
    return lines[1:] if len(lines) > 1 else lines


def mistakes(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "x.yaml", overrides)
    return lines_of(caught)


def replaced(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


def test_a_good_file_gives_a_config() -> None:
    config = parse_config(GOOD, "x.yaml")
    assert config.data.src_lang == "no"
    assert config.data.train[0] == TextSource(src="train.no", tgt="train.en")
    assert config.data.train[1] == ReverseSource(type="reverse", num_pairs=10)
    assert config.training.schedule == NoamSchedule(type="noam")


MISTAKES = {
    "{max_steps: 1e2}": "10:23: training.max_steps: must be a valid integer, got 1e2; write 100",
    "{max_steps: '4000'}": "10:23: training.max_steps: must be a valid integer, got '4000'",
    "{max_steps: [1]}": "10:23: training.max_steps: must be a valid integer, got a list",
    "{max_steps: 0}": "10:23: training.max_steps: must be greater than 0, got 0",
    "{max_minutes: .inf}": "10:25: training.max_minutes: must be a finite number, got .inf",
    "{micro_batch_tokens: x}": (
        "10:32: training.micro_batch_tokens: must be a valid integer or auto, got 'x'"
    ),
    "{tensorboard: yes}": "10:25: training.tensorboard: must be a valid boolean, got 'yes'",
    "{runs_dir: 7}": (
        "10:22: training.runs_dir: must be a valid string, got 7; in quotes it is text: '7'"
    ),
    "{runs_dir: }": "10:21: training.runs_dir: must be a valid string, got nothing",
    "{precision: fp-16}": (
        "10:23: training.precision: must be one of auto, fp32, bf16, fp16, got 'fp-16'; did you "
        "mean 'fp16'?"
    ),
    "{validation: 5}": (
        "10:24: training.validation: must be a group of settings (every_steps, min_validations, "
        "metrics, beam_size, select_by, max_guard_drop, patience, num_samples), got 5"
    ),
    "{validation: {metrics: bleu}}": (
        "10:34: training.validation.metrics: must be a valid list, got 'bleu'"
    ),
    "{schedule: linear}": (
        "10:22: training.schedule: must be a group of settings: write {type: linear}, got 'linear'"
    ),
    "{schedule: {}}": (
        "10:12: training.schedule.type: missing: one of noam, inverse_sqrt, linear, cosine, "
        "constant, wsd"
    ),
    "{schedule: {type: Linear}}": (
        "10:29: training.schedule.type: must be one of noam, inverse_sqrt, linear, cosine, "
        "constant, wsd, got 'Linear'; did you mean 'linear'?"
    ),
    "{max_step: 5}": "10:12: training.max_step: unknown setting; did you mean 'max_steps'?",
    "{batch_size: 5}": (
        "10:12: training.batch_size: unknown setting; did you mean 'training.max_tokens'?"
    ),
    "{num_heads: 5}": (
        "10:12: training.num_heads: unknown setting; did you mean 'model.num_heads'?"
    ),
    "{checkpoints: {zzz: 5}}": (
        "10:26: training.checkpoints.zzz: unknown setting; known here: keep_last, keep_best, "
        "average"
    ),
    "{optimizer: {type: muon, momentum: 2}}": (
        "10:46: training.optimizer.momentum: must be less than 1, got 2"
    ),
    "{optimizer: {type: adam, momentum: 2}}": (
        "10:36: training.optimizer.momentum: type adam or adamw has no such setting: remove it, "
        "or use type muon"
    ),
}


@pytest.mark.parametrize(("written", "mistake"), MISTAKES.items())
def test_a_mistake_is_reported_with_its_place(written: str, mistake: str) -> None:
    text = replaced("training:\n  max_steps: 100\n", f"training: {written}\n")
    assert f"x.yaml:{mistake}" in mistakes(text)


def test_a_missing_setting_is_reported_with_its_meaning() -> None:
    assert mistakes(replaced("  tgt_lang: en\n", "")) == [
        "x.yaml:2:1: data.tgt_lang: missing: Code of the target language; sacreBLEU tokenizes by it"
    ]
    assert mistakes(replaced("type: reverse\n      ", "")) == [
        "x.yaml:7:7: data.train.1.type: missing: one of text, tsv, csv, jsonl, parquet, tmx, "
        "xliff, po, mo, opus, xlsx, hub, reverse, monolingual, images, rendered"
    ]


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file() -> None:
    text = GOOD.replace("good", "a b").replace("no\n", "5\n").replace("100", "x")
    with pytest.raises(ConfigError) as caught:
        parse_config(f"{text}sede: 1\nseed: 1\nseed: 2\n", "x.yaml", ["training.lr=y"])
    lines = str(caught.value).split("\n")
    assert lines[0] == "6 mistakes in the settings:"
    places = [line.split(": ")[0] for line in lines[1:]]
    assert places == [
        "x.yaml:1:7",
        "x.yaml:3:13",
        "x.yaml:11:14",
        "x.yaml:12:1",
        "x.yaml:14:1",
        "--set training.lr=y",
    ]


@pytest.mark.parametrize("key", ["adam", "type_", "adamw"])
def test_a_key_named_like_a_type_is_reported_as_itself(key: str) -> None:
    text = f"{GOOD}  optimizer: {{type: adam, {key}: 1}}\n"
    (mistake,) = mistakes(text)
    assert mistake.startswith(f"x.yaml:12:27: training.optimizer.{key}: unknown setting")


def test_a_test_set_may_be_named_like_its_type() -> None:
    text = GOOD.replace("  valid:", "  test: {hub: {type: hub, path: wmt/wmt14}}\n  valid:")
    assert mistakes(text) == ["x.yaml:9:10: data.test.hub.split: missing: Split, such as `train`"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty; a config needs name, data and training"),
        (b"# nothing\n---\n", "the file is empty"),
        (b"- a\n", ":1:1: expected settings such as `name: value`, got a list"),
        (b"just text\n", ":1:1: expected settings such as `name: value`, got a single value"),
        (b"name: x\nseed: \xff\n", ":2: byte 7 of the line is not UTF-8"),
        (b"a: [\n", ":2:1: "),
        (b"#" * 2**19, "more than 256 KiB: this is no config"),
    ],
)
def test_files_that_are_no_config_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}:")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.yaml: no such file"):
        load_config(tmp_path / "no.yaml")
    with pytest.raises(ConfigError, match="is a folder, not a config file"):
        load_config(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.touch(mode=0)
    with pytest.raises(ConfigError, match="cannot be read: permission denied"):
        load_config(path)


# --- overrides ------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["1\n2", "1\r2", "1\x1b[2J", "1\u20282"])
def test_a_mistake_is_one_visible_line_whatever_was_typed(value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(GOOD, "x.yaml", [f"training.lr={value}"])
    assert str(caught.value).isprintable()


def test_overrides_are_read_like_the_file_and_the_last_wins() -> None:
    config = parse_config(
        GOOD,
        "x.yaml",
        [
            "training.max_minutes=1e1",
            "data.tgt_lang=no",
            "data.train.1.num_pairs=7",
            "data.train.1.num_pairs=8",
            "training.validation.metrics=[chrf]",
            "training.validation.select_by=chrf",
            "decoding.beam_size=5",
            "training.max_steps=null",
            "data.test={a: {type: reverse, num_pairs: 3}}",
            "data.test.b={type: reverse, num_pairs: 4}",
        ],
    )
    assert config.training.max_minutes == 10
    assert config.data.tgt_lang == "no"
    assert config.data.train[1] == ReverseSource(type="reverse", num_pairs=8)
    assert config.training.validation.metrics == ["chrf"]
    assert config.decoding.beam_size == 5
    assert config.training.max_steps is None
    assert list(config.data.test) == ["a", "b"]


def test_an_override_can_add_an_item_to_a_list() -> None:
    config = parse_config(GOOD, "x.yaml", ["data.train.2={type: reverse, num_pairs: 3}"])
    assert config.data.train[2] == ReverseSource(type="reverse", num_pairs=3)


def test_an_override_reaches_a_group_that_the_file_leaves_out() -> None:
    config = parse_config(GOOD, "x.yaml", ["training.schedule.warmup_steps=7"])
    assert config.training.schedule == NoamSchedule(type="noam", warmup_steps=7)


def test_a_new_type_keeps_common_settings_and_drops_the_others_aloud(
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = f"{GOOD}  lr: 0.1\n  schedule: {{type: cosine, warmup_steps: 9, final_share: 0.5}}\n"
    config = parse_config(
        text, "x.yaml", ["training.schedule.type=wsd", "training.schedule.decay_share=0.3"]
    )
    assert config.training.schedule.model_dump() == {
        "type": "wsd",
        "warmup_steps": 9,
        "warmup_share": None,
        "decay_share": 0.3,
    }
    assert caplog.messages == [
        "--set training.schedule.type=wsd: dropped final_share of the file, which type wsd does "
        "not have"
    ]
    config = parse_config(text, "x.yaml", ["training.schedule.type=linear"])
    assert config.training.schedule == LinearSchedule(
        type="linear", warmup_steps=9, final_share=0.5
    )


def test_a_new_type_does_not_hide_typing_errors_of_the_file() -> None:
    text = f"{GOOD}  lr: 0.1\n  schedule: {{type: cosine, warmpu_steps: 9}}\n"
    (mistake,) = mistakes(text, "training.schedule.type=linear")
    assert mistake.startswith("x.yaml:13:28: training.schedule.warmpu_steps: unknown setting")


def test_the_default_type_can_be_changed() -> None:
    config = parse_config(
        GOOD, "x.yaml", ["model.positions.type=learned", "model.positions.max_length=300"]
    )
    assert config.model.positions == LearnedPositions(type="learned", max_length=300)


@pytest.mark.parametrize(
    ("assignment", "mistake"),
    [
        ("training.lr=x", "must be a valid number, got 'x'"),
        ("trianing.lr=1", "trianing: unknown setting; did you mean 'training'?"),
        ("warmup_steps=1", "unknown setting; did you mean 'training.schedule.warmup_steps'?"),
        (
            "model.type=lstm",
            "must be one of transformer, recurrent, convolutional, decoder_only, got 'lstm'; ",
        ),
        ("training.lr", "expected PATH=VALUE, such as training.lr=1e-3"),
        ("training..lr=5", "expected PATH=VALUE, such as training.lr=1e-3"),
        ("training.lr= ", "no value after '='"),
        ("training.max_steps.x=5", "training.max_steps is not a group of settings"),
        ("data.train.5.weight=2", "data.train has 2 item(s), counted from 0"),
        ("data.train.-1.weight=2", "data.train has 2 item(s), counted from 0"),
        ("data.train.1.num_pairs=[1", "not readable as YAML: while parsing a flow sequence, "),
        ("data.valid={type: text, src: a}", "data.valid.tgt: missing: "),
        ("data.test.a.path=x", "data.test.a.type: missing: one of text, tsv"),
        ("seed=99999999999999999999", "must be a valid integer, got 99999999999999999999"),
        ("name=\udcff", "not readable as YAML: the character U+DCFF is not allowed"),
    ],
)
def test_a_wrong_override_is_named(assignment: str, mistake: str) -> None:
    (found,) = mistakes(GOOD, assignment)
    shown = assignment.replace("\udcff", "\\udcff")
    assert found.startswith(f"--set {shown}: {mistake}")


# --- finding files --------------------------------------------------------------------------------


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.touch()
    assert find_config(str(path)) == path


def test_a_bare_name_is_looked_for_among_the_recipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "mine.yaml").touch()
    with caplog.at_level(logging.INFO, logger="transformer_mt"):
        assert find_config("mine.yaml") == Path("configs/mine.yaml")
        assert find_config("mine") == Path("configs/mine.yaml")
    assert caplog.messages == ["config: configs/mine.yaml"] * 2
    (tmp_path / "mine.yaml").touch()
    assert find_config("mine.yaml") == Path("mine.yaml")
    for name in ("base", "base.yaml", "configs/base.yaml"):  # the last is where it once was
        assert find_config(name) == RECIPES / "base.yaml"


def test_a_recipe_in_a_folder_of_its_own_is_found_by_its_name_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs" / "kind").mkdir(parents=True)
    for name in ("one", "two"):
        (tmp_path / "configs" / "kind" / f"{name}.yaml").touch()
    for name in ("kind/one", "kind/one.yaml"):
        assert find_config(name) == Path("configs/kind/one.yaml")
    with pytest.raises(ConfigError) as caught:
        find_config("two")
    assert "did you mean 'kind/two.yaml'?" in str(caught.value)
    assert str(caught.value).count("kind/") == 2  # the other one is `kind/*`


def test_a_missing_config_lists_the_recipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "mine_tiny.yaml").touch()
    with pytest.raises(ConfigError) as caught:
        find_config("mine_tyni.yaml")
    message = str(caught.value)
    assert message.startswith(
        "mine_tyni.yaml: no such config file here, in configs/ or among the recipes"
    )
    assert "did you mean 'mine_tiny.yaml'?" in message
    assert "mine_tiny.yaml" in message.partition("ecipes: ")[2]
    with pytest.raises(ConfigError, match=r"^nowhere/mine_tiny.yaml: no such config file;"):
        find_config("nowhere/mine_tiny.yaml")


# --- writing --------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
WORDS = TEXT | st.sampled_from(
    ["no", "1e-4", "0o7", "0123", "1_000", "~", "null", "12:30", "", " ", "a: b", "- a", "=", "<<"]
)


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Settings with arbitrary text and numbers."""
    config = parse_config(GOOD, "x.yaml")
    values: dict[str, Any] = copy.deepcopy(config.model_dump())
    values["data"]["train"][0]["src"] = draw(WORDS)
    values["data"]["train"][0]["weight"] = draw(st.floats(1e-300, 1e300))
    values["data"]["test"] = draw(
        st.dictionaries(
            WORDS.filter(bool), st.just({"type": "reverse", "num_pairs": 3}), max_size=3
        )
    )
    values["tokenizer"]["user_symbols"] = draw(st.lists(WORDS, max_size=3))
    values["training"]["max_steps"] = draw(st.integers(1, 2**63 - 1) | st.none())
    values["training"]["max_minutes"] = draw(st.floats(1e-9, 1e20))
    return Config.model_validate(values)


@settings(deadline=None, max_examples=25)
@given(configs())
def test_a_written_config_reads_back_equal(config: Config) -> None:
    text = dump_config(config)
    assert parse_config(text, "x.yaml") == config
    assert config_differences(config, parse_config(text, "x.yaml")) == []


@settings(deadline=None, max_examples=10)
@given(configs())
def test_other_yaml_readers_understand_a_written_config(config: Config) -> None:
    # PyYAML's own loader is YAML 1.1; a test set called "<<" would be a merge key there.
    if not {"<<", "="} & {*config.data.test, *config.tokenizer.user_symbols}:
        assert Config.model_validate(yaml.safe_load(dump_config(config))) == config


def test_differences_are_listed_field_by_field() -> None:
    old = parse_config(GOOD, "x.yaml")
    new = parse_config(
        GOOD,
        "x.yaml",
        [
            "training.max_steps=200",
            "model.positions.type=learned",
            "data.train.1.num_pairs=11",
            "training.clip_norm=1",
            "tokenizer.user_symbols=[<2de>]",
            "name=other",
        ],
    )
    assert config_differences(old, new) == [
        "name: good -> other",
        "data.train.1.num_pairs: 10 -> 11",
        "tokenizer.user_symbols: [] -> (not there)",
        "model.positions.type: sinusoidal -> learned",
        "model.positions.offset: 0 -> (not there)",
        "model.positions.endpoint: false -> (not there)",
        "training.clip_norm: null -> 1.0",
        "training.max_steps: 100 -> 200",
        "tokenizer.user_symbols.0: (not there) -> <2de>",
        "model.positions.max_length: (not there) -> 1024",
    ]
    assert config_differences(old, old) == []


# --- any input ------------------------------------------------------------------------------------


def is_config_or_error(text: str, overrides: Sequence[str] = ()) -> bool:
    """Whether reading gives a config, or an error that says where the mistakes are."""
    try:
        return isinstance(parse_config(text, "x.yaml", overrides), Config)
    except ConfigError as error:
        *_, mistake = str(error).split("\n")
        return mistake.startswith(("x.yaml", "--set"))


@settings(deadline=None)
@given(st.text(), st.lists(st.text(), max_size=2))
def test_any_text_gives_a_config_or_a_config_error(text: str, overrides: list[str]) -> None:
    assert is_config_or_error(text, overrides)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [path] * bool(path) + [p for key, item in items for p in paths(item, (*path, key))]


FULL = parse_config(GOOD, "x.yaml").model_dump()


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(paths(FULL)), VALUES)
def test_any_value_anywhere_gives_a_config_or_a_config_error(
    path: tuple[str | int, ...], value: Any
) -> None:
    changed: Any = copy.deepcopy(FULL)
    holder = changed
    for part in path[:-1]:
        holder = holder[part]
    holder[path[-1]] = value
    assert is_config_or_error(yaml.safe_dump(changed))


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(paths(FULL)), st.text(max_size=8) | VALUES.map(json.dumps))
def test_any_override_gives_a_config_or_a_config_error(
    path: tuple[str | int, ...], value: str
) -> None:
    assert is_config_or_error(GOOD, [f"{'.'.join(map(str, path))}={value}"])


def test_records_older_than_the_clean_up_of_sources_read_as_without(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(GOOD, encoding="utf-8")
    assert load_config(path).data.clean_source
    assert not load_recorded(path).data.clean_source
    path.write_text(dump_config(load_config(path)), encoding="utf-8")
    assert load_recorded(path) == load_config(path)


def test_a_setting_of_an_earlier_version_is_read_without_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limit = "  max_steps: 100"
    parsed = [
        parse_config(GOOD.replace(limit, f"{limit}\n{line}"), "a.yaml")
        for line in ("", "  cuda_graph: false", "  cuda_graph: true")
    ]
    assert parsed[0] == parsed[1] == parsed[2]
    assert caplog.messages == [
        "setting cuda_graph is gone and has no effect; instead there is training.compile"
    ]
