"""Patches as input of the encoder."""

import torch

from transformer_mt.config.model import TransformerSettings
from transformer_mt.models.build import INITS, build_model
from transformer_mt.models.costs import count_costs
from transformer_mt.models.ensemble import ensemble
from transformer_mt.nn.patches import PatchEmbedding
from transformer_mt.nn.positional_encoding import LearnedEncoding
from transformer_mt.packing import Segments


def test_a_patch_is_mapped_linearly_and_gets_its_position():
    torch.manual_seed(1)
    embedding = PatchEmbedding(12, 5, positions=LearnedEncoding(7, 5))
    torch.nn.init.normal_(embedding.positions.weight)
    patches = torch.randint(0, 256, (4, 12), dtype=torch.uint8)
    positions = torch.tensor([0, 1, 2, 0])
    weight, bias = embedding.projection.weight, embedding.projection.bias
    expected = (
        ((patches.float() - 40) / 80) @ weight.T + bias + embedding.positions.weight[positions]
    )
    found = embedding(patches, positions, longest=3)
    torch.testing.assert_close(found, expected)
    half = embedding.bfloat16()(patches, positions, longest=3)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, atol=0.1, rtol=0.05)


def test_a_picture_is_read_alone_in_any_batch_and_under_any_initialisation():
    patches = torch.randint(0, 256, (9, 32), dtype=torch.uint8)
    for init in INITS:
        settings = TransformerSettings.model_validate(
            {
                "d_model": 16,
                "num_heads": 2,
                "d_ff": 32,
                "num_encoder_layers": 2,
                "num_decoder_layers": 1,
                "tie_embeddings": "target",
                "init": init,
                "encoder_input": {"type": "patches", "height": 8, "patch_width": 4},
            }
        )
        model = build_model(settings, src_vocab_size=1 << 32, tgt_vocab_size=9).eval()
        assert model.encoder.patch_size == 32
        assert model.encoder.embedding.projection.weight.std() > 0.01
        both = model.encode(patches, Segments.of([4, 5])).states
        alone = model.encode(patches[4:], Segments.of([5])).states
        torch.testing.assert_close(both[4:], alone)
    joined = ensemble([model, model], [1.0, 1.0])
    twice = torch.cat([both, both], dim=1)
    torch.testing.assert_close(joined.encode(patches, Segments.of([4, 5])).states, twice)
    assert count_costs(model, length=4).source > 6 * 32 * 16 * 2
