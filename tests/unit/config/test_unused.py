import pytest

from transformer_mt.config.dumping import dump_config
from transformer_mt.config.loading import parse_config
from transformer_mt.config.unused import unused_settings

GOOD = """\
name: good
data:
  src_lang: de
  tgt_lang: en
  train: [{type: reverse, num_pairs: 10}]
  valid: {type: reverse, num_pairs: 10}
training: {max_steps: 10000}
"""


def test_a_plain_config_has_no_unused_settings() -> None:
    assert unused_settings(parse_config(GOOD, "x.yaml")) == []


@pytest.mark.parametrize(
    ("overrides", "beginnings"),
    [
        (["data.temperature=5"], ["data.temperature has no effect"]),
        (["data.valid.weight=5"], ["data.valid.weight has no effect"]),
        (
            ["data.test={a: {type: reverse, num_pairs: 1, weight: 2}}"],
            ["data.test.a.weight has no effect"],
        ),
        (["tokenizer.path=x"], []),
        (
            ["tokenizer.path=x", "tokenizer.vocab_size=5", "tokenizer.byte_fallback=false"],
            ["tokenizer.vocab_size has no effect", "tokenizer.byte_fallback has no effect"],
        ),
        (["tokenizer.path=x", "tokenizer.sampling=0.1"], []),
        (
            ["training.max_steps=3999"],
            ["training.schedule.warmup_steps 4000 is more than training.max_steps 3999"],
        ),
        (["training.checkpoints.keep_last=1"], ["training.checkpoints.average has no effect"]),
        (["training.checkpoints.average=best"], ["training.checkpoints.average has no effect"]),
        (["training.checkpoints={average: best, keep_best: 2}"], []),
        (["training.checkpoints={average: none, keep_last: 1}"], []),
        (["training.validation={metrics: [], select_by: loss}"], []),
        (["model.encoder_pattern={type: local, window: 9}"], []),
        (
            [
                "model.encoder_pattern={type: local, window: 9}",
                "model.decoder_pattern={type: fixed, stride: 9}",
                "model.positions={type: alibi}",
            ],
            [
                "model.encoder_pattern local saves no time and no memory with model.positions "
                "alibi",
                "model.decoder_pattern fixed saves no time",
            ],
        ),
        (["model.positions={type: relative, max_distance: 255}"], []),
        (
            ["model.positions={type: relative, max_distance: 256}"],
            ["model.positions.max_distance 256 is more than the distance of any two"],
        ),
        (["model.positions={type: relative_bias}", "data.filters.max_length=100"], []),
        (["model={type: recurrent}", "training.activation_checkpointing=layers"], []),
        (
            [
                "model={type: recurrent, input_feeding: true}",
                "training.activation_checkpointing=layers",
            ],
            ["training.activation_checkpointing layers acts on the encoder alone"],
        ),
        (["decoding={beam_size: 1}"], []),
        (["decoding={length_penalty: 0}"], []),
        (
            ["decoding={length_penalty: 0, length_penalty_kind: reward}"],
            ["decoding.length_penalty_kind has no effect: length_penalty is 0"],
        ),
        (
            ["decoding={beam_size: 1, length_penalty: 0, length_penalty_kind: reward}"],
            [
                "decoding.length_penalty has no effect: beam_size 1",
                "decoding.length_penalty_kind has no effect: beam_size 1",
            ],
        ),
        (
            ["training.validation={metrics: [], select_by: loss, beam_size: 1, num_samples: 9}"],
            [
                "training.validation.beam_size has no effect",
                "training.validation.num_samples has no effect",
            ],
        ),
    ],
)
def test_settings_without_effect_are_found(overrides: list[str], beginnings: list[str]) -> None:
    config = parse_config(GOOD, "x.yaml", overrides)
    found = unused_settings(config)
    assert len(found) == len(beginnings)
    for line, beginning in zip(found, beginnings, strict=True):
        assert line.startswith(beginning)
    # A config that was written with all its defaults says the same.
    assert unused_settings(parse_config(dump_config(config), "x.yaml")) == found
