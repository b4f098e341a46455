import copy
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_mt.config.data import ReverseSource, TextSource
from transformer_mt.config.json_schema import config_schema
from transformer_mt.config.loading import (
    config_differences,
    dump_config,
    find_config,
    load_config,
    load_recorded,
    parse_config,
)
from transformer_mt.config.model import LearnedPositions
from transformer_mt.config.reader import plain, read_yaml
from transformer_mt.config.schema import Config
from transformer_mt.config.training import LinearSchedule, NoamSchedule
from transformer_mt.errors import ConfigError

ROOT = Path(__file__).parents[3]
GOOD = """\
name: good
data:
  src_lang: no
  tgt_lang: en
  train:
    - {type: text, src: train.no, tgt: train.en}
    - type: reverse
      num_pairs: 10
  valid: {type: text, src: valid.no, tgt: valid.en}
training:
  max_steps: 100
"""


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


def test_defaults_are_the_base_model_of_the_paper() -> None:
    config = parse_config(GOOD, "x.yaml")
    model, training = config.model, config.training
    assert (model.num_encoder_layers, model.num_decoder_layers) == (6, 6)
    assert (model.d_model, model.d_ff, model.num_heads, model.dropout) == (512, 2048, 8, 0.1)
    assert (model.norm, model.tie_embeddings, model.activation) == ("post", "all", "relu")
    assert (training.schedule.type, training.schedule.warmup_steps) == ("noam", 4000)
    adam = training.optimizer
    assert (adam.beta1, adam.beta2, adam.eps) == (0.9, 0.98, 1e-9)
    assert training.label_smoothing == 0.1
    assert (config.decoding.beam_size, config.decoding.length_penalty) == (4, 0.6)
    assert (config.decoding.max_length_factor, config.decoding.max_length_offset) == (1, 50)


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        (
            "  max_steps: 100",
            "  max_steps: 100\n  schedule: {type: noam, warmup_steps: '4000'}",
            "12:40: training.schedule.warmup_steps: expected an integer, got '4000'",
        ),
        ("100", "1e2", "11:14: training.max_steps: expected an integer, got 1e2; write 100"),
        ("100", "1_000", "11:14: training.max_steps: expected an integer, got '1_000'"),
        ("100", "1.5", "11:14: training.max_steps: expected an integer, got 1.5"),
        ("100", "true", "11:14: training.max_steps: expected an integer, got true"),
        ("100", "[1]", "11:14: training.max_steps: expected an integer, got a list"),
        ("100", "0", "11:14: training.max_steps: expected a number more than 0, got 0"),
        (
            "max_steps: 100",
            "max_minutes: .inf",
            "11:16: training.max_minutes: expected a finite number, got .inf",
        ),
        (
            "max_steps: 100",
            "max_minutes: 1 h",
            "11:16: training.max_minutes: expected a number, got '1 h'",
        ),
        (
            "max_steps: 100",
            "max_minutes: no",
            "11:16: training.max_minutes: expected a number, got 'no'",
        ),
        (
            "  max_steps: 100",
            "  max_steps: 1\n  label_smoothing: 1",
            "12:20: training.label_smoothing: expected a number less than 1, got 1",
        ),
        (
            "  max_steps: 100",
            "  max_steps: 1\n  tensorboard: yes",
            "12:16: training.tensorboard: expected true or false, got 'yes'",
        ),
        (
            "name: good",
            "name: 2016",
            "1:7: name: expected text, got 2016; in quotes it is text: '2016'",
        ),
        ("name: good", "name:", "1:6: name: expected text, got nothing"),
        (
            "name: good",
            "name: ../good",
            "1:7: name: is also the name of a folder: letters, digits, '.', '_' and '-' are "
            "allowed, and the first is a letter or a digit; got '../good'",
        ),
        ("name: good", "seed: 3", "1:1: name: missing; expected text"),
        ("name: good", "name: good\nsede: 3", "2:1: sede: unknown setting; did you mean 'seed'?"),
        (
            "  max_steps: 100",
            "  max_steps: 100\n  zzz: 1\ndecoding: {qqq: 1}",
            "13:12: decoding.qqq: unknown setting; known here: beam_size, length_penalty, "
            "length_penalty_kind, max_length_factor, max_length_offset, batch_tokens",
        ),
        (
            "name: good",
            "name: good\noutput_dir: here",
            "2:1: output_dir: no such setting: a run is written to the folder "
            "training.runs_dir/name; set name",
        ),
        (
            "num_pairs: 10",
            "num_pairs: 10\n      qqq: 1",
            "9:7: data.train.1.qqq: unknown setting; known here: type, num_pairs, min_length, "
            "max_length, seed, weight",
        ),
        (
            "type: reverse",
            "type: revers",
            "7:13: data.train.1.type: expected one of text, tsv, csv, jsonl, parquet, hub, "
            "reverse, got 'revers'; did you mean 'reverse'?",
        ),
        (
            "type: reverse\n      ",
            "",
            "7:7: data.train.1.type: missing; expected one of text, tsv, csv, jsonl, parquet, hub, "
            "reverse",
        ),
        ("      num_pairs: 10\n", "", "7:7: data.train.1.num_pairs: missing; expected an integer"),
        ("  tgt_lang: en\n", "", "2:1: data.tgt_lang: missing; expected text"),
        (
            "training:\n  max_steps: 100\n",
            "model: {norm: pots}\n",
            "10:15: model.norm: expected one of post, pre, got 'pots'; did you mean 'post'?",
        ),
        (
            "  max_steps: 100",
            "  max_steps: 1\n  lr: 1e-3\n  schedule: linear",
            "13:13: training.schedule: expected a group of settings with `type:`, one of noam, "
            "inverse_sqrt, linear, cosine, constant, wsd, got 'linear'; write {type: linear}",
        ),
        (
            "  max_steps: 100",
            "  max_steps: 1\n  validation: 5",
            "12:15: training.validation: expected a group of settings, got 5; known here: "
            "every_steps, min_validations, metrics, beam_size, select_by, patience, num_samples",
        ),
        (
            "  max_steps: 100",
            "  max_steps: 1\n  validation: {metrics: bleu}",
            "12:25: training.validation.metrics: expected a list, got 'bleu'",
        ),
        (
            "  max_steps: 100",
            "  max_steps: 1\n  validation: {metrics: [bleu, chfr]}",
            "12:32: training.validation.metrics.1: expected one of bleu, chrf, ter, got 'chfr'; "
            "did you mean 'chrf'?",
        ),
        ("name: good", "name: good\nname: better", "2:1: 'name' is given twice (first in line 1)"),
        # settings that contradict each other
        (
            "  max_steps: 100",
            "  lr: 1e-3",
            "11:7: training.lr: has no effect with schedule noam, which follows the paper's "
            "formula: set schedule.scale, or take schedule inverse_sqrt",
        ),
        (
            "  max_steps: 100",
            "  log_every_steps: 100",
            "10:1: training: set at least one of max_steps, max_epochs, max_total_tokens, "
            "max_minutes",
        ),
        (
            "  max_steps: 100",
            "  max_steps: 1\n  schedule: {type: wsd}",
            "10:1: training.lr: missing: schedule wsd needs its peak learning rate",
        ),
        (
            "  max_steps: 100",
            "  max_steps: 1\n  max_tokens: auto",
            "12:15: training.max_tokens: the size of an update decides what is learned, so it is "
            "not found by trying: set micro_batch_tokens to auto, and max_tokens to the target "
            "tokens of an update; got 'auto'",
        ),
        (
            "  max_steps: 100",
            "  max_steps: 1\n  max_tokens: 10\n  micro_batch_tokens: 11",
            "13:23: training.micro_batch_tokens: 11 is more than max_tokens 10, the whole update",
        ),
        (
            "  max_steps: 100",
            "  max_steps: 1\n  weights: bf16",
            "12:12: training.weights: bf16 goes with precision bf16, not with fp32: set both",
        ),
        (
            "  max_steps: 100",
            "  max_steps: 1\n  validation:\n    metrics: []",
            "12:3: training.validation.select_by: bleu is not in metrics: add it there, or set "
            "select_by to loss",
        ),
        (
            "name: good",
            "name: latest",
            "1:7: name: `latest` is the file that names the newest run; choose another name; got "
            "'latest'",
        ),
        (
            "name: good",
            "name: good\nmodel: {type: rnn}",
            "2:15: model.type: expected one of transformer, recurrent, convolutional, got 'rnn'; "
            "take type recurrent with cell rnn",
        ),
        (
            "name: good",
            "name: good\nmodel: {type: recurrent, positions: {type: learned}}",
            "2:26: model.positions: type recurrent has no such setting: remove it, or take type "
            "transformer or convolutional",
        ),
        (
            "name: good",
            "name: good\nmodel: {label_smoothing: 0.1}",
            "2:9: model.label_smoothing: unknown setting; did you mean 'training.label_smoothing'?",
        ),
        (
            "name: good",
            "name: good\ndocument: {context_sentences: 1}",
            "2:1: document: unknown setting; did you mean 'data.document'?",
        ),
        (
            "name: good",
            "name: good\nmodel: {type: recurrent, positions: {type: rotary}}",
            "2:26: model.positions: type recurrent has no such setting: remove it, or take type "
            "transformer",
        ),
        (
            "name: good",
            "name: good\nmodel: {type: recurrent, d_model: 7}",
            "2:35: model.d_model: must be even with bidirectional: true (half of it for each "
            "direction), got 7: take 8, or set bidirectional to false",
        ),
        (
            "name: good",
            "name: good\nmodel: {type: recurrent, attention: none, input_feeding: true}",
            "2:58: model.input_feeding: needs attention, whose result it feeds, but attention is "
            "none: set attention to dot, or input_feeding to false",
        ),
        (
            "name: good",
            "name: good\nmodel: {type: recurrent, residual: true}",
            "2:36: model.residual: acts from the second layer on, but num_encoder_layers and "
            "num_decoder_layers are 1: take more layers, or residual: false",
        ),
        (
            "  max_steps: 100",
            "  max_steps: 100\n  parallel: fsdp\nmodel: {type: recurrent, input_feeding: true}",
            "13:41: model.input_feeding: not with training.parallel fsdp: take ddp",
        ),
        (
            "  max_steps: 100",
            "  max_steps: 100\n  cuda_graph: true\n  precision: bf16",
            "12:15: training.cuda_graph: needs static_shape true: set it, or cuda_graph to false",
        ),
        (
            "  max_steps: 100",
            "  max_steps: 100\n  cuda_graph: true\n  precision: bf16\n  static_shape: true\n"
            "model: {attention_dropout: 0.1}",
            "12:15: training.cuda_graph: attention must know sentences by their offsets alone, but "
            "model.attention_dropout is 0.1: change it, or set cuda_graph to false",
        ),
        (
            "name: good",
            "name: good\nmodel: {type: convolutional, kernel_size: 4}",
            "2:43: model.kernel_size: must be odd, as a token of the encoder sees as many on its "
            "left as on its right; got 4: take 3 or 5",
        ),
        (
            "name: good",
            "name: good\nmodel: {type: convolutional, positions: {type: rotary}}",
            "2:48: model.positions.type: expected one of learned, got 'rotary', which goes with "
            "model.type transformer",
        ),
        (
            "name: good",
            "name: good\nmodel: {type: convolutional, positions: rotary}",
            "2:41: model.positions: expected a group of settings with `type:`, one of learned, got "
            "'rotary', which goes with model.type transformer",
        ),
        (
            "name: good",
            "name: good\nmodel: {type: recurrent, init: vaswani2017}",
            "2:32: model.init: expected one of saxe2014, bahdanau2015, luong2015, got "
            "'vaswani2017', which goes with model.type transformer",
        ),
        (
            "name: good",
            "name: good\nmodel: {num_heads: 7}",
            "2:20: model.num_heads: 7 heads do not divide d_model 512: take 8, or set head_dim",
        ),
        (
            "name: good",
            "name: good\ntokenizer: {joint: false}",
            "1:1: model.tie_embeddings: 'all' needs one vocabulary for both languages: set "
            "tokenizer.joint to true, or tie_embeddings to target or none",
        ),
        (
            "name: good",
            "name: good\nmodel:\n  positions: {type: learned, max_length: 100}",
            "3:42: model.positions.max_length: 100 is less than data.filters.max_length 256: take "
            "256, or filters.max_length 100",
        ),
        (
            "name: good",
            "name: good\nmodel:\n  positions: {type: rope}",
            "3:21: model.positions.type: expected one of sinusoidal, learned, rotary, relative, "
            "relative_bias, alibi, none, got 'rope'; take rotary",
        ),
        (
            "name: good",
            "name: good\nmodel:\n  positions: {type: Sin}",
            "3:21: model.positions.type: expected one of sinusoidal, learned, rotary, relative, "
            "relative_bias, alibi, none, got 'Sin'; did you mean 'sinusoidal'?",
        ),
        (
            "name: good",
            "name: good\nmodel: {type: recurrent, cell: LSTM}",
            "2:32: model.cell: expected one of rnn, lstm, gru, got 'LSTM'; did you mean 'lstm'?",
        ),
        (
            "name: good",
            "name: good\nmodel: {type: recurrent, attention: bahdanau}",
            "2:37: model.attention: expected one of none, dot, scaled_dot, general, additive, got "
            "'bahdanau'; take type recurrent, attention additive",
        ),
        (
            "name: good",
            "name: good\nmodel:\n  positions: {type: relative_bias, num_buckets: 6}",
            "3:49: model.positions.num_buckets: must be a multiple of 4, got 6: take 8",
        ),
        (
            "name: good",
            "name: good\nmodel:\n  positions: {type: relative_bias, max_distance: 8}",
            "3:50: model.positions.max_distance: must be more than half of num_buckets 32, got 8: "
            "take 17, or fewer buckets",
        ),
        (
            "name: good",
            "name: good\nmodel: {d_model: 33, num_heads: 3}",
            "2:18: model.d_model: must be even with positions sinusoidal (half sines, half "
            "cosines), got 33: take 34, or other positions",
        ),
    ],
)
def test_a_mistake_is_said_in_plain_words_with_its_place(old: str, new: str, mistake: str) -> None:
    assert f"x.yaml:{mistake}" in mistakes(replaced(old, new))


def test_tilde_is_the_home_folder_in_every_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    overrides = [
        "data.train=[{type: text, src: ~/a.en, tgt: ~/a.de}, {type: tsv, path: ~/b}]",
        "data.test={news: {type: text, src: ~/c.en, tgt: ~/c.de, more_references: [~/d.de]}}",
        "data.corpus_dir=~/corpora",
        "training.runs_dir=~/runs",
        "tokenizer.path=~/tokenizer",
    ]
    text = dump_config(parse_config(GOOD, "x.yaml", overrides))
    assert "~" not in text
    assert text.count("/home/me/") == 9


def test_several_references_are_for_test_sets() -> None:
    train = "data.train=[{type: text, src: a, tgt: b, more_references: [c]}]"
    (mistake,) = mistakes(GOOD, train)
    assert mistake.endswith("]: more_references are for test sets: leave them out here")


def test_temperature_excludes_weights() -> None:
    text = replaced("num_pairs: 10", "num_pairs: 10\n      weight: 2").replace(
        "  valid:", "  temperature: 5\n  valid:"
    )
    assert mistakes(text) == [
        "x.yaml:10:16: data.temperature: excludes weights of training sources: set only one of "
        "the two"
    ]


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file() -> None:
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
    assert mistakes(text) == ["x.yaml:9:10: data.test.hub.split: missing; expected text"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty; a config needs name, data and training"),
        (b"# nothing\n---\n", "the file is empty"),
        (b"- a\n", ":1:1: expected settings such as `name: my_run`, got a list"),
        (b"just text\n", ":1:1: expected settings such as `name: my_run`, got a single value"),
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


def test_an_override_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--set training.max_steps= ?: no value after '='"):
        parse_config(GOOD, "x.yaml", ["training.max_steps= "])


@pytest.mark.parametrize("value", ["1\n2", "1\r2", "1\x1b[2J", "1\u20282"])
def test_a_mistake_is_one_visible_line_whatever_was_typed(value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(GOOD, "x.yaml", [f"training.lr={value}"])
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("code", ["de", "zh-CN", "jpn_Jpan", "ca@valencia", "stigid"])
def test_language_codes_pass(code: str) -> None:
    assert parse_config(GOOD, "x.yaml", [f"data.tgt_lang={code}"]).data.tgt_lang == code


@pytest.mark.parametrize("code", ["''", "German (Austria)", "de/at", "d%", "de-", "deutschland"])
def test_what_is_no_language_code_is_refused(code: str) -> None:
    with pytest.raises(ConfigError, match="expected a language code such as de"):
        parse_config(GOOD, "x.yaml", [f"data.tgt_lang={code}"])


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
        ("training.lr=x", "expected a number, got 'x'"),
        ("training.lrr=1", "unknown setting; did you mean 'lr'?"),
        ("trianing.lr=1", "trianing: unknown setting; did you mean 'training'?"),
        ("training.name=x", "unknown setting; did you mean 'name'?"),
        ("warmup_steps=1", "unknown setting; did you mean 'training.schedule.warmup_steps'?"),
        (
            "beam=4",
            "unknown setting; did you mean 'training.validation.beam_size' or "
            "'decoding.beam_size'?",
        ),
        ("model.lable_smoothing=0", "unknown setting; did you mean 'training.label_smoothing'?"),
        ("max=1", "unknown setting; known here: name, seed, data"),
        ("batch_size=64", "no such setting: updates are counted in target tokens; set training."),
        ("training.lr", "expected PATH=VALUE, such as training.lr=1e-3"),
        ("=5", "expected PATH=VALUE, such as training.lr=1e-3"),
        ("training..lr=5", "expected PATH=VALUE, such as training.lr=1e-3"),
        ("training.max_steps.x=5", "training.max_steps is not a group of settings"),
        ("data.train.5.weight=2", "data.train has 2 item(s), counted from 0"),
        ("data.train.x=2", "data.train has 2 item(s), counted from 0"),
        ("data.train.-1.weight=2", "data.train has 2 item(s), counted from 0"),
        ("data.train.1.num_pairs=[1", "not readable as YAML: while parsing a flow sequence, "),
        ("data.valid={type: text, src: a}", "data.valid.tgt: missing; expected text"),
        ("data.test.a.path=x", "data.test.a.type: missing; expected one of text, tsv"),
        ("seed=99999999999999999999", "an integer beyond 64 bits"),
        ("name=\udcff", "text with a NUL or half of a surrogate pair cannot be used"),
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
    assert message.startswith("mine_tyni.yaml: no such config file here or in configs")
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


@settings(deadline=None, max_examples=50)
@given(configs())
def test_a_written_config_reads_back_equal(config: Config) -> None:
    text = dump_config(config)
    assert parse_config(text, "x.yaml") == config
    assert config_differences(config, parse_config(text, "x.yaml")) == []


@settings(deadline=None, max_examples=20)
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
        "training.clip_norm: null -> 1.0",
        "training.max_steps: 100 -> 200",
        "tokenizer.user_symbols.0: (not there) -> <2de>",
        "model.positions.max_length: (not there) -> 1024",
    ]
    assert config_differences(old, old) == []


# --- the schema for editors -----------------------------------------------------------------------


def test_the_json_schema_accepts_what_the_reader_accepts() -> None:
    schema = config_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    config = parse_config(GOOD, "x.yaml")
    assert list(validator.iter_errors(yaml.safe_load(dump_config(config)))) == []
    json.dumps(schema)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("100", "x"),
        ("100", "0"),
        ("type: reverse\n      ", ""),
        ("type: text, src: valid.no", "src: valid.no"),
        ("name: good", "name: a b"),
        ("name: good", "name: good\nsede: 1"),
        ("num_pairs: 10", "qqq: 10"),
    ],
)
def test_the_json_schema_refuses_what_the_reader_refuses(old: str, new: str) -> None:
    text = replaced(old, new)
    mistakes(text)
    validator = jsonschema.Draft202012Validator(config_schema())
    assert list(validator.iter_errors(yaml.safe_load(text.replace("_lang: no", "_lang: 'no'"))))


def test_every_setting_has_a_description() -> None:
    schema = config_schema()
    for group in [schema, *schema["$defs"].values()]:
        assert group["description"]
        for name, field in group["properties"].items():
            assert name == "type" or {"description", "$ref"} & set(field), (
                f"{group['title']}.{name}"
            )


def test_the_published_schema_is_current() -> None:
    path = ROOT / "docs" / "config.schema.json"
    published = json.loads(path.read_text(encoding="utf-8"))
    assert published == config_schema(), "run: tmt config schema > docs/config.schema.json"


def test_the_json_schema_accepts_the_recipes() -> None:
    validator = jsonschema.Draft202012Validator(config_schema())
    recipes = sorted((ROOT / "configs").glob("*.yaml"))
    assert len(recipes) >= 10
    for recipe in recipes:
        node, _ = read_yaml(recipe.read_text(encoding="utf-8"), recipe.name)
        assert list(validator.iter_errors(plain(node))) == [], recipe.name


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


@settings(deadline=None, max_examples=100)
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


@settings(deadline=None, max_examples=100)
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
