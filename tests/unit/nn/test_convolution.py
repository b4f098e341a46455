"""Gated convolutions and their attention against torch's convolution and plain loops."""

import math

import pytest
import torch
import torch.nn.functional as F

from transformer_mt.config.convolutional import ConvolutionalSettings
from transformer_mt.models.build import build_model
from transformer_mt.nn.convolution import ConvolutionalAttention, GatedConvolution, Windows
from transformer_mt.nn.kernels.dispatch import PackedAttention
from transformer_mt.nn.masks import AttentionMask
from transformer_mt.packing import Segments

D = 6
LENGTHS = [3, 7, 1, 2]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(4)


def model(**changes: object):
    settings = {"d_model": 64, "num_encoder_layers": 3, "num_decoder_layers": 2, "dropout": 0.2}
    built = ConvolutionalSettings(type="convolutional", **settings | changes)
    return build_model(built, src_vocab_size=300, tgt_vocab_size=300)


@pytest.mark.parametrize(
    "offsets", [range(-1, 2), range(-2, 3), range(-2, 1), range(-6, 1, 3), range(1)]
)
def test_a_convolution_is_torchs_over_each_sentence_alone(offsets: range) -> None:
    block = GatedConvolution(D, len(offsets), dropout=0.0).double()
    x = torch.randn(sum(LENGTHS) + 2, D, dtype=torch.float64)
    found = block(x, Windows.of(Segments.of(LENGTHS, num_tail_rows=2), offsets))
    # (out, in, place) is the order of torch.
    kernel = block.convolution.weight.view(2 * D, len(offsets), D).transpose(1, 2)
    for sentence, y in zip(x[:-2].split(LENGTHS), found[:-2].split(LENGTHS), strict=True):
        padded = F.pad(sentence.T, (-offsets[0], offsets[-1]))
        both = F.conv1d(padded[None], kernel, block.convolution.bias, dilation=offsets.step)
        a, gate = both[0].T.chunk(2, dim=1)
        torch.testing.assert_close(y, a * gate.sigmoid())


def test_attention_equals_a_triple_loop() -> None:
    attention = ConvolutionalAttention(D).double()
    src_lengths = [2, 4, 1, 3]
    x, embedded = torch.randn(2, sum(LENGTHS), D, dtype=torch.float64)
    memory = torch.randn(sum(src_lengths), 2 * D, dtype=torch.float64)
    attend = PackedAttention(AttentionMask(Segments.of(LENGTHS), Segments.of(src_lengths)))
    rows = iter(attention(x, embedded, memory, attend))
    w, bias = attention.query.weight.tolist(), attention.query.bias.tolist()
    sides = (x.split(LENGTHS), embedded.split(LENGTHS), memory.split(src_lengths))
    for x_b, e_b, memory_b in zip(*sides, strict=True):
        for h, g in zip(x_b.tolist(), e_b.tolist(), strict=True):
            d = [
                (sum(w[i][j] * h[j] for j in range(D)) + bias[i] + g[i]) / math.sqrt(2)
                for i in range(D)
            ]
            scores = [math.exp(sum(d[i] * z[i] for i in range(D))) for z in memory_b.tolist()]
            context = [
                sum(a * z[D + i] for a, z in zip(scores, memory_b.tolist(), strict=True))
                / sum(scores)
                for i in range(D)
            ]
            torch.testing.assert_close(next(rows), torch.tensor(context, dtype=torch.float64))


@torch.no_grad()
def test_the_encoder_gives_keys_and_values_that_hold_the_embeddings() -> None:
    encoder = model().encoder.eval()
    segments = Segments.of(LENGTHS)
    src = torch.randint(4, 300, (sum(LENGTHS),))
    keys, values = encoder(src, segments).states.chunk(2, dim=1)
    embedded = (
        encoder.embedding.weight[src] + encoder.embedding.positions.weight[segments.positions]
    )
    lengths = torch.tensor([n for n in LENGTHS for _ in range(n)])[:, None]
    torch.testing.assert_close(values, (keys + embedded) / math.sqrt(2) * lengths.sqrt())


@torch.no_grad()
def test_a_token_sees_as_far_as_the_layers_reach() -> None:
    encoder = model(num_encoder_layers=3, kernel_size=3).encoder.eval()
    segments = Segments.of([11])
    src = torch.randint(4, 300, (11,))
    other = src.clone()
    other[5] = 4 + (src[5] - 3) % 296
    differs = (encoder(src, segments).states != encoder(other, segments).states).any(1)
    assert differs.tolist() == [2 <= place <= 8 for place in range(11)]


@torch.no_grad()
def test_with_dilations_a_token_sees_exponentially_far() -> None:
    network = model(num_encoder_layers=3, num_decoder_layers=2, dilations=[1, 3, 9]).eval()
    assert [list(own) for own in network.encoder.offsets] == [[-1, 0, 1], [-3, 0, 3], [-9, 0, 9]]
    assert [list(own) for own in network.decoder.offsets] == [[-2, -1, 0], [-6, -3, 0]]
    segments = Segments.of([4, 31])  # 27 tokens see the one in the middle of the second
    src = torch.randint(4, 300, (35,))
    other = src.clone()
    other[20] = 4 + (src[20] - 3) % 296
    encoder = network.encoder
    differs = (encoder(src, segments).states != encoder(other, segments).states).any(1)
    assert differs.tolist() == [7 <= place <= 33 for place in range(35)]


@torch.no_grad()
def test_fresh_layers_keep_the_size_of_what_they_read() -> None:
    network = model(num_encoder_layers=12, tie_embeddings="none").train()
    segments = Segments.of([20] * 20)
    src = torch.randint(4, 300, (400,))
    embedded = network.encoder.embedding(src, segments.positions, longest=20)
    keys, _ = network.encoder(src, segments).states.chunk(2, dim=1)
    assert keys.std().item() == pytest.approx(embedded.std().item(), rel=0.25)
