"""Interfaces of encoders and decoders.

Training and search know models by these alone.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from transformer_mt.packing import Segments


@dataclass(frozen=True)
class Memory:
    """What the encoder hands to the decoder.

    Attributes:
        states: One vector for each source token, packed (N, D).
        segments: Where the sentences of `states` lie.
    """

    states: Tensor
    segments: Segments


class Encoder(Protocol):
    """Reads source sentences."""

    @property
    def max_length(self) -> int | None:
        """Longest sentence it can take, in tokens incl. eos; None = any."""
        ...

    @property
    def patch_size(self) -> int | None:
        """Pixels of the patches that it reads in place of tokens; None: it reads tokens."""
        ...

    def __call__(self, src: Tensor, segments: Segments) -> Memory:
        """Encode packed tokens (N,), or patches (N, P), whose sentences lie in `segments`.

        Raises:
            DataError: If a sentence is longer than `max_length`.
        """
        ...

    def self_attention(self, src: Tensor, segments: Segments) -> Tensor | None:
        """Return the weights of attention among tokens, in every layer and head.

        Returns:
            (B, L, H, S, S); each row sums to 1 over its sentence and is 0 where it may not look.
            Rows after the end of a sentence are undefined. None: it has no such attention.
        """
        ...


class DecoderState(Protocol):
    """The state of a decoder between steps, such as its KV cache: B sentences of W hypotheses."""

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> "DecoderState":
        """Keep, repeat and reorder hypotheses; the state it is called on is spent.

        Args:
            rows: Row of the old state that each new one continues (B', W'), int64, counted in the
                flattened (B * W). Those in line b must belong to sentence `sentences[b]`.
            sentences: Old sentences that stay (B',), int64, on the CPU, where the search knows
                them; None: all, in order.
        """
        ...


class StepDecoder(Protocol):
    """Predicts the next token of many hypotheses: all that the search needs."""

    def init_state(self, memory: Memory, *, max_length: int) -> DecoderState:
        """Return the state before the first token: one row for each sentence of `memory`.

        Args:
            memory: The encoder's output. Its hypotheses share it; it is never copied per row.
            max_length: Bound on the number of steps, bos counted.
        """
        ...

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read one more token of each hypothesis; `state` is spent, the new one replaces it.

        Args:
            tokens: Last token of each hypothesis (B, W), int64; bos in the first step. Padding in a
                row that is no hypothesis: its logits mean nothing, and it need not be computed.
            state: What came before them.

        Returns:
            Logits of the next token (B, W, V), the caller's to overwrite, and the new state.
        """
        ...


class Decoder(StepDecoder, Protocol):
    """Predicts each target token from the ones before it and the memory."""

    @property
    def max_length(self) -> int | None:
        """Longest target it can take, in tokens incl. bos or eos; None = any."""
        ...

    def __call__(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        """Return states (N, D) for packed tokens (N,); `project` makes them logits."""
        ...

    def project(self, states: Tensor) -> Tensor:
        """Return logits (.., V) of states (.., D)."""
        ...

    def output_weight(self) -> tuple[Tensor, Tensor | None]:
        """Return weight (V, D) and bias (V,) or None of the projection, for the loss in chunks."""
        ...

    def self_attention(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor | None:
        """Return the weights of attention among targets (B, L, H, T, T): see `Encoder`."""
        ...

    def source_attention(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        """Return the weights of attention from targets to their sources, in every layer and head.

        Args:
            tgt_in: Targets after bos, packed (N,).
            segments: Where the B targets lie.
            memory: The encoder's output.

        Returns:
            (B, L, H, T, S); each row sums to 1 over the tokens of its source and is 0 after them.
            Rows after the end of a target are undefined.
        """
        ...

    def limited_to(self, tokens: Tensor) -> StepDecoder:
        """Return a decoder with the same weights whose logits are those of some tokens.

        Args:
            tokens: Numbers (K,), int64. Logit k is that of token `tokens[k]`; what `step` reads has
                its usual numbers.
        """
        ...
