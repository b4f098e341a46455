"""Sequence-to-sequence models: an encoder and a decoder."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from transformer_mt.models.interfaces import Decoder, Encoder, Memory
from transformer_mt.packing import Segments


class Seq2Seq(nn.Module):
    """A model of target sentences given source sentences.

    Attributes:
        encoder: Reads the source.
        decoder: Predicts the target.
    """

    encoder: Encoder
    decoder: Decoder

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def encode(self, src: Tensor, segments: Segments) -> Memory:
        """Encode packed source tokens (Ns,)."""
        return self.encoder(src, segments)

    def forward(
        self, src: Tensor, src_segments: Segments, tgt_in: Tensor, tgt_segments: Segments
    ) -> Tensor:
        """Return the decoder's states (Nt, D) for packed tokens (Ns,) and (Nt,).

        Both sides must have the same number of sentences, in the same order. The loss
        projects them to logits, in chunks: see `nn.loss`.
        """
        return self.decoder(tgt_in, tgt_segments, self.encoder(src, src_segments))


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Switch dropout off, and back on at the end if it was on."""
    was_training = model.training
    if was_training:
        model.eval()
    try:
        yield
    finally:
        if was_training:
            model.train()
