"""Parameters, operations and memory of models, against formulas and a pass that is watched."""

import pytest
import torch
from pydantic import TypeAdapter

from tests.saved import saved_bytes
from transformer_mt.config.families import ModelSettings
from transformer_mt.config.model import TransformerSettings
from transformer_mt.models.build import build_model
from transformer_mt.models.costs import TokenCosts, count_costs, count_parameters
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.packing import Segments

SMALL = {
    "d_model": 32,
    "d_ff": 64,
    "num_heads": 4,
    "num_encoder_layers": 2,
    "num_decoder_layers": 3,
}
CONVOLUTIONAL = {
    "type": "convolutional",
    "d_model": 32,
    "num_encoder_layers": 2,
    "num_decoder_layers": 3,
}
RECURRENT = {"type": "recurrent", "d_model": 32, "num_encoder_layers": 2, "num_decoder_layers": 3}
STRIDED = {"type": "strided", "stride": 16}


def settings_of(values: dict) -> ModelSettings:
    given = values if "type" in values else SMALL | values
    return TypeAdapter(ModelSettings).validate_python(given)


def on_meta(settings: ModelSettings, vocab_size: int = 100) -> Seq2Seq:
    with torch.device("meta"):
        return build_model(settings, src_vocab_size=vocab_size, tgt_vocab_size=vocab_size)


def costs(values: dict, length: int) -> TokenCosts:
    return count_costs(on_meta(settings_of(values)), length=length)


def test_parameters_of_base_by_part() -> None:
    d, ff = 512, 2048
    attention, feed_forward = 4 * (d * d + d), 2 * d * ff + ff + d
    assert count_parameters(on_meta(TransformerSettings(), 37_000)) == {
        "encoder.embedding = decoder.embedding = decoder.output": 37_000 * d,
        "encoder.self_attention": 6 * attention,
        "encoder.norms": 6 * 2 * 2 * d,
        "encoder.feed_forward": 6 * feed_forward,
        "decoder.self_attention": 6 * attention,
        "decoder.cross_attention": 6 * attention,
        "decoder.norms": 6 * 3 * 2 * d,
        "decoder.feed_forward": 6 * feed_forward,
    }


def test_parameters_are_those_of_table_3_with_a_vocabulary_of_41000() -> None:
    """Vaswani et al. 2017, Table 3, in millions; 5.1 speaks of about 37,000 pieces."""
    published = {
        65: {},
        58: {"key_dim": 16},
        60: {"key_dim": 32},
        36: {"num_encoder_layers": 2, "num_decoder_layers": 2},
        50: {"num_encoder_layers": 4, "num_decoder_layers": 4},
        80: {"num_encoder_layers": 8, "num_decoder_layers": 8},
        28: {"d_model": 256, "head_dim": 32},
        168: {"d_model": 1024, "head_dim": 128},
        53: {"d_ff": 1024},
        90: {"d_ff": 4096},
    }
    for millions, changes in published.items():
        counts = count_parameters(on_meta(TransformerSettings(**changes), 41_000))
        assert sum(counts.values()) / 1e6 == pytest.approx(millions, abs=0.6), changes


@pytest.mark.parametrize("tied", ["all", "target", "none"])
def test_each_parameter_is_counted_once(tied: str) -> None:
    model = on_meta(
        settings_of({"tie_embeddings": tied, "norm": "pre", "positions": {"type": "learned"}})
    )
    counts = count_parameters(model)
    assert sum(counts.values()) == sum(parameter.numel() for parameter in model.parameters())
    assert counts["encoder.norms"] == (2 * 2 + 1) * 2 * 32
    shared = {
        "all": "encoder.embedding = decoder.embedding = decoder.output",
        "target": "decoder.embedding = decoder.output",
        "none": "decoder.output",
    }
    assert counts[shared[tied]] == 100 * 32


def test_operations_of_base_are_three_times_two_for_each_weight() -> None:
    d, ff, vocab_size = 512, 2048, 37_000
    found = count_costs(on_meta(TransformerSettings(), vocab_size), length=28)
    assert found.source == 6 * (6 * (4 * d * d + 2 * d * ff) + 6 * 2 * d * d)
    assert found.target == 6 * (6 * (4 + 2) * d * d + 6 * 2 * d * ff + vocab_size * d)
    assert found.source_attention == 6 * 6 * 2 * d * 28
    assert found.target_attention == 6 * 6 * 2 * d * 28 * 2  # masked scores included


def test_shared_keys_count_once_and_heads_may_have_any_size() -> None:
    d, ff = 32, 64
    found = costs({"head_dim": 10, "num_kv_heads": 2}, length=10)
    query_and_output, keys_and_values = 2 * d * 40, 2 * d * 20
    attention, feed_forward = query_and_output + keys_and_values, 2 * d * ff
    assert found.source == 6 * (2 * (attention + feed_forward) + 3 * keys_and_values)
    assert found.target == 6 * (3 * (attention + query_and_output + feed_forward) + 100 * d)
    assert found.source_attention == 6 * 2 * 2 * 40 * 10


def test_a_pattern_saves_operations_and_memory_in_long_sentences() -> None:
    full, strided = costs({}, 512), costs({"encoder_pattern": STRIDED}, 512)
    assert strided.source_attention < full.source_attention / 2
    assert strided.activations < full.activations
    assert costs({"encoder_pattern": STRIDED}, 16).source_attention == (
        costs({}, 16).source_attention
    )


def test_a_shared_layer_has_its_parameters_once_and_its_operations_each_time() -> None:
    alone, shared = (on_meta(settings_of({"share_layers": shared})) for shared in (False, True))
    parameters = [count_parameters(model) for model in (alone, shared)]
    assert parameters[0].keys() == parameters[1].keys()
    assert parameters[1]["decoder.feed_forward"] * 3 == parameters[0]["decoder.feed_forward"]
    assert count_costs(alone, length=9) == count_costs(shared, length=9)


@pytest.mark.parametrize(("cell", "num_gates"), [("rnn", 1), ("gru", 3), ("lstm", 4)])
def test_recurrent_models_have_each_gate_once_for_each_token(cell, num_gates) -> None:
    d = 32
    found = costs(RECURRENT | {"cell": cell, "attention": "dot", "bidirectional": False}, length=3)
    gates = num_gates * 2 * d * d
    assert found.source == 6 * 2 * gates
    joining = 2 * d * d
    assert found.target == 6 * (3 * gates + joining + 100 * d)
    assert (found.source_attention, found.target_attention) == (0, 6 * 3 * 2 * d)


def test_convolutions_cost_all_that_a_token_sees() -> None:
    d = 32
    found = costs(CONVOLUTIONAL | {"kernel_size": 5}, length=10)
    convolution = 5 * d * 2 * d
    assert found.source == 6 * 2 * convolution
    assert found.target == 6 * (3 * (convolution + d * d) + 100 * d)
    assert (found.source_attention, found.target_attention) == (0, 6 * 10 * 3 * 2 * d)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"norm": "pre", "activation": "swiglu", "dropout": 0.0},
        {"activation_dropout": 0.1, "positions": {"type": "rotary"}},
        {"positions": {"type": "relative"}, "head_dim": 24, "norm_type": "rms"},
        CONVOLUTIONAL,
        RECURRENT | {"cell": "gru", "attention": "additive"},
    ],
)
def test_counted_activations_are_near_what_a_pass_on_the_cpu_keeps(values: dict) -> None:
    length = 20
    model = build_model(settings_of(values), src_vocab_size=50, tgt_vocab_size=50)
    # Nearly equal, as torch has for equal ones a kernel that hides what it keeps.
    segments = Segments.of([length - 1, length, length + 1] * 10)
    tokens = torch.randint(4, 50, (segments.num_tokens,))
    measured = saved_bytes(model, tokens, segments, tokens, segments)
    found = costs(values, length).activations * segments.num_tokens
    assert found == pytest.approx(measured, rel=0.25 if values is CONVOLUTIONAL else 0.05)
