"""First values of the weights against the rules of their sources, weight by weight."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from transformer_mt.config.convolutional import ConvolutionalSettings
from transformer_mt.config.model import TransformerSettings
from transformer_mt.config.recurrent import RecurrentSettings
from transformer_mt.models.build import build_model

D = 64
SIZES = {"d_model": D, "num_encoder_layers": 3, "num_decoder_layers": 2, "tie_embeddings": "none"}
NUM_SUBLAYERS = {"encoder": 2 * 3, "decoder": 3 * 2}
NUM_PROJECTIONS = {"qkv": 3, "key_value": 2}


def weights(settings: Any) -> dict[str, Tensor]:
    torch.manual_seed(1)
    return build_model(settings, src_vocab_size=100, tgt_vocab_size=100).state_dict()


def glorot(weight: Tensor) -> float:
    """The deviation of Glorot's uniform distribution."""
    return (2 / sum(weight.shape)) ** 0.5


def residual(name: str) -> float:
    """How much narrower a projection is whose result is added to the residual."""
    return NUM_SUBLAYERS[name.split(".")[0]] ** -0.5 if name.endswith(".output.weight") else 1.0


def depth(name: str) -> int:
    return 1 + int(re.search(r"layers\.(\d+)", name)[1])


# Rule to the deviation of embeddings, of the output matrix, and of a projection of a layer.
TRANSFORMER = {
    "vaswani2017": (D**-0.5, D**-0.5, lambda name, w: glorot(w)),
    "zhang2019": (D**-0.5, D**-0.5, lambda name, w: glorot(w) * depth(name) ** -0.5),
    "radford2019": (0.02, 0.02, lambda name, w: 0.02 * residual(name)),
    "child2019": (
        0.125 * D**-0.5, 0.0, lambda name, w: 0.125 * w.shape[1] ** -0.5 * residual(name),
    ),
}  # fmt: skip


@pytest.mark.parametrize("num_kv_heads", [None, 1])
@pytest.mark.parametrize("rule", TRANSFORMER)
def test_weights_of_a_transformer_have_the_deviations_of_their_rule(
    rule: str, num_kv_heads: int | None
) -> None:
    of_embeddings, of_output, of_projections = TRANSFORMER[rule]
    settings = TransformerSettings.model_validate(
        SIZES | {"d_ff": 128, "num_heads": 2, "num_kv_heads": num_kv_heads, "norm": "pre"}
        | {"positions": {"type": "learned", "max_length": 50}, "init": rule}
    )  # fmt: skip
    for name, weight in weights(settings).items():
        if weight.dim() == 1:
            assert (weight == float(name.endswith("_norm.weight"))).all()
        elif ".layers." in name:
            for part in weight.chunk(NUM_PROJECTIONS.get(name.split(".")[-2], 1)):
                assert part.std().item() == pytest.approx(of_projections(name, part), rel=0.06)
        else:
            expected = of_output if name == "decoder.output.weight" else of_embeddings
            assert weight.std().item() == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize("rule", ["saxe2014", "bahdanau2015", "luong2015"])
def test_weights_of_a_recurrent_model_follow_their_rule(rule: str) -> None:
    settings = RecurrentSettings.model_validate(
        SIZES | {"type": "recurrent", "cell": "lstm", "attention": "additive", "init": rule}
    )
    for name, weight in weights(settings).items():
        is_cell = "_ih_" in name or "_hh_" in name
        if rule == "luong2015":
            bound = 0.1 * (D**-0.5 if ".embedding." in name else 1)
            assert 0.9 * bound < weight.abs().max() <= bound
        elif weight.dim() == 1:
            forget_gate = torch.ones(4).cumsum(0) == 2
            opened = rule == "saxe2014" and ".bias_ih_" in name
            assert torch.equal(
                weight, opened * forget_gate.float().repeat_interleave(len(weight) // 4)
                if is_cell else torch.zeros_like(weight)
            )  # fmt: skip
        elif ".embedding." in name or name == "decoder.output.weight":
            assert weight.std().item() == pytest.approx(D**-0.5, rel=0.06)
        elif "_hh_" in name:
            for gate in weight.chunk(4):
                torch.testing.assert_close(gate @ gate.T, torch.eye(len(gate)), atol=1e-5, rtol=0)
        elif rule == "bahdanau2015" and name.endswith("score.output.weight"):
            assert not weight.any()
        else:
            for part in weight.chunk(4 if is_cell else 1):
                expected = (
                    glorot(part) if rule == "saxe2014" else 0.001 if ".score." in name else 0.01
                )
                few = part.numel() < 1000
                assert part.std().item() == pytest.approx(expected, rel=0.3 if few else 0.06)


def test_weights_of_a_convolutional_model_keep_the_variance() -> None:
    settings = ConvolutionalSettings.model_validate(
        SIZES | {"type": "convolutional", "kernel_size": 3, "dropout": 0.2}
    )
    for name, weight in weights(settings).items():
        if weight.dim() == 1:
            assert not weight.any()
        else:
            gain = 4 * 0.8 if ".convolution." in name else 1
            is_table = ".embedding." in name or name == "decoder.output.weight"
            expected = 0.1 if is_table else (gain / weight.shape[1]) ** 0.5
            assert weight.std().item() == pytest.approx(expected, rel=0.06)


def test_a_shared_layer_counts_as_often_as_it_is_applied() -> None:
    settings = TransformerSettings.model_validate(
        SIZES | {"d_ff": 128, "num_heads": 2, "share_layers": True, "init": "radford2019"}
    )
    found = weights(settings)["encoder.layers.0.feed_forward.output.weight"]
    assert found.std().item() == pytest.approx(0.02 * NUM_SUBLAYERS["encoder"] ** -0.5, rel=0.06)
