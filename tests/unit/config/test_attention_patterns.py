import pytest
import torch
from pydantic import TypeAdapter

from transformer_mt.config.loading import parse_config
from transformer_mt.config.patterns import Pattern
from transformer_mt.errors import ConfigError
from transformer_mt.models.build import build_model, build_pattern
from transformer_mt.nn.patterns import fixed, local, strided

GOOD = """\
name: good
data:
  src_lang: en
  tgt_lang: de
  train: [{type: reverse, num_pairs: 10}]
  valid: {type: reverse, num_pairs: 10}
training:
  max_steps: 100
model:
  d_model: 8
  d_ff: 8
  num_encoder_layers: 1
  num_decoder_layers: 1
"""


@pytest.mark.parametrize(
    ("setting", "pattern"),
    [
        ("{type: full}", None),
        ("{type: local, window: 16}", local(16)),
        ("{type: strided, stride: 16}", strided(16, heads="merged")),
        ("{type: strided, stride: 16, heads: split}", strided(16, heads="split")),
        ("{type: fixed, stride: 16}", fixed(16, 2, heads="merged")),
        ("{type: fixed, stride: 128}", fixed(128, 16, heads="merged")),
        ("{type: fixed, stride: 2, summary: 1}", fixed(2, 1, heads="merged")),
        ("{type: fixed, stride: 16, summary: 2, heads: split}", fixed(16, 2, heads="split")),
    ],
)
def test_each_side_gets_the_pattern_of_its_settings(setting: str, pattern: object) -> None:
    for side, other in (("encoder", "decoder"), ("decoder", "encoder")):
        config = parse_config(f"{GOOD}  {side}_pattern: {setting}\n", "x.yaml")
        model = build_model(config.model, src_vocab_size=9, tgt_vocab_size=9)
        assert getattr(model, side).pattern == pattern
        assert getattr(model, other).pattern is None


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "decoder_pattern: {type: strided, stride: 256}",
            "model.decoder_pattern.stride: 256 hides nothing in sentences of at most "
            "data.filters.max_length 256 tokens: take 16, or pattern full",
        ),
        (
            "encoder_pattern: {type: local, window: 300}",
            "model.encoder_pattern.window: 300 hides nothing in sentences of at most "
            "data.filters.max_length 256 tokens: take 16, or pattern full",
        ),
        (
            "decoder_pattern: {type: fixed, stride: 8, summary: 9}",
            "model.decoder_pattern.summary: 9 tokens of a block of stride 8 hide nothing: take at "
            "most 2, or pattern full",
        ),
        (
            "encoder_pattern: {type: fixed, stride: 8, heads: split}\n  num_heads: 1",
            "model.encoder_pattern.heads: split needs an even number of heads, but model.num_heads "
            "is 1: take 2, or heads merged",
        ),
        (
            "decoder_pattern: {type: strided, stride: 8, heads: in_turn}",
            "model.decoder_pattern.heads: in_turn needs two layers to take turns, but there is 1: "
            "take merged",
        ),
        (  # one key is at a distance of 255, and within reach
            "encoder_pattern: {type: strided, stride: 255}",
            "model.encoder_pattern.stride: 255 hides nothing in sentences of at most "
            "data.filters.max_length 256 tokens: take 16, or pattern full",
        ),
        (
            "decoder_pattern: {type: causal}",
            "model.decoder_pattern.type: must be one of full, local, strided, fixed, got 'causal'; "
            "did you mean 'full'?",
        ),
    ],
)
def test_a_pattern_that_makes_no_sense_is_one_line(setting: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"{GOOD}  {setting}\n", "x.yaml")
    assert str(caught.value).endswith(message)
    assert "\n" not in str(caught.value)


def test_a_stack_for_both_sides_is_twice_as_long() -> None:
    text = GOOD.replace("  num_encoder_layers: 1\n", "  type: decoder_only\n")
    text += "  decoder_pattern: {type: local, window: 400}\n"
    parse_config(text, "x.yaml")
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "x.yaml", ["model.decoder_pattern.window=511"])
    assert str(caught.value).endswith(
        "511 hides nothing in sentences of at most twice data.filters.max_length 256 tokens: take "
        "23, or pattern full"
    )
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "x.yaml", ["model.positions={type: learned, max_length: 256}"])
    assert str(caught.value).endswith(
        "256 is less than twice data.filters.max_length 256: take 512, or filters.max_length 128"
    )


def test_layers_with_a_pattern_are_not_compiled() -> None:
    pattern = "  encoder_pattern: {type: local, window: 8}\n"
    with pytest.raises(ConfigError) as caught:
        parse_config(GOOD + pattern, "x.yaml", ["training.compile=layers"])
    assert str(caught.value).endswith(
        "layers does not go with model.encoder_pattern local: take auto or none"
    )


@pytest.mark.parametrize("type", ["local", "strided", "fixed"])
def test_the_greatest_size_that_is_allowed_hides_something(type: str) -> None:
    longest, name = 9, "window" if type == "local" else "stride"
    places = torch.arange(longest)
    for size in range(2, 20):
        setting = f"  encoder_pattern: {{type: {type}, {name}: {size}}}\n"
        limit = f"data.filters.max_length={longest}"
        try:
            config = parse_config(GOOD + setting, "x.yaml", [limit])
        except ConfigError:
            settings = TypeAdapter(Pattern).validate_python({"type": type, name: size})
            hides_nothing = True
        else:
            settings, hides_nothing = config.model.encoder_pattern, False
        pattern = build_pattern(settings)
        assert bool(pattern.seen(places, places, num_heads=1).all()) == hides_nothing
