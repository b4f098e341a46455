"""Recurrent layers and their attention against torch's modules and plain loops."""

import math

import pytest
import torch
from torch import Tensor, nn

from transformer_mt.nn.kernels.length_groups import length_groups
from transformer_mt.nn.padding import pack, unpack
from transformer_mt.nn.recurrent import CELLS, Bridge, RecurrentLayer, TimeOrder
from transformer_mt.nn.recurrent_attention import SCORES, GlobalAttention
from transformer_mt.packing import Segments

D_IN, D = 6, 8
LENGTHS = [3, 7, 1, 7]
WHOLE = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(4)


def test_time_order_reads_step_by_step_the_longest_first() -> None:
    order = TimeOrder.of(Segments.of([2, 3, 1], num_tail_rows=2))
    assert order.rows.tolist() == [2, 0, 5, 3, 1, 4]
    assert order.batch_sizes.tolist() == [3, 2, 1]
    assert order.sentences.tolist() == [1, 0, 2]
    tokens = torch.arange(6.0)[:, None]
    assert order.packed(tokens[order.rows])[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 0, 0]


def test_from_the_right_a_layer_reads_each_sentence_reversed() -> None:
    layer = RecurrentLayer(CELLS["gru"], D_IN, D).double()
    x = torch.randn(sum(LENGTHS), D_IN, dtype=torch.float64)
    order = TimeOrder.of(Segments.of(LENGTHS, num_tail_rows=1), from_right=True)
    found = order.packed(layer(x[order.rows], order.batch_sizes))
    expected = [layer.rnn(sentence.flip(0))[0].flip(0) for sentence in x.split(LENGTHS)]
    torch.testing.assert_close(found[:-1], torch.cat(expected))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_a_layer_is_torchs_over_each_sentence_alone(name: str, bidirectional: bool) -> None:
    """In values and in gradients."""
    layer = RecurrentLayer(CELLS[name], D_IN, D, bidirectional=bidirectional).double()
    reference = WHOLE[name](
        D_IN, D // 2 if bidirectional else D, bidirectional=bidirectional
    ).double()
    reference.load_state_dict(layer.rnn.state_dict())
    segments = Segments.of(LENGTHS, num_tail_rows=1)
    order = TimeOrder.of(segments)
    x = torch.randn(sum(LENGTHS), D_IN, dtype=torch.float64)
    found = order.packed(layer(x[order.rows], order.batch_sizes))
    expected = torch.cat([reference(sentence)[0] for sentence in x.split(LENGTHS)])
    torch.testing.assert_close(found[:-1], expected)
    assert not found[-1].any()
    weights = torch.randn_like(expected)
    (found[:-1] * weights).sum().backward()
    (expected * weights).sum().backward()
    for parameter, like in zip(layer.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, like.grad)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_steps_of_a_layer_are_torchs_from_any_state(name: str, residual: bool) -> None:
    layer = RecurrentLayer(CELLS[name], D, D, residual=residual).double()
    x = torch.randn(5, D, dtype=torch.float64)
    state = tuple(torch.randn(1, D).double() for _ in range(CELLS[name].num_states))
    expected, _ = layer.rnn(x, state if len(state) > 1 else state[0])
    for token, row in zip(x, expected, strict=True):
        y, state = layer.step(token[None], state)
        torch.testing.assert_close(y[0], row + token if residual else row)


@pytest.mark.parametrize("num_forward_channels", [D, D // 2, 0])
def test_the_bridge_sees_what_was_read_last(num_forward_channels: int) -> None:
    bridge = Bridge(D, 3, cell=CELLS["lstm"], num_forward_channels=num_forward_channels)
    states = torch.randn(sum(LENGTHS), D)
    layers = bridge(states, Segments.of(LENGTHS))
    assert len(layers) == 3
    weight, bias = bridge.output.weight, bridge.output.bias
    for b, sentence in enumerate(states.split(LENGTHS)):
        parts = sentence[-1, :num_forward_channels], sentence[0, num_forward_channels:]
        summary = torch.cat(parts)
        for number, (h, c) in enumerate(layers):
            rows = slice(number * D, number * D + D)
            torch.testing.assert_close(c[b], weight[rows] @ summary + bias[rows])
            torch.testing.assert_close(h[b], c[b].tanh())


def score_of_one(attention: GlobalAttention, name: str, query: Tensor, state: Tensor) -> float:
    """Luong et al. 2015, equation 8, and Bahdanau et al. 2015, A.1.2, on single numbers."""
    q, k, score = query.tolist(), state.tolist(), attention.score
    if name in ("dot", "scaled_dot"):
        scale = 1 if name == "dot" else D**-0.5
        return scale * sum(a * b for a, b in zip(q, k, strict=True))
    if name == "general":
        w = score.key.weight.tolist()
        return sum(q[i] * w[i][j] * k[j] for i in range(D) for j in range(D))
    w, bias, u = score.query.weight.tolist(), score.query.bias.tolist(), score.key.weight.tolist()
    (v,) = score.output.weight.tolist()
    total = 0.0
    for i in range(D):
        inner = bias[i] + sum(w[i][j] * q[j] + u[i][j] * k[j] for j in range(D))
        total += v[i] * math.tanh(inner)
    return total


@pytest.mark.parametrize("name", SCORES)
def test_attention_equals_a_triple_loop(name: str) -> None:
    attention = GlobalAttention(D, SCORES[name](D)).double()
    src_lengths, tgt_lengths = [3, 1, 4], [2, 5, 1]
    queries = torch.randn(sum(tgt_lengths), D, dtype=torch.float64)
    states = torch.randn(sum(src_lengths), D, dtype=torch.float64)
    segments = Segments.of(tgt_lengths, num_tail_rows=2)
    src_segments = Segments.of(src_lengths, num_tail_rows=1)
    found = attention(
        torch.cat([queries, queries[:2]]), segments, torch.cat([states, states[:1]]), src_segments
    )
    assert len(found) == sum(tgt_lengths) + 2
    rows = iter(found)
    for q_b, k_b in zip(queries.split(tgt_lengths), states.split(src_lengths), strict=True):
        for query in q_b:
            weights = [math.exp(score_of_one(attention, name, query, state)) for state in k_b]
            context = sum(w * k for w, k in zip(weights, k_b, strict=True)) / sum(weights)
            joined = attention.output.weight @ torch.cat([context, query])
            torch.testing.assert_close(next(rows), joined.tanh())


def test_groups_of_sentences_change_nothing() -> None:
    """One padded block of all sentences gives the same."""
    attention = GlobalAttention(D, SCORES["additive"](D)).double()
    lengths = torch.randint(1, 40, (2, 30)).tolist()
    segments, src_segments = (Segments.of(side) for side in lengths)
    assert len(length_groups(segments, src_segments)) > 2
    queries, states = (torch.randn(sum(side), D, dtype=torch.float64) for side in lengths)
    block = attention.attend(unpack(queries, segments), attention.source(states, src_segments))
    found = attention(queries, segments, states, src_segments)
    torch.testing.assert_close(found, pack(block, segments))
