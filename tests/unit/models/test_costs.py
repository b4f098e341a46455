from functools import partial

import pytest
import torch
from pydantic import TypeAdapter
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tests.saved import saved_bytes
from transformer_mt.config.families import ModelSettings
from transformer_mt.config.model import TransformerSettings
from transformer_mt.models.build import build_model
from transformer_mt.models.costs import count_flops, count_parameters, estimate_memory
from transformer_mt.packing import Segments

SMALL = {
    "d_model": 32,
    "d_ff": 64,
    "num_heads": 4,
    "num_encoder_layers": 2,
    "num_decoder_layers": 3,
}


def on_paper(settings: TransformerSettings, vocab_size: int) -> nn.Module:
    with torch.device("meta"):
        return build_model(settings, src_vocab_size=vocab_size, tgt_vocab_size=vocab_size)


def test_parameters_of_base_by_part() -> None:
    d, ff = 512, 2048
    attention, feed_forward = 4 * (d * d + d), 2 * d * ff + ff + d
    assert count_parameters(on_paper(TransformerSettings(), 37_000)) == {
        "encoder.embedding = decoder.embedding = decoder.output": 37_000 * d,
        "encoder.self_attention": 6 * attention,
        "encoder.norms": 6 * 2 * 2 * d,
        "encoder.feed_forward": 6 * feed_forward,
        "decoder.self_attention": 6 * attention,
        "decoder.cross_attention": 6 * attention,
        "decoder.norms": 6 * 3 * 2 * d,
        "decoder.feed_forward": 6 * feed_forward,
    }


@pytest.mark.parametrize("tied", ["all", "target", "none"])
def test_each_parameter_is_counted_once(tied: str) -> None:
    settings = TransformerSettings(
        **SMALL, tie_embeddings=tied, norm="pre", positions={"type": "learned"}
    )
    model = on_paper(settings, 100)
    counts = count_parameters(model)
    assert sum(counts.values()) == sum(parameter.numel() for parameter in model.parameters())
    assert counts["encoder.embedding.positions"] == 1024 * 32
    assert counts["encoder.norms"] == (2 * 2 + 1) * 2 * 32
    assert len([part for part in counts if "embedding" in part or "output" in part]) == (
        2 + {"all": 1, "target": 2, "none": 3}[tied]
    )


def test_flops_of_base_are_three_times_two_for_each_weight() -> None:
    d, ff, vocab_size = 512, 2048, 37_000
    flops = count_flops(
        on_paper(TransformerSettings(), vocab_size), TransformerSettings(), length=28
    )
    assert flops.source == 6 * (6 * (4 * d * d + 2 * d * ff) + 6 * 2 * d * d)
    assert flops.target == 6 * (6 * (4 + 2) * d * d + 6 * 2 * d * ff + vocab_size * d)
    assert flops.pair / 1e6 == pytest.approx(377.9, abs=0.05)
    assert flops.source_attention == 6 * 6 * 2 * d * 28
    assert flops.target_attention == 6 * 6 * 2 * d * 28 * 1.5


def test_flops_count_shared_keys_once_and_heads_of_any_size() -> None:
    d, ff, vocab_size, length = 32, 64, 100, 10
    settings = TransformerSettings(**SMALL, head_dim=10, num_kv_heads=2)
    flops = count_flops(on_paper(settings, vocab_size), settings, length=length)
    query_and_output, keys_and_values = 2 * d * 40, 2 * d * 20
    attention, feed_forward = query_and_output + keys_and_values, 2 * d * ff
    assert flops.source == 6 * (2 * (attention + feed_forward) + 3 * keys_and_values)
    assert flops.target == 6 * (3 * (attention + query_and_output + feed_forward) + vocab_size * d)
    assert flops.source_attention == 6 * 2 * 2 * 40 * length
    assert flops.target_attention == 6 * 3 * 3 * 40 * length


LONG = {
    "local": {"type": "local", "window": 16},
    "strided": {"type": "strided", "stride": 16},
    "fixed": {"type": "fixed", "stride": 16, "summary": 2},
    "fixed-split": {"type": "fixed", "stride": 16, "summary": 2, "heads": "split"},
}


@pytest.mark.parametrize("name", LONG)
@torch.no_grad()
def test_flops_of_a_pattern_are_those_that_torch_counts(name: str) -> None:
    length, num_tokens = 256, 512
    settings = TransformerSettings(**SMALL, encoder_pattern=LONG[name], decoder_pattern=LONG[name])
    model = build_model(settings, src_vocab_size=9, tgt_vocab_size=9).eval()
    flops = count_flops(model, settings, length=length)
    # Two, as torch does not count the kernel by which a sentence is attended that is alone.
    segments = Segments.of([length, length])
    tokens = torch.randint(4, 9, (num_tokens,))
    with FlopCounterMode(display=False) as of_encoder:
        memory = model.encode(tokens, segments)
    with FlopCounterMode(display=False) as of_decoder:
        model.decoder(tokens, segments, memory)
    for counter, expected in (
        (of_encoder, flops.source_attention),
        (of_decoder, flops.target_attention),
    ):
        counts = counter.get_flop_counts()["Global"]
        found = sum(counts.get(op, 0) for op in (torch.ops.aten.bmm, torch.ops.aten.baddbmm))
        assert 3 * found == expected * num_tokens


@pytest.mark.parametrize(
    ("changes", "length"),
    [({"positions": {"type": "alibi"}}, 512), ({}, 64)],
    ids=["bias", "short"],
)
def test_a_pattern_that_is_computed_with_a_mask_costs_as_much_as_none(changes, length) -> None:
    settings = TransformerSettings(**SMALL, **changes, encoder_pattern=LONG["strided"])
    full = TransformerSettings(**SMALL, **changes)
    model = on_paper(full, 9)
    for cost in (
        partial(count_flops, length=length),
        partial(estimate_memory, num_tokens=99, length=length),
    ):
        assert cost(model, settings) == cost(model, full)


def test_a_shared_layer_has_its_parameters_once_and_its_arithmetic_each_time() -> None:
    alone, shared = (TransformerSettings(**SMALL, share_layers=shared) for shared in (False, True))
    models = [on_paper(settings, 100) for settings in (alone, shared)]
    parameters = [count_parameters(model) for model in models]
    assert parameters[0].keys() == parameters[1].keys()
    assert parameters[1]["decoder.feed_forward"] * 3 == parameters[0]["decoder.feed_forward"]
    assert count_flops(models[0], alone, length=9) == count_flops(models[1], shared, length=9)


def test_flops_of_recurrent_models_count_each_gate_once_for_each_token() -> None:
    d, vocab_size = 32, 100
    settings = TypeAdapter(ModelSettings).validate_python(
        RECURRENT | {"cell": "lstm", "attention": "additive", "bidirectional": False}
    )
    flops = count_flops(on_paper(settings, vocab_size), settings, length=10)
    gates = 4 * 2 * d * d
    assert flops.source == 6 * (2 * gates + d * d)  # and the keys
    query_and_score, joining = d * d + d, 2 * d * d
    assert flops.target == 6 * (3 * gates + query_and_score + joining + vocab_size * d)
    assert (flops.source_attention, flops.target_attention) == (0, 6 * 10 * 3 * d)


def test_flops_of_convolutions_count_all_that_a_token_sees() -> None:
    d, vocab_size = 32, 100
    settings = TypeAdapter(ModelSettings).validate_python(CONVOLUTIONAL | {"kernel_size": 5})
    flops = count_flops(on_paper(settings, vocab_size), settings, length=10)
    convolution = 5 * d * 2 * d
    assert flops.source == 6 * 2 * convolution
    assert flops.target == 6 * (3 * (convolution + d * d) + vocab_size * d)
    assert (flops.source_attention, flops.target_attention) == (0, 6 * 10 * 3 * 2 * d)


def test_ties_change_no_arithmetic() -> None:
    found = set()
    for tied in ("all", "target", "none"):
        settings = TransformerSettings(**SMALL, tie_embeddings=tied)
        found.add(count_flops(on_paper(settings, 100), settings, length=10))
    assert len(found) == 1


CONVOLUTIONAL = {
    "type": "convolutional",
    "d_model": 32,
    "num_encoder_layers": 2,
    "num_decoder_layers": 3,
}
RECURRENT = {"type": "recurrent", "d_model": 32, "num_encoder_layers": 2, "num_decoder_layers": 3}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"dropout": 0.0, "activation": "gelu"},
        {"norm": "pre", "activation": "swiglu", "embedding_dropout": 0.0},
        {"attention_dropout": 0.1, "activation_dropout": 0.1},
        {"num_kv_heads": 2},
        {"positions": {"type": "rotary"}},
        {"positions": {"type": "relative"}, "head_dim": 24},
        {"positions": {"type": "relative"}, "attention_dropout": 0.1},
        {"positions": {"type": "alibi"}, "attention_dropout": 0.1},
        {"activation": "reglu"},
        {"activation": "geglu", "norm_type": "rms"},
        {"share_layers": True},
        {"num_kv_heads": 1, "head_dim": 24, "norm": "pre"},
        CONVOLUTIONAL,
        CONVOLUTIONAL | {"kernel_size": 5, "dropout": 0.0},
        RECURRENT | {"cell": "gru", "attention": "additive"},
        RECURRENT | {"cell": "gru", "attention": "none", "dropout": 0.0},
        RECURRENT | {"cell": "rnn", "attention": "general", "bidirectional": False},
        RECURRENT | {"cell": "lstm", "attention": "dot", "residual": True},
    ],
)
def test_estimate_of_activations_is_near_what_is_kept(changes: dict) -> None:
    check_estimate(changes, num_tokens=600, length=20)


def test_estimate_of_activations_knows_that_blocks_keep_no_weights() -> None:
    patterns = {"encoder_pattern": LONG["strided"], "decoder_pattern": LONG["fixed-split"]}
    check_estimate(patterns, num_tokens=900, length=300)


def check_estimate(changes: dict, *, num_tokens: int, length: int) -> None:
    given = changes if "type" in changes else SMALL | changes
    settings = TypeAdapter(ModelSettings).validate_python(given)
    model = build_model(settings, src_vocab_size=50, tgt_vocab_size=50)
    # Nearly equal, as torch has for equal ones a kernel that hides what it keeps.
    segments = Segments.of([length - 1, length, length + 1] * (num_tokens // length // 3))
    tokens = torch.randint(4, 50, (num_tokens,))
    memory = estimate_memory(model, settings, num_tokens=num_tokens, length=length)
    measured = saved_bytes(model, tokens, segments, tokens, segments)
    assert memory.activations == pytest.approx(measured, rel=0.1)
    assert memory.weights == 4 * sum(parameter.numel() for parameter in model.parameters())
    assert memory.total == 4 * memory.weights + memory.activations
