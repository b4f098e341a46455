"""What every decoder must keep, whatever it computes: see `models.interfaces`."""

import functools
import itertools
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor

from transformer_mt.config.families import ModelSettings
from transformer_mt.errors import ConfigError, DataError
from transformer_mt.models import build
from transformer_mt.models.build import FEED_FORWARDS, RESIDUALS, build_model
from transformer_mt.models.decoder_only import DecoderOnly
from transformer_mt.models.ensemble import ensemble
from transformer_mt.models.interfaces import Memory
from transformer_mt.models.recurrent import RecurrentDecoder
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.nn import decode_cache
from transformer_mt.nn.padding import pack, unpack
from transformer_mt.packing import Segments
from transformer_mt.text.special_ids import PAD_ID

SMALL = {
    "d_model": 24,
    "d_ff": 40,
    "num_heads": 3,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
}
POSITIONS = {
    "sinusoidal": {"type": "sinusoidal"},
    "learned": {"type": "learned", "max_length": 20},
    "none": {"type": "none"},
    "rotary": {"type": "rotary"},
    "relative": {"type": "relative", "max_distance": 3},
    "relative_bias": {"type": "relative_bias", "num_buckets": 8, "max_distance": 6},
    "alibi": {"type": "alibi"},
}
# Small enough to hide something in sentences of 8 tokens.
PATTERNS = {
    "full": {"type": "full"},
    "local": {"type": "local", "window": 2},
    "strided": {"type": "strided", "stride": 2},
    "strided_split": {"type": "strided", "stride": 2, "heads": "split"},
    "fixed": {"type": "fixed", "stride": 3, "summary": 1},
    "fixed_split": {"type": "fixed", "stride": 3, "summary": 1, "heads": "split"},
}
# Of each of these every kind meets every other one somewhere in the product.
BLOCKS = itertools.product(RESIDUALS, FEED_FORWARDS, ["all", "target", "none"])
VARIANTS = {
    f"{pattern}-{positions}-{norm}-{activation}": {
        **SMALL,
        "num_heads": 6 if "split" in pattern else 3,
        "positions": POSITIONS[positions],
        "encoder_pattern": PATTERNS[pattern],
        "decoder_pattern": PATTERNS[pattern],
        "norm": norm,
        "activation": activation,
        "tie_embeddings": tied,
    }
    for (pattern, positions), (norm, activation, tied) in zip(
        itertools.product(PATTERNS, POSITIONS), itertools.cycle(BLOCKS), strict=False
    )
}
# Every pattern, kind of positions and part of a block, for what does not depend on two of them.
SOME = [*VARIANTS][::4]
PARTS = {
    "multi_query": {"num_kv_heads": 1},
    "grouped_query": {"num_heads": 6, "num_kv_heads": 2, "positions": POSITIONS["learned"]},
    "grouped_query_fixed": {
        "num_heads": 4,
        "num_kv_heads": 2,
        "decoder_pattern": PATTERNS["fixed_split"],
    },
    "grouped_query_rotary": {"num_heads": 4, "num_kv_heads": 2, "positions": POSITIONS["rotary"]},
    "multi_query_bias": {"num_kv_heads": 1, "positions": POSITIONS["relative_bias"]},
    "wide_heads": {"head_dim": 10, "positions": POSITIONS["relative"]},
    "narrow_keys": {"key_dim": 3, "positions": POSITIONS["alibi"]},
    "rms": {"norm_type": "rms", "norm": "pre"},
    "shared": {"share_layers": True, "layer_dropout": 0.5},
    "in_turn": {
        "encoder_pattern": {"type": "strided", "stride": 2, "heads": "in_turn"},
        "decoder_pattern": {"type": "fixed", "stride": 3, "heads": "in_turn"},
        "positions": {"type": "row_column", "width": 3, "max_length": 20},
    },
    "as_marian": {"activation": "swish", "output_bias": True, "decoder_start": "zeros"},
}
VARIANTS |= {name: SMALL | changes for name, changes in PARTS.items()}
SOME += PARTS
RECURRENT = {"type": "recurrent", "d_model": 24, "num_encoder_layers": 2, "num_decoder_layers": 2}
CONVOLUTIONAL = {
    "type": "convolutional",
    "d_model": 24,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "positions": {"type": "learned", "max_length": 20},
}
DECODER_ONLY = {
    "type": "decoder_only",
    **{name: size for name, size in SMALL.items() if name != "num_encoder_layers"},
}
FAMILY = {
    "decoder_only": DECODER_ONLY | {"loss_on": "both", "tie_embeddings": "target"},
    "decoder_only_prefix": DECODER_ONLY
    | {"source_mask": "full", "norm": "pre", "positions": POSITIONS["rotary"]},
    "decoder_only_learned": DECODER_ONLY
    | {"positions": {"type": "learned", "max_length": 60}, "num_kv_heads": 1},
    "decoder_only_bias": DECODER_ONLY
    | {"source_mask": "full", "positions": POSITIONS["relative"], "share_layers": True},
    "decoder_only_fixed": DECODER_ONLY | {"decoder_pattern": PATTERNS["fixed"]},
    "decoder_only_strided": DECODER_ONLY
    | {
        "decoder_pattern": {"type": "strided", "stride": 2, "heads": "in_turn"},
        "positions": POSITIONS["alibi"],
        "source_mask": "full",
    },
    "bottleneck": RECURRENT | {"cell": "gru", "attention": "none"},
    "bottleneck_lstm": RECURRENT
    | {"cell": "lstm", "attention": "none", "bidirectional": False, "reverse_source": True},
    "rnn_dot": RECURRENT | {"cell": "rnn", "attention": "dot", "residual": True},
    "gru_scaled_dot": RECURRENT | {"cell": "gru", "attention": "scaled_dot"},
    "lstm_general": RECURRENT | {"cell": "lstm", "attention": "general", "residual": True},
    "lstm_additive": RECURRENT | {"cell": "lstm", "attention": "additive"},
    "lstm_fed": RECURRENT | {"cell": "lstm", "attention": "dot", "input_feeding": True},
    "convolutional": CONVOLUTIONAL,
    "convolutional_wide": CONVOLUTIONAL | {"kernel_size": 5, "tie_embeddings": "none"},
    "convolutional_dilated": CONVOLUTIONAL | {"dilations": [2, 1]},
    "gru_fed": RECURRENT | {"attention": "additive", "input_feeding": True, "residual": True},
}
V = 30
PATCHES = SMALL | {
    "encoder_input": {"type": "patches", "height": 8, "patch_width": 2},
    "tie_embeddings": "target",
    "positions": POSITIONS["rotary"],
}
OTHERS = [*FAMILY, "patches", "ensemble", "mixed ensemble"]
every_variant = pytest.mark.parametrize("model", [*VARIANTS, *OTHERS], indirect=True)


SRC_LENGTHS, TGT_LENGTHS = [4, 9, 1], [6, 2, 8]


def test_all_variants_are_here() -> None:
    assert {*POSITIONS, "row_column"} == set(build.POSITIONS)
    assert {pattern.partition("_")[0] for pattern in PATTERNS} == set(build.PATTERNS)
    blocks = {(v.get("norm"), v.get("activation")) for v in VARIANTS.values()}
    assert blocks >= set(itertools.product(RESIDUALS, FEED_FORWARDS))
    for part in ("positions", "encoder_pattern", "norm", "activation", "tie_embeddings"):
        kinds = [{str(VARIANTS[name].get(part)) for name in names} for names in (SOME, VARIANTS)]
        assert kinds[0] == kinds[1]


@pytest.fixture(params=[*SOME, *OTHERS])
def model(request: pytest.FixtureRequest) -> Seq2Seq:
    return model_of(request.param)


@functools.cache
def model_of(name: str) -> Seq2Seq:
    """Build a model once for all tests, none of which changes it."""
    torch.manual_seed(2)
    if name == "ensemble":
        return ensemble([randomised(VARIANTS[member]) for member in [*VARIANTS][:2]], [2.0, 1.0])
    if name == "mixed ensemble":
        members = [SMALL, FAMILY["lstm_general"], FAMILY["decoder_only"]]
        return ensemble([randomised(settings) for settings in members], [2.0, 1.0, 1.0])
    return randomised((VARIANTS | FAMILY | {"patches": PATCHES})[name])


def randomised(settings: dict[str, Any]) -> Seq2Seq:
    checked = TypeAdapter(ModelSettings).validate_python(settings)
    model = build_model(checked, src_vocab_size=V, tgt_vocab_size=V)
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    return model.double().eval()


def sentences(lengths: list[int]) -> tuple[Tensor, Segments]:
    return torch.randint(4, V, (sum(lengths),)), Segments.of(lengths)


@pytest.fixture
def batch(request: pytest.FixtureRequest) -> tuple[Tensor, Segments, Tensor, Segments]:
    torch.manual_seed(5)
    src, src_segments = sentences(SRC_LENGTHS)
    if "model" in request.fixturenames:
        size = request.getfixturevalue("model").encoder.patch_size
        src = src if size is None else torch.randint(256, (len(src), size), dtype=torch.uint8)
    return src, src_segments, *sentences(TGT_LENGTHS)


def full_logits(model: Seq2Seq, batch: tuple[Tensor, Segments, Tensor, Segments]) -> Tensor:
    """Return (B, T, V), zeros behind the ends."""
    return unpack(model.decoder.project(model(*batch)), batch[3])


@every_variant
@torch.no_grad()
def test_step_by_step_logits_equal_the_full_forward_pass(model, batch) -> None:
    src, src_segments, tgt_in, segments = batch
    expected, tokens = full_logits(model, batch), unpack(tgt_in, segments)
    state = model.decoder.init_state(model.encode(src, src_segments), max_length=8)
    for t in range(8):
        logits, state = model.decoder.step(tokens[:, t : t + 1], state)
        assert logits.shape == (3, 1, V)
        real = segments.lengths > t
        torch.testing.assert_close(logits[real, 0], expected[real, t])


@torch.no_grad()
def test_a_limited_decoder_has_the_same_logits_for_fewer_tokens(model, batch, request) -> None:
    if "ensemble" in request.node.callspec.params["model"]:
        pytest.skip("an ensemble cannot be limited")
    src, src_segments, tgt_in, segments = batch
    kept, tokens = torch.tensor([2, 3, 17, 5]), unpack(tgt_in, segments)
    memory = model.encode(src, src_segments)
    some = model.decoder.limited_to(kept)
    state, limited_state = (d.init_state(memory, max_length=8) for d in (model.decoder, some))
    for t in range(8):
        logits, state = model.decoder.step(tokens[:, t : t + 1], state)
        limited, limited_state = some.step(tokens[:, t : t + 1], limited_state)
        torch.testing.assert_close(limited, logits[..., kept])


@every_variant
@torch.no_grad()
def test_a_batch_equals_each_sentence_alone(model, batch) -> None:
    src, _, tgt_in, _ = batch
    together = model(*batch).split(TGT_LENGTHS)
    for b, (src_b, tgt_b) in enumerate(
        zip(src.split(SRC_LENGTHS), tgt_in.split(TGT_LENGTHS), strict=True)
    ):
        alone = [Segments.of([len(x)]) for x in (src_b, tgt_b)]
        torch.testing.assert_close(model(src_b, alone[0], tgt_b, alone[1]), together[b])


@torch.no_grad()
def test_rows_behind_the_last_token_are_finite_and_change_nothing(model, batch) -> None:
    src, _, tgt_in, _ = batch
    with_tails = []
    for tokens, lengths in ((src, SRC_LENGTHS), (tgt_in, TGT_LENGTHS)):
        segments = Segments.of(lengths, num_tail_rows=5)
        with_tails += [torch.cat([tokens, tokens.new_zeros(5, *tokens.shape[1:])]), segments]
    states = model(*with_tails)
    torch.testing.assert_close(states[: len(tgt_in)], model(*batch))
    assert len(states) == len(tgt_in) + 5
    assert states.isfinite().all()


@torch.no_grad()
def test_future_tokens_change_nothing(model, batch) -> None:
    src, src_segments, tgt_in, segments = batch
    changed = tgt_in.clone()
    changed[segments.positions >= 3] = (changed[segments.positions >= 3] - 4 + 1) % (V - 4) + 4
    before, after = model(*batch), model(src, src_segments, changed, segments)
    past = segments.positions < 3
    assert torch.equal(before[past], after[past])
    assert not torch.isclose(before[~past], after[~past]).all(1).any()


def run(model: Seq2Seq, memory: Memory, tokens: Tensor) -> Tensor:
    """Return the logits after reading the columns of tokens (B, T), one row for each sentence."""
    state = model.decoder.init_state(memory, max_length=tokens.shape[1])
    for t in range(tokens.shape[1]):
        logits, state = model.decoder.step(tokens[:, t : t + 1], state)
    return logits[:, 0]


@torch.no_grad()
def test_select_continues_the_rows_it_names(model, batch) -> None:
    """Beams fork, change places, end, and sentences leave the batch."""
    src, src_segments, _, _ = batch
    memory = model.encode(src, src_segments)
    bos, a, b, c, d = torch.tensor([2, 5, 6, 7, 8])
    state = model.decoder.init_state(memory, max_length=5)
    _, state = model.decoder.step(bos.expand(3, 1), state)
    state = state.select(torch.tensor([[0, 0], [1, 1], [2, 2]]))
    _, state = model.decoder.step(torch.stack([a, b]).expand(3, 2), state)
    # Sentence 0 swaps its rows, sentence 1 continues its second twice.
    state = state.select(torch.tensor([[1, 0], [3, 3], [4, 5]]))
    _, state = model.decoder.step(torch.stack([c, d]).expand(3, 2), state)
    # Sentence 1 leaves; sentence 2 comes first; three rows each.
    state = state.select(torch.tensor([[5, 4, 5], [0, 1, 0]]), torch.tensor([2, 0]))
    logits, _ = model.decoder.step(torch.stack([a, b, c]).expand(2, 3), state)
    histories = {
        (0, 0): [2, b, d, a], (0, 1): [2, a, c, b], (0, 2): [2, b, d, c],
        (1, 0): [2, b, c, a], (1, 1): [2, a, d, b], (1, 2): [2, b, c, c],
    }  # fmt: skip
    for (row, beam), history in histories.items():
        expected = run(model, memory, torch.tensor([history] * 3))[[2, 0][row]]
        torch.testing.assert_close(logits[row, beam], expected)


@torch.no_grad()
def test_rows_without_a_hypothesis_change_no_other(model, batch, monkeypatch) -> None:
    monkeypatch.setattr(decode_cache, "_MANY_ROWS", 1)
    src, src_segments, _, _ = batch
    memory = model.encode(src, src_segments)
    state = model.decoder.init_state(memory, max_length=3)
    _, state = model.decoder.step(torch.full((3, 1), 2), state)
    state = state.select(torch.tensor([[0, 0], [1, 1], [2, 2]]))
    _, state = model.decoder.step(torch.tensor([[5, 6], [PAD_ID, 7], [8, PAD_ID]]), state)
    state = state.select(torch.tensor([[1, 0], [3, 3], [4, 4]]))
    logits, _ = model.decoder.step(torch.tensor([[9, PAD_ID], [PAD_ID, 10], [11, 12]]), state)
    histories = {(0, 0): [2, 6, 9], (1, 1): [2, 7, 10], (2, 0): [2, 8, 11], (2, 1): [2, 8, 12]}
    for (b, w), tokens in histories.items():
        expected = run(model, memory, torch.tensor(tokens).expand(3, -1))[b]
        torch.testing.assert_close(logits[b, w], expected)
    assert logits.isfinite().all()


@torch.no_grad()
def test_attention_to_the_source_is_a_distribution_over_its_tokens(model, batch) -> None:
    src, src_segments, tgt_in, segments = batch
    memory = model.encode(src, src_segments)
    hides = isinstance(model.decoder, DecoderOnly) and model.decoder.pattern is not None
    if hides or getattr(model.decoder, "attention", "some") is None:
        with pytest.raises(ConfigError, match="no attention"):
            model.decoder.source_attention(tgt_in, segments, memory)
        return
    weights = model.decoder.source_attention(tgt_in, segments, memory)
    num_layers, num_heads = weights.shape[1:3]
    assert num_layers == (1 if isinstance(model.decoder, RecurrentDecoder) else 2)
    assert weights.shape == (3, num_layers, num_heads, max(TGT_LENGTHS), max(SRC_LENGTHS))
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]).double())
    for b, length in enumerate(SRC_LENGTHS):
        assert (weights[b, ..., :length] > 0).all()
        assert not weights[b, ..., length:].any()


@torch.no_grad()
def test_self_attention_is_what_values_are_mixed_by(model, batch) -> None:
    """Its rows sum to 1 and see no future; the last layer's block returns the sums they weigh."""
    src, src_segments, tgt_in, segments = batch
    memory = model.encode(src, src_segments)
    own = model.encoder.self_attention(src, src_segments)
    of_targets = model.decoder.self_attention(tgt_in, segments, memory)
    if own is None:
        assert of_targets is None
        return
    assert not of_targets.triu(1).any()
    member = next(iter(getattr(model.encoder, "encoders", [model.encoder])))
    decoder = next(iter(getattr(model.decoder, "decoders", [model.decoder])))
    for weights, side, layout in ((own, member, src_segments), (of_targets, decoder, segments)):
        block = side.layers[-1].self_attention
        seen: list[Tensor] = []
        hook = lambda block, inputs, y, seen=seen: seen.extend((inputs[0], y))  # noqa: E731
        with block.register_forward_hook(hook):
            model(*batch)
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]).double())
        # A shared layer was called several times: the last one counts.
        qkv = unpack(block.positions.rotate(block._qkv(seen[-2]), layout.positions), layout)
        mixed = weights[:, -1] @ qkv[:, :, 2].transpose(1, 2)
        expected = block.output(mixed.transpose(1, 2).flatten(2))
        torch.testing.assert_close(pack(expected, layout), seen[-1])


@pytest.mark.parametrize("norm", RESIDUALS)
@torch.no_grad()
def test_attention_to_the_source_is_what_values_are_mixed_by(norm, batch) -> None:
    """The last layer's sum of values by these weights, projected, is what its block returns."""
    src, src_segments, tgt_in, segments = batch
    model = randomised(SMALL | {"norm": norm})
    memory = model.encode(src, src_segments)
    block = model.decoder.layers[-1].cross_attention
    seen: list[Tensor] = []
    block.register_forward_hook(lambda block, inputs, output: seen.append(output))
    model.decoder(tgt_in, segments, memory)
    weights = model.decoder.source_attention(tgt_in, segments, memory)[:, -1]
    values = block.keys_values(memory.states, src_segments).values
    mixed = block.output((weights @ values).transpose(1, 2).flatten(2))
    torch.testing.assert_close(pack(mixed, segments), seen[0])


@torch.no_grad()
def test_an_ensemble_gives_the_mean_of_probabilities(batch) -> None:
    models = [randomised(SMALL | changes) for changes in ({"norm": "pre"}, {"d_model": 12})]
    joined = ensemble(models, [3.0, 1.0])
    first, second = (model.decoder.project(model(*batch)).softmax(-1) for model in models)
    found = joined.decoder.project(joined(*batch)).exp()
    torch.testing.assert_close(found, 0.75 * first + 0.25 * second)


@torch.no_grad()
def test_hypotheses_of_a_sentence_share_its_memory(model, batch) -> None:
    """Nothing that depends on the source alone grows with the number of hypotheses."""
    src, src_segments, _, _ = batch
    state = model.decoder.init_state(model.encode(src, src_segments), max_length=4)
    _, state = model.decoder.step(torch.full((3, 1), 2), state)
    before = memories_of(state)
    wide = state.select(torch.tensor([[0] * 7, [1] * 7, [2] * 7]))
    assert memories_of(wide) == before


def memories_of(state: Any) -> list[int]:
    """Where in the computer's memory all lies that depends on the source alone."""
    memories = [memory for member in members(state) for memory in member.memories]
    parts = [x if isinstance(x, tuple) else vars(x).values() for x in memories]
    return [tensor.data_ptr() for part in parts for tensor in part]


def members(state: Any) -> list[Any]:
    """The states of an ensemble's members; a state alone otherwise."""
    return list(getattr(state, "members", [state]))


@torch.no_grad()
def test_a_state_has_room_for_as_many_steps_as_asked(model, batch) -> None:
    src, src_segments, _, _ = batch
    tokens, segments = sentences([20, 20, 20])
    found = run(model, model.encode(src, src_segments), unpack(tokens, segments))
    expected = full_logits(model, (src, src_segments, tokens, segments))
    torch.testing.assert_close(found, expected[:, -1])


@pytest.mark.parametrize("settings", [SMALL, FAMILY["convolutional"]], ids=["plain", "conv"])
def test_learned_positions_say_how_long_a_sentence_may_be(settings: dict[str, Any]) -> None:
    model = randomised(settings | {"positions": POSITIONS["learned"]})
    assert model.encoder.max_length == model.decoder.max_length == 20
    with pytest.raises(DataError, match="sentence of 21 tokens"):
        model.encode(*sentences([21]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    "name", ["plain", "rnn_dot", "lstm_additive", "bottleneck", "convolutional", "decoder_only"]
)
@torch.no_grad()
def test_weights_of_other_types_decode_alike(dtype: torch.dtype, name: str, batch) -> None:
    torch.manual_seed(2)
    settings = TypeAdapter(ModelSettings).validate_python((FAMILY | {"plain": SMALL})[name])
    model = build_model(settings, src_vocab_size=V, tgt_vocab_size=V).eval()
    tokens = torch.randint(4, V, (3, 6))
    exact = run(model, model.encode(*batch[:2]), tokens)
    model.to(dtype)
    rounded = run(model, model.encode(*batch[:2]), tokens)
    assert rounded.dtype == dtype
    tolerance = 0.1 if dtype == torch.bfloat16 else 1e-6
    torch.testing.assert_close(rounded.float(), exact, atol=tolerance, rtol=0.02)
