import math

import pytest
import torch

from transformer_mt.config.model import TransformerSettings
from transformer_mt.models.build import INITS, build_model
from transformer_mt.models.seq2seq import Seq2Seq

D, FF = 64, 192


def model(init: str, **changes: object) -> Seq2Seq:
    torch.manual_seed(3)
    settings = TransformerSettings(
        d_model=D, d_ff=FF, num_heads=4, num_encoder_layers=2, num_decoder_layers=2, init=init,
        tie_embeddings="none", **changes,
    )  # fmt: skip
    return build_model(settings, src_vocab_size=300, tgt_vocab_size=200)


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "activation": "swiglu"}])
def test_biases_are_zero_norms_are_one_and_all_else_is_drawn(init: str, changes: dict) -> None:
    for name, parameter in model(init, **changes).named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif "norm" in name:
            assert (parameter == 1).all(), name
        elif name == "decoder.output.weight" and init == "child2019":
            assert not parameter.any(), name
        else:
            assert 0.002 < parameter.std() < 1, name


def test_vaswani2017_is_glorot_for_each_projection() -> None:
    """Also for those that share a matrix with others."""
    weights = model("vaswani2017").state_dict()
    square, wide = math.sqrt(6 / (D + D)), math.sqrt(6 / (D + FF))
    for name, bound, num_parts in (
        ("self_attention.qkv", square, 3),
        ("cross_attention.query", square, 1),
        ("cross_attention.key_value", square, 2),
        ("feed_forward.input", wide, 1),
        ("feed_forward.output", wide, 1),
    ):
        for part in weights[f"decoder.layers.1.{name}.weight"].chunk(num_parts):
            assert 0.99 * bound < part.abs().max() <= bound
            assert part.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)
    for name in ("encoder.embedding", "decoder.embedding", "decoder.output"):
        assert weights[f"{name}.weight"].std().item() == pytest.approx(D**-0.5, rel=0.03)


def test_zhang2019_shrinks_deeper_layers() -> None:
    first, second = model("vaswani2017").state_dict(), model("zhang2019").state_dict()
    for name, weight in first.items():
        scale = 2**-0.5 if ".layers.1." in name and "norm" not in name else 1
        torch.testing.assert_close(second[name], weight * scale)


def test_radford2019_shrinks_what_is_added_to_the_residual() -> None:
    weights = model("radford2019", activation="swiglu").state_dict()
    for name, deviation in (
        ("encoder.embedding", 0.02),
        ("encoder.layers.0.self_attention.qkv", 0.02),
        ("encoder.layers.0.self_attention.output", 0.02 / math.sqrt(4)),
        ("decoder.layers.1.feed_forward.gate", 0.02),
        ("decoder.layers.1.feed_forward.output", 0.02 / math.sqrt(6)),
        ("decoder.output", 0.02),
    ):
        assert weights[f"{name}.weight"].std().item() == pytest.approx(deviation, rel=0.03), name


def test_child2019_is_narrow_and_shrinks_what_is_added_to_the_residual() -> None:
    weights = model("child2019", norm="pre", activation="gelu").state_dict()
    for name, deviation in (
        ("encoder.embedding", 0.125 / math.sqrt(D)),
        ("encoder.layers.0.self_attention.qkv", 0.125 / math.sqrt(D)),
        ("encoder.layers.0.self_attention.output", 0.125 / math.sqrt(D) / math.sqrt(2 * 2)),
        ("encoder.layers.1.feed_forward.output", 0.125 / math.sqrt(FF) / math.sqrt(2 * 2)),
        ("decoder.layers.1.feed_forward.output", 0.125 / math.sqrt(FF) / math.sqrt(3 * 2)),
    ):
        assert weights[f"{name}.weight"].std().item() == pytest.approx(deviation, rel=0.03), name
    settings = TransformerSettings(d_model=D, d_ff=FF, num_heads=4, init="child2019")
    tied = build_model(settings, src_vocab_size=300, tgt_vocab_size=300)
    assert tied.decoder.output_weight()[0].any()


def test_the_loss_of_fresh_weights_is_that_of_guessing() -> None:
    from transformer_mt.nn.loss import label_smoothed_linear_cross_entropy
    from transformer_mt.nn.packing import Segments

    network = model("radford2019")
    segments = Segments.of([9, 11])
    tokens = torch.randint(4, 200, (20,))
    states = network(tokens, segments, tokens, segments)
    loss, _ = label_smoothed_linear_cross_entropy(states, *network.decoder.output_weight(), tokens)
    assert loss.item() / 20 == pytest.approx(math.log(200), rel=0.02)
