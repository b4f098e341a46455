"""The label-smoothed cross entropy of a packed batch."""

from torch import Tensor

from transformer_mt.data.batches import Batch
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.nn.loss import label_smoothed_linear_cross_entropy


def batch_loss(
    model: Seq2Seq, batch: Batch, *, label_smoothing: float, compiled: bool = False
) -> tuple[Tensor, Tensor]:
    """Return label-smoothed loss and negative log-likelihood, sums over target tokens in nats.

    Args:
        model: On the device of the batch.
        batch: Packed pairs, with or without a tail.
        label_smoothing: Share of the target distribution that is spread, in [0, 1).
        compiled: Whether the passes over the logits are compiled.
    """
    states = model(batch.src, batch.src_segments, batch.tgt_in, batch.tgt_segments)
    weight, bias = model.decoder.output_weight()
    return label_smoothed_linear_cross_entropy(
        states,
        weight,
        bias,
        batch.tgt_out,
        num_counted=batch.num_tgt_tokens,
        label_smoothing=label_smoothing,
        compiled=compiled,
    )
