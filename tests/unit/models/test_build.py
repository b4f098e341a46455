import pytest
import torch

from transformer_mt.config.model import TransformerSettings
from transformer_mt.errors import ConfigError
from transformer_mt.models.build import build_model
from transformer_mt.models.seq2seq import Seq2Seq

SMALL = {"d_model": 8, "d_ff": 12, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1}


def small(**changes: object) -> Seq2Seq:
    return build_model(TransformerSettings(**SMALL, **changes), src_vocab_size=9, tgt_vocab_size=9)


def test_names_of_weights_are_a_contract() -> None:
    """Saved models hold these names: a change of one makes them unreadable."""
    attention = ["qkv.weight", "qkv.bias", "output.weight", "output.bias"]
    cross = [
        f"{block}.{kind}"
        for block in ("query", "key_value", "output")
        for kind in ("weight", "bias")
    ]
    both = ["weight", "bias"]

    def layer(side: str) -> list[str]:
        names = [f"self_attention.{name}" for name in attention]
        names += [f"self_attention_norm.{kind}" for kind in both]
        if side == "decoder":
            names += [f"cross_attention.{name}" for name in cross]
            names += [f"cross_attention_norm.{kind}" for kind in both]
        for block in ("gate", "input", "output"):
            names += [f"feed_forward.{block}.{kind}" for kind in both]
        names += [f"feed_forward_norm.{kind}" for kind in both]
        return [f"{side}.layers.0.{name}" for name in names]

    model = small(norm="pre", activation="swiglu", positions={"type": "learned"}, init="zhang2019")
    assert list(model.state_dict()) == [
        "encoder.embedding.weight",
        "encoder.embedding.positions.weight",
        *layer("encoder"),
        "encoder.final_norm.weight",
        "encoder.final_norm.bias",
        "decoder.embedding.weight",
        "decoder.embedding.positions.weight",
        *layer("decoder"),
        "decoder.final_norm.weight",
        "decoder.final_norm.bias",
        "decoder.output.weight",
    ]


def test_the_paper_has_no_final_norm_no_gate_and_no_table_of_positions() -> None:
    names = list(small().state_dict())
    assert not [name for name in names if any(x in name for x in ("final", "gate", "positions"))]


@pytest.mark.parametrize(("num_encoder_layers", "num_decoder_layers"), [(3, 1), (1, 2)])
def test_each_side_has_its_own_depth(num_encoder_layers: int, num_decoder_layers: int) -> None:
    settings = SMALL | {
        "num_encoder_layers": num_encoder_layers,
        "num_decoder_layers": num_decoder_layers,
    }
    model = build_model(TransformerSettings(**settings), src_vocab_size=9, tgt_vocab_size=9)
    assert len(model.encoder.layers) == num_encoder_layers
    assert len(model.decoder.layers) == num_decoder_layers


@pytest.mark.parametrize(("tied", "num_matrices"), [("all", 1), ("target", 2), ("none", 3)])
def test_embeddings_are_tied_as_asked(tied: str, num_matrices: int) -> None:
    model = small(tie_embeddings=tied)
    matrices = (
        model.encoder.embedding.weight,
        model.decoder.embedding.weight,
        model.decoder.output.weight,
    )
    assert len({id(matrix) for matrix in matrices}) == num_matrices
    assert (matrices[1] is matrices[2]) == (tied != "none")


def test_one_matrix_for_vocabularies_of_different_sizes_is_refused() -> None:
    settings = TransformerSettings(**SMALL)
    with pytest.raises(ConfigError, match=r"source has 9 tokens and the target 7.*'target'"):
        build_model(settings, src_vocab_size=9, tgt_vocab_size=7)


def test_base_with_the_vocabulary_of_the_paper_has_63_million_parameters() -> None:
    with torch.device("meta"):
        model = build_model(TransformerSettings(), src_vocab_size=37_000, tgt_vocab_size=37_000)
    assert sum(parameter.numel() for parameter in model.parameters()) == 63_082_496


def test_the_seed_decides_the_first_weights() -> None:
    torch.manual_seed(8)
    first = small().state_dict()
    torch.manual_seed(8)
    second = small().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
