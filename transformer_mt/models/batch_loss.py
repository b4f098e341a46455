"""The label-smoothed cross entropy of a packed batch."""

from functools import partial

import torch.nn.functional as F
from torch import Tensor

from transformer_mt.data.batches import Batch
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.nn.loss import label_smoothed_linear_cross_entropy
from transformer_mt.text.special_ids import BOS_ID


def batch_loss(
    model: Seq2Seq, batch: Batch, *, label_smoothing: float, compiled: bool = False
) -> tuple[Tensor, Tensor]:
    """Return label-smoothed loss and negative log-likelihood, sums over target tokens in nats.

    The loss of a model that returns states for its source, too, has that of the source added to it:
    each token but the first, and the bos after the last.

    Args:
        model: On the device of the batch.
        batch: Packed pairs, with or without a tail.
        label_smoothing: Share of the target distribution that is spread, in [0, 1).
        compiled: Whether the passes over the logits are compiled.
    """
    states = model(batch.src, batch.src_segments, batch.tgt_in, batch.tgt_segments)
    weight, bias = model.decoder.output_weight()
    cross_entropy = partial(
        label_smoothed_linear_cross_entropy, label_smoothing=label_smoothing, compiled=compiled
    )
    num_rows, num_tokens, source = len(batch.tgt_out), batch.num_tgt_tokens, batch.src_segments
    if len(states) == num_rows:
        return cross_entropy(states, weight, bias, batch.tgt_out, num_counted=num_tokens)
    of_target, of_source = states[:num_rows], states[num_rows:]
    loss, nll = cross_entropy(of_target, weight, bias, batch.tgt_out, num_counted=num_tokens)
    ends = source.offsets[1 : source.num_sentences + 1].long() - 1
    following = F.pad(batch.src[1:], (0, 1)).index_fill(0, ends, BOS_ID)
    more, _ = cross_entropy(of_source, weight, bias, following, num_counted=source.num_tokens)
    return loss + more, nll
