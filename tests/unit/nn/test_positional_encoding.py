"""Positional encodings against the formulas of their papers, in plain loops."""

import math

import pytest
import torch
from torch import Tensor

from transformer_mt.errors import DataError
from transformer_mt.nn.attention import SelfAttention
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels.dispatch import PackedAttention, attend
from transformer_mt.nn.kernels.padded import attend_by_length, attend_padded
from transformer_mt.nn.masks import AttentionMask
from transformer_mt.nn.positional_encoding import (
    AlibiEncoding,
    LearnedEncoding,
    PositionalEncoding,
    RelativeBiasEncoding,
    RelativeEncoding,
    RotaryEncoding,
    RowColumnEncoding,
    SinusoidalEncoding,
    alibi_slopes,
    distance_buckets,
    sinusoids,
)
from transformer_mt.nn.recorded_attention import RecordedAttention
from transformer_mt.packing import Segments

H, K = 3, 8
LENGTHS = [5, 19, 1, 7, 18]


def scheme(name: str, *, bidirectional: bool = True) -> PositionalEncoding:
    made: dict[str, PositionalEncoding] = {
        "rotary": RotaryEncoding(K),
        "relative": RelativeEncoding(K, max_distance=4),
        "relative_bias": RelativeBiasEncoding(
            H, num_buckets=8, max_distance=10, bidirectional=bidirectional
        ),
        "alibi": AlibiEncoding(H),
    }
    for parameter in made[name].parameters():
        torch.nn.init.normal_(parameter)
    return made[name].double()


def plain_score(
    positions: PositionalEncoding, q: Tensor, k: Tensor, i: int, j: int, head: int
) -> Tensor:
    """What query i, key j (K,) of a head score, by the papers' words."""
    bonus = torch.zeros((), dtype=q.dtype)
    if isinstance(positions, RotaryEncoding):
        half = K // 2
        product = 0.0
        for c in range(half):
            angle = (j - i) * 10_000 ** (-2 * c / K)
            turned = complex(k[c].item(), k[c + half].item()) * complex(
                math.cos(angle), math.sin(angle)
            )
            product += (complex(q[c].item(), -q[c + half].item()) * turned).real
        return torch.tensor(product / math.sqrt(K), dtype=q.dtype)
    if isinstance(positions, RelativeEncoding):
        distance = max(-4, min(4, j - i))
        bonus = q @ positions.keys[distance + 4] / math.sqrt(K)
    elif isinstance(positions, RelativeBiasEncoding):
        bonus = positions.bucket_bias[plain_bucket(j - i, positions.bidirectional), head]
    elif isinstance(positions, AlibiEncoding):
        bonus = bonus - alibi_slopes(H)[head] * abs(i - j)
    return q @ k / math.sqrt(K) + bonus


def plain_bucket(distance: int, bidirectional: bool, num: int = 8, farthest: int = 10) -> int:
    first = 0
    if bidirectional:
        num //= 2
        first, distance = num * (distance > 0), abs(distance)
    else:
        distance = max(0, -distance)
    exact = num // 2
    if distance < exact:
        return first + distance
    far = exact + int(math.log(distance / exact) / math.log(farthest / exact) * (num - exact))
    return first + min(far, num - 1)


def plain_attention(x: Tensor, positions: PositionalEncoding, *, causal: bool) -> Tensor:
    """Mix the values of one sentence (T, 3, H, K) by three loops."""
    mixed = torch.zeros(len(x), H, K, dtype=x.dtype)
    for head in range(H):
        q, k, v = x[:, :, head].unbind(1)
        for i in range(len(x)):
            seen = range(i + 1 if causal else len(x))
            scores = [plain_score(positions, q[i], k[j], i, j, head) for j in seen]
            weights = torch.stack(scores).softmax(0)
            mixed[i, head] = sum(weight * v[j] for weight, j in zip(weights, seen, strict=True))
    return mixed


@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("name", ["rotary", "relative", "relative_bias", "alibi"])
def test_attention_with_a_scheme_equals_a_triple_loop(name: str, causal: bool) -> None:
    torch.manual_seed(1)
    positions = scheme(name, bidirectional=not causal)
    segments = Segments.of(LENGTHS, num_tail_rows=3)
    x = torch.randn(sum(LENGTHS) + 3, 3, H, K, dtype=torch.float64)
    positions.embed(x.new_zeros(1, 1), torch.zeros(1, dtype=torch.int64), longest=20)
    rotated = positions.rotate(x, segments.positions)
    found = attend(
        (rotated,), AttentionMask(segments, segments, causal=causal), dropout=Dropout(0.0),
        bias=positions.bias,
    )  # fmt: skip
    start = 0
    for length in LENGTHS:
        expected = plain_attention(x[start : start + length], positions, causal=causal)
        # Tables of angles are float32.
        torch.testing.assert_close(found[start : start + length], expected, rtol=1e-6, atol=1e-6)
        start += length


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_rotation_in_place_equals_one_that_is_learned_through(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    positions = RotaryEncoding(K)
    positions.embed(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64), longest=20)
    for _ in range(2):  # of other places, which must not get the angles of the first ones
        places, x = torch.randint(20, (7,)), torch.randn(7, 3, H, K, dtype=dtype)
        expected = positions.rotate(x.clone(), places)
        with torch.inference_mode():
            in_place = x.clone()
            found = positions.rotate(in_place, places.clone())
        assert found.data_ptr() == in_place.data_ptr()
        # In bf16 both round on the way, not at the same places.
        tolerance = 1e-6 if dtype == torch.float32 else 2e-2
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_a_compiled_rotation_in_inference_equals_a_plain_one() -> None:
    positions, places, x = scheme("rotary"), torch.arange(7), torch.randn(7, 3, H, K)
    with torch.inference_mode():
        positions.embed(x, places, longest=7)
        qkv = x.clone()
        found = torch.compile(positions.rotate, backend="aot_eager")(qkv, places)
        torch.testing.assert_close(found, positions.rotate(x.clone(), places))
    torch.testing.assert_close(qkv, x)


def test_positions_seen_in_inference_can_be_trained_with() -> None:
    positions, places = scheme("rotary"), torch.arange(7)
    x = torch.randn(7, 3, H, K)
    positions.embed(x, places, longest=7)
    expected = torch.autograd.functional.vjp(lambda x: positions.rotate(x, places), x, x)[1]
    with torch.inference_mode():
        positions.rotate(x.clone(), places.clone())
        positions.rotate(x.clone(), places)
    found = torch.autograd.functional.vjp(lambda x: positions.rotate(x, places), x, x)[1]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["relative", "relative_bias"])
def test_blocks_of_similar_length_give_the_values_and_gradients_of_one_block(name: str) -> None:
    torch.manual_seed(2)
    positions = scheme(name)
    lengths = [3, 40, 4, 38, 2, 90, 5] * 3
    segments = Segments.of(lengths)
    x = torch.randn(sum(lengths), 3, H, K, dtype=torch.float64, requires_grad=True)
    mask = AttentionMask(segments, segments)
    blocks = PackedAttention(mask).blocks
    assert len(blocks.segments) > 1
    results = []
    for mixed in (
        attend_padded((x,), mask, dropout=Dropout(0.0), bias=positions.bias),
        attend_by_length(x, mask, blocks, dropout=Dropout(0.0), bias=positions.bias),
    ):
        wanted = torch.autograd.grad(mixed.sin().sum(), [x, *positions.parameters()])
        results.append([mixed, *wanted])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_only_distances_matter_to_rotary_positions() -> None:
    positions = scheme("rotary")
    x = torch.randn(2, 3, H, K, dtype=torch.float64)
    positions.embed(x.new_zeros(1, 1), torch.zeros(1, dtype=torch.int64), longest=2000)

    def score(i: int, j: int) -> Tensor:
        turned = positions.rotate(x, torch.tensor([i, j]))
        assert torch.equal(turned[:, 2], x[:, 2])
        return (turned[0, 0] * turned[1, 1]).sum(-1)

    torch.testing.assert_close(score(3, 7), score(1003, 1007), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(score(3, 7), score(3, 9), rtol=1e-2)


def test_buckets_are_those_of_the_plain_rule_and_never_fewer_for_farther_tokens() -> None:
    distances = torch.arange(-40, 41)
    for bidirectional in (True, False):
        found = distance_buckets(
            distances, num_buckets=8, max_distance=10, bidirectional=bidirectional
        )
        assert found.tolist() == [plain_bucket(d, bidirectional) for d in distances.tolist()]
        assert set(found.tolist()) == set(range(8)) - ({4} if bidirectional else set())


def test_alibi_slopes_are_those_of_the_paper() -> None:
    assert alibi_slopes(8) == [2**-i for i in range(1, 9)]
    assert alibi_slopes(16) == [2 ** (-i / 2) for i in range(1, 17)]
    assert alibi_slopes(3) == [2**-4, 2**-8, 2**-2]
    assert len(set(alibi_slopes(12))) == 12


def test_what_is_seen_has_a_weight_though_its_score_is_far_below() -> None:
    attention = SelfAttention(8, 8, positions=AlibiEncoding(8))
    segments = Segments.of([300])
    attend_recorded = RecordedAttention(AttentionMask(segments, segments, causal=True))
    attention(torch.zeros(300, 8), attend_recorded)
    (weights,) = attend_recorded.weights
    seen = torch.ones(300, 300, dtype=torch.bool).tril()
    assert torch.equal(weights[0, 0] > 0, seen)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 8, 300))


def test_sinusoids_are_the_formula_of_the_paper_with_sines_before_cosines() -> None:
    table = sinusoids(50, 8)
    for position in (0, 1, 17, 49):
        for i in range(4):
            angle = position / 10000 ** (2 * i / 8)
            assert table[position, i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 4 + i].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_with_endpoint_the_last_wavelength_is_10000_turns() -> None:
    table = sinusoids(50, 8, endpoint=True)
    for position, channel in [(0, 0), (7, 1), (49, 3)]:
        angle = position / 10_000 ** (channel / 3)
        assert table[position, channel].item() == pytest.approx(math.sin(angle), abs=1e-6)
        assert table[position, 4 + channel].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_sinusoids_of_far_positions_keep_their_digits() -> None:
    angle = 4999 / 10000 ** (2 * 1 / 512)
    assert sinusoids(5000, 512)[4999, 1].item() == pytest.approx(math.sin(angle), abs=1e-6)


def test_sinusoidal_positions_reach_any_length_and_are_no_weights() -> None:
    scheme = SinusoidalEncoding(8)
    zeros = torch.zeros(3, 8)
    for longest in (3, 1000, 5, 3000):
        at = torch.tensor([0, longest // 2, longest - 1])
        found = scheme.embed(zeros, at, longest=longest)
        torch.testing.assert_close(found, sinusoids(longest, 8)[at])
    assert not scheme.state_dict()
    assert scheme.max_length is None


def test_sinusoidal_positions_follow_the_type_of_the_embeddings() -> None:
    scheme = SinusoidalEncoding(8)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        x = torch.zeros(1, 8, dtype=dtype)
        assert scheme.embed(x, torch.tensor([0]), longest=1).dtype == dtype


def test_learned_positions_add_their_vectors() -> None:
    scheme = LearnedEncoding(6, 4)
    torch.nn.init.normal_(scheme.weight)
    x, at = torch.randn(3, 4), torch.tensor([5, 0, 2])
    torch.testing.assert_close(scheme.embed(x, at, longest=6), x + scheme.weight[at])


def test_learned_positions_refuse_a_longer_sentence() -> None:
    scheme = LearnedEncoding(6, 4)
    with pytest.raises(DataError, match=r"sentence of 7 tokens.*positions for 6.*max_length"):
        scheme.embed(torch.zeros(1, 4), torch.tensor([0]), longest=7)


def test_rows_and_columns_are_those_of_the_text_in_lines() -> None:
    positions = RowColumnEncoding(10, 4, K)
    for parameter in positions.parameters():
        torch.nn.init.normal_(parameter)
    assert len(positions.rows) == 3
    found = positions.embed(torch.zeros(10, K), torch.arange(10), longest=10)
    for place in range(10):
        expected = positions.rows[place // 4] + positions.columns[place % 4]
        torch.testing.assert_close(found[place], expected)
    with pytest.raises(DataError, match="11 tokens, but the model has learned positions for 10"):
        positions.embed(torch.zeros(11, K), torch.arange(11), longest=11)
