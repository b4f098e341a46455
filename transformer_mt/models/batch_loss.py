"""The label-smoothed cross entropy of a packed batch."""

from dataclasses import dataclass

from torch import Tensor

from transformer_mt.data.batches import Batch
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.nn.loss import label_smoothed_linear_cross_entropy
from transformer_mt.packing import Segments, num_tail_parts


def batch_loss(model: Seq2Seq, batch: Batch, *, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """Return label-smoothed loss and negative log-likelihood, sums over target tokens in nats."""
    return packed_loss(model, PackedPairs.of(batch), label_smoothing=label_smoothing)


@dataclass(frozen=True)
class PackedPairs:
    """What a model and its loss read of a batch.

    Attributes:
        src: Source tokens (Ns,).
        src_segments: Where their sentences lie.
        tgt_in: What the decoder reads (Nt,).
        tgt_out: What it should say (Nt,).
        tgt_segments: Where their sentences lie.
        num_counted: Target tokens that count, from the first on; as of the loss.
    """

    src: Tensor
    src_segments: Segments
    tgt_in: Tensor
    tgt_out: Tensor
    tgt_segments: Segments
    num_counted: int | Tensor

    @classmethod
    def of(cls, batch: Batch) -> "PackedPairs":
        """Lay out the sentences of a batch, on its device."""
        tails = (
            batch.src.numel() - batch.num_src_tokens,
            batch.tgt_in.numel() - batch.num_tgt_tokens,
        )
        num_parts = num_tail_parts(tails, max(batch.max_src_length, batch.max_tgt_length))
        return cls(
            src=batch.src,
            src_segments=Segments.from_lengths(
                batch.src_lengths,
                max_length=batch.max_src_length,
                num_tokens=batch.num_src_tokens,
                num_rows=batch.src.numel(),
                num_tail_parts=num_parts,
            ),
            tgt_in=batch.tgt_in,
            tgt_out=batch.tgt_out,
            tgt_segments=Segments.from_lengths(
                batch.tgt_lengths,
                max_length=batch.max_tgt_length,
                num_tokens=batch.num_tgt_tokens,
                num_rows=batch.tgt_in.numel(),
                num_tail_parts=num_parts,
            ),
            num_counted=batch.num_tgt_tokens,
        )


def packed_loss(
    model: Seq2Seq, pairs: PackedPairs, *, label_smoothing: float, compiled: bool = False
) -> tuple[Tensor, Tensor]:
    """Return label-smoothed loss and negative log-likelihood, sums over target tokens in nats."""
    states = model(pairs.src, pairs.src_segments, pairs.tgt_in, pairs.tgt_segments)
    weight, bias = model.decoder.output_weight()
    return label_smoothed_linear_cross_entropy(
        states,
        weight,
        bias,
        pairs.tgt_out,
        num_counted=pairs.num_counted,
        label_smoothing=label_smoothing,
        compiled=compiled,
    )
