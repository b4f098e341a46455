"""Segment memory: keys and values of earlier sentences in the encoder's self-attention."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from transformer_mt.config.model import TransformerSettings
from transformer_mt.models.build import build_model
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.nn.attention import attention
from transformer_mt.packing import Context, Segments

LENGTHS = [5, 3, 4, 2, 6, 3]
DOCUMENTS = [[0, 1, 2, 3], [4, 5]]
NUM_BEFORE = np.array([0, 1, 2, 2, 0, 1])
TOKENS = torch.arange(4, 4 + sum(LENGTHS))  # all different


@pytest.fixture
def model() -> Seq2Seq:
    settings = TransformerSettings.model_validate(
        {
            "d_model": 16,
            "d_ff": 24,
            "num_heads": 2,
            "num_encoder_layers": 3,
            "num_decoder_layers": 1,
            "positions": {"type": "rotary"},
            "norm": "pre",
            "dropout": 0.0,
        }
    )
    torch.manual_seed(3)
    return build_model(settings, src_vocab_size=40, tgt_vocab_size=40).double()


def segments_of(lengths: list[int], num_before: np.ndarray, *, num_tail_rows: int = 0) -> Segments:
    segments = Segments.of(lengths, num_tail_rows=num_tail_rows)
    context = Context.of(np.array(lengths), num_before, num_tail_rows=num_tail_rows)
    return replace(segments, context=context)


def by_definition(model: Seq2Seq, tokens: Tensor, num_before: np.ndarray) -> list[Tensor]:
    """Dai et al. 2019, section 3.2: h = layer(queries of h, keys of [stopped memory, h])."""
    encoder = model.encoder
    parts = torch.split(tokens, LENGTHS)
    kept: list[list[Tensor]] = []  # of each sentence, what the self-attention of each layer reads
    results = []
    for sentence, own in enumerate(parts):
        seen = kept[sentence - num_before[sentence] :] if num_before[sentence] else []
        x = encoder.embedding.weight[own] * encoder.embedding.scale
        inputs = []
        for number, layer in enumerate(encoder.layers):
            inputs.append(layer.self_attention_norm(x))
            memory = [states[number].detach() for states in seen]
            qkv = layer.self_attention.qkv(torch.cat([*memory, inputs[-1]])).view(-1, 3, 2, 8)
            turned = encoder.embedding.positions.rotate(qkv, torch.arange(len(qkv)))
            q, k, v = turned.transpose(0, 2).transpose(0, 1)
            mixed = attention(q[:, -len(own) :], k, v).transpose(0, 1).flatten(1)
            x = x + layer.self_attention.output(mixed)
            x = x + layer.feed_forward(layer.feed_forward_norm(x))
        kept.append(inputs)
        results.append(encoder.final_norm(x))
    return results


def test_states_and_gradients_are_those_of_the_definition(model) -> None:
    encoder = model.encoder
    weights = torch.randn(sum(LENGTHS), 16, generator=torch.Generator().manual_seed(1)).double()
    found = encoder(TOKENS, segments_of(LENGTHS, NUM_BEFORE)).states
    (found * weights).sum().backward()
    gradients = [p.grad.clone() for p in encoder.parameters()]
    encoder.zero_grad()
    expected = torch.cat(by_definition(model, TOKENS, NUM_BEFORE))
    (expected * weights).sum().backward()
    torch.testing.assert_close(found, expected)
    for own, parameter in zip(gradients, encoder.parameters(), strict=True):
        torch.testing.assert_close(own, parameter.grad)


def test_a_tail_changes_no_sentence(model) -> None:
    tokens = torch.cat([TOKENS, torch.zeros(5, dtype=torch.int64)])
    segments = segments_of(LENGTHS, NUM_BEFORE, num_tail_rows=5)
    plain = model.encode(TOKENS, segments_of(LENGTHS, NUM_BEFORE)).states
    torch.testing.assert_close(model.encode(tokens, segments).states[: len(plain)], plain)


def test_no_gradient_reaches_earlier_sentences(model) -> None:
    states = model.encode(TOKENS, segments_of(LENGTHS, NUM_BEFORE)).states
    # Of the fourth sentence, whose tokens occur nowhere else; a plain sum of normed states is 0.
    (states[12:14] * torch.arange(16)).sum().backward()
    reached = model.encoder.embedding.weight.grad.abs().sum(1).nonzero()[:, 0]
    assert reached.tolist() == TOKENS[12:14].tolist()


def test_a_sentence_sees_those_before_it_in_its_document_and_no_other(model) -> None:
    segments = segments_of(LENGTHS, NUM_BEFORE)
    plain = torch.split(model.encode(TOKENS, segments).states, LENGTHS)
    starts = np.cumsum([0, *LENGTHS])
    for changed in range(len(LENGTHS)):
        tokens = TOKENS.clone()
        tokens[starts[changed] : starts[changed + 1]] = 39
        found = torch.split(model.encode(tokens, segments).states, LENGTHS)
        differing = [i for i in range(len(LENGTHS)) if not torch.allclose(found[i], plain[i])]
        (document,) = [own for own in DOCUMENTS if changed in own]
        assert differing == [i for i in document if i >= changed]


def test_a_part_of_whole_documents_has_the_same_context() -> None:
    whole = segments_of(LENGTHS, NUM_BEFORE)
    _, part = whole.part(4, 6)
    expected = segments_of(LENGTHS[4:], NUM_BEFORE[4:])
    for name in ("rows", "own", "positions", "num_before"):
        assert getattr(part.context, name).tolist() == getattr(expected.context, name).tolist()


def test_keys_lie_where_their_sentences_lie() -> None:
    context = Context.of(np.array([2, 1, 3]), np.array([0, 1, 1]))
    assert context.rows.tolist() == [0, 1, *[0, 1, 2], *[2, 3, 4, 5]]
    assert context.keys.lengths.tolist() == [2, 3, 4]
    assert context.own.tolist() == [0, 1, 4, 6, 7, 8]
    assert context.positions.tolist() == list(range(6))
    assert list(itertools.pairwise(context.keys.offsets.tolist())) == [(0, 2), (2, 5), (5, 9)]
