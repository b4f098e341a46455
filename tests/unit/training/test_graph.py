"""What a CUDA graph would compute from its buffers, with a plain call in place of a replay."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.updates import fresh_model, some_pairs, updater_for
from transformer_mt.config.model import TransformerSettings
from transformer_mt.data.batches import eval_batches
from transformer_mt.nn.kernels import dispatch
from transformer_mt.nn.kernels.dispatch import attend_varlen
from transformer_mt.training.graph import _MAX_GRAPHS, Record
from transformer_mt.training.update import Updater


def packed_attention(q, k, v, q_offsets, k_offsets, max_q, max_k, window_size=(-1, -1)):  # type: ignore[no-untyped-def]
    """Attend by offsets alone, as flash attention does; sentences may be empty."""
    assert q_offsets.diff().max() <= max_q
    assert k_offsets.diff().max() <= max_k
    mixed = []
    for i in q_offsets.diff().nonzero()[:, 0].tolist():
        here, there = (slice(*o[i : i + 2].tolist()) for o in (q_offsets, k_offsets))
        parts = (x.transpose(0, 1) for x in (q[here], k[there], v[there]))
        causal = window_size == (-1, 0)
        attended = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=causal)
        mixed.append(attended.transpose(0, 1))
    return torch.cat(mixed)


@pytest.fixture(autouse=True)
def attention_by_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", packed_attention)
    monkeypatch.setattr(dispatch, "varlen_argument_of", lambda device: "window_size")
    monkeypatch.setattr(dispatch, "attend", lambda x, layout, **_: attend_varlen(x, layout))
    monkeypatch.setattr("transformer_mt.nn.attention.attend", dispatch.attend)


def batches(sizes: tuple[int, ...] = (3, 4, 9), row_multiple: int = 32) -> list[Any]:
    made = [
        list(eval_batches(some_pairs(size), max_tokens=10_000, row_multiple=row_multiple))
        for size in sizes
    ]
    return [batch for (batch,) in made]


def updater(record: Record | None, *, dropout: float = 0.0) -> Updater:
    settings = {
        "d_model": 16, "d_ff": 24, "num_heads": 2, "num_encoder_layers": 2, "dropout": dropout,
        "num_decoder_layers": 2,
    }  # fmt: skip
    model = fresh_model(TransformerSettings.model_validate(settings))
    return updater_for(model, clip_norm=1.0, record=record)


class Recorder:
    """Counts what it records; a replay computes anew from the same buffers."""

    def __init__(self) -> None:
        self.num_recorded = self.num_replayed = 0

    def __call__(self, compute: Any) -> Any:
        self.num_recorded += 1
        compute()  # random numbers, too

        def replay() -> Tensor:
            self.num_replayed += 1
            result: Tensor = compute()
            return result

        return replay


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_updates_by_graphs_are_those_without(dropout: float) -> None:
    """Three updates of three micro-batches, of which two have the same sizes."""
    record = Recorder()
    found, expected = updater(record, dropout=dropout), updater(None, dropout=dropout)
    for one in (found, expected):
        torch.manual_seed(3)
        for _ in range(3):
            parts = batches()
            one(parts, num_tokens=sum(part.num_tgt_tokens for part in parts), lr=0.01)
    weights = expected.trained.state_dict()
    for name, weight in found.trained.state_dict().items():
        torch.testing.assert_close(weight, weights[name], rtol=1e-4, atol=1e-6)
    assert found.facts() == pytest.approx(expected.facts())
    assert record.num_recorded < 9
    assert record.num_replayed == 9 + record.num_recorded  # each is tried once


def test_batches_of_the_same_rows_share_a_graph_whatever_their_sentences() -> None:
    record = Recorder()
    one = updater(record)
    for batch in batches((3, 4, 5), row_multiple=128):
        one([batch], num_tokens=1.0, lr=0.01)
    assert record.num_recorded == 1


def test_there_are_never_more_than_so_many_graphs() -> None:
    record = Recorder()
    one = updater(record)
    for size in range(3, 3 + _MAX_GRAPHS + 4):
        one(batches((size,), row_multiple=2), num_tokens=1.0, lr=0.01)
    assert record.num_recorded == _MAX_GRAPHS


@pytest.mark.parametrize("fault", ["raises", "computes something else"])
def test_where_no_graph_can_be_had_one_warning_says_so_and_training_goes_on(
    fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    def record(compute: Any) -> Any:
        if fault == "raises":
            raise RuntimeError("operation not permitted when stream is capturing")
        return lambda: torch.zeros(2)

    found, expected = updater(record), updater(None)
    for one in (found, expected, found, expected):
        one(batches((4,)), num_tokens=100.0, lr=0.01)
    (warning,) = [r for r in caplog.records if "training.cuda_graph" in r.message]
    assert ("not permitted" if fault == "raises" else "loss and gradient") in warning.message
    weights = expected.trained.state_dict()
    assert all(
        torch.allclose(weight, weights[name], atol=1e-6)
        for name, weight in found.trained.state_dict().items()
    )


def test_out_of_memory_is_left_to_who_can_split_the_batch() -> None:
    num_calls = 0

    def record(compute: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 1:
            raise torch.OutOfMemoryError("no room")
        return compute

    one, expected = updater(record), updater(None)
    one(batches((4,)), num_tokens=100.0, lr=0.01)
    expected(batches((4,)), num_tokens=100.0, lr=0.01)
    assert one.gradients.splits_in_a_row == 1
    assert one.facts() == pytest.approx(expected.facts(), rel=1e-5)
