"""What is special about one stack for both sides; what any decoder promises is in the contracts."""

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from transformer_mt.config.families import ModelSettings
from transformer_mt.data.batches import Batch, eval_batches
from transformer_mt.data.pairs import pack_pairs
from transformer_mt.models.batch_loss import batch_loss
from transformer_mt.models.build import build_model
from transformer_mt.models.costs import count_parameters
from transformer_mt.models.joint_sequence import Joint
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.packing import Segments

V, BOS = 20, 2
SOURCES, TARGETS = [[5, 6, 7, 3], [8, 3]], [[9, 3], [10, 11, 3]]


def model_of(**settings: object) -> Seq2Seq:
    torch.manual_seed(1)
    sizes = {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_decoder_layers": 2, "dropout": 0.0}
    checked = TypeAdapter(ModelSettings).validate_python(
        {"type": "decoder_only", **sizes, **settings}
    )
    return build_model(checked, src_vocab_size=V, tgt_vocab_size=V).double()


def batch_of(*, row_multiple: int | None = None) -> Batch:
    sources, targets = ([sentence[:-1] for sentence in side] for side in (SOURCES, TARGETS))
    pairs = pack_pairs(sources, targets)
    (batch,) = eval_batches(pairs, max_tokens=100, row_multiple=row_multiple)
    return batch


def test_the_rows_of_a_pair_stand_one_after_another() -> None:
    src, tgt = (Segments.of(lengths, num_tail_rows=2) for lengths in ([3, 1], [2, 4]))
    joint = Joint.of(src, tgt)
    marks = torch.tensor([0, 1, 2, 10, 90, 91, 100, 101, 110, 111, 112, 113, 94, 95])
    assert marks[joint.order].tolist() == [
        *(0, 1, 2, 100, 101), *(10, 110, 111, 112, 113), *(90, 91, 94, 95),
    ]  # fmt: skip
    assert marks[joint.order][joint.src].tolist() == marks[:6].tolist()
    assert marks[joint.order][joint.tgt].tolist() == marks[6:].tolist()
    assert joint.tgt_positions.tolist() == [3, 4, 1, 2, 3, 4, 0, 0]


@pytest.mark.parametrize("row_multiple", [None, 8])
def test_loss_on_both_is_that_of_a_language_model_over_the_pairs(row_multiple: int | None) -> None:
    model = model_of(loss_on="both").train()
    loss, nll = batch_loss(model, batch_of(row_multiple=row_multiple), label_smoothing=0.0)
    expected = torch.zeros(2, dtype=torch.float64)
    for source, target in zip(SOURCES, TARGETS, strict=True):
        sequence = [*source, BOS, *target]
        # The whole sequence as a source: every token is predicted from those before it.
        logits = states_as_source(model, sequence) @ model.decoder.output.weight.t()
        costs = -logits.log_softmax(1)[range(len(sequence) - 1), sequence[1:]]
        expected += torch.stack([costs.sum(), costs[-len(target) :].sum()])
    torch.testing.assert_close(torch.stack([loss, nll]), expected)
    with torch.no_grad():
        of_target = torch.stack(batch_loss(model.eval(), batch_of(), label_smoothing=0.0))
    torch.testing.assert_close(of_target, expected[1].expand(2))


def states_as_source(model: Seq2Seq, sequence: list[int]) -> Tensor:
    segments = Segments.of([len(sequence)])
    memory = model.encode(torch.tensor(sequence), segments)
    states: Tensor = model.decoder.both(torch.tensor([BOS]), Segments.of([1]), memory)[1]
    return states


@pytest.mark.parametrize("mask", ["causal", "full"])
@torch.no_grad()
def test_a_full_source_mask_shows_each_source_token_the_rest_of_the_source(mask: str) -> None:
    model = model_of(source_mask=mask).eval()
    first, second = (states_as_source(model, [5, 6, last, 3]) for last in (7, 8))
    assert torch.equal(first[:2], second[:2]) == (mask == "causal")


def test_a_stack_weighs_what_encoder_and_decoder_weigh() -> None:
    """But for biases and norms: cross-attention costs half a layer where d_ff is twice d_model."""
    sizes = {"d_model": 16, "d_ff": 32, "num_heads": 2}
    both = TypeAdapter(ModelSettings).validate_python(
        sizes | {"num_encoder_layers": 2, "num_decoder_layers": 2}
    )
    models = [model_of(num_decoder_layers=5), build_model(both, src_vocab_size=V, tgt_vocab_size=V)]
    weights = [sum(p.numel() for p in model.parameters() if p.dim() == 2) for model in models]
    assert weights[0] == weights[1]
    assert sum(count_parameters(models[0]).values()) < sum(weights[:1]) * 1.1


def test_what_is_seen_is_not_predicted() -> None:
    with pytest.raises(ValidationError, match="both would predict source tokens that are seen"):
        model_of(loss_on="both", source_mask="full")
