"""Recurrent layers over packed sentences, and one step at a time.

torch's kernels read sentences side by side, the longest first: step t takes token t of all that are
at least that long. `TimeOrder` is that order of the rows.

Letters: N packed tokens, B sentences, T steps, D d_model, R rows of a step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.padding import take_rows
from transformer_mt.packing import Segments

CellState = tuple[Tensor, ...]
"""What a cell carries on: (h,), or (h, c) of an LSTM, each (R, D)."""


@dataclass(frozen=True)
class TimeOrder:
    """The tokens of packed sentences, ordered by step, then by length of their sentence.

    Attributes:
        rows: Packed row of each token (tokens,), int64.
        places: Place in this order of each packed row (tokens,), int64.
        sentences: The sentences, longest first (B,), int64.
        batch_sizes: How many sentences take part in each step (T,), int64, on the CPU.
        num_tail_rows: Packed rows after the last token.
    """

    rows: Tensor
    places: Tensor
    sentences: Tensor
    batch_sizes: Tensor
    num_tail_rows: int

    @classmethod
    def of(cls, segments: Segments, *, from_right: bool = False) -> "TimeOrder":
        """Order the tokens of `segments`; the lengths must come to the CPU for that.

        Args:
            segments: Where the sentences lie.
            from_right: Whether step 0 takes the last token of each sentence.
        """
        lengths, num_sentences = segments.lengths, segments.num_sentences
        sentences = lengths.argsort(descending=True, stable=True)
        rank = torch.empty_like(sentences)
        rank[sentences] = torch.arange(num_sentences, device=lengths.device)
        of_token = rank.repeat_interleave(lengths, output_size=segments.num_tokens)
        rows = (segments.positions[: segments.num_tokens] * num_sentences + of_token).argsort()
        places = torch.empty_like(rows)
        places[rows] = torch.arange(len(rows), device=rows.device)
        if from_right:
            ends = segments.offsets[:num_sentences] + segments.offsets[1 : num_sentences + 1] - 1
            mirror = ends.long().repeat_interleave(lengths, output_size=len(rows))
            mirror -= torch.arange(len(rows), device=rows.device)
            rows, places = mirror[rows], places[mirror]
        ends_after = torch.bincount(lengths.cpu() - 1)
        batch_sizes = num_sentences - ends_after.cumsum(0) + ends_after
        return cls(rows, places, sentences, batch_sizes, segments.num_tail_rows)

    def packed(self, x: Tensor) -> Tensor:
        """Reorder (tokens, D) to packed sentences (N, D), with a tail of zeros."""
        return F.pad(take_rows(x, self.places), (0, 0, 0, self.num_tail_rows))


Weights = Sequence[Tensor]


def _lstm_step(x: Tensor, state: CellState, weights: Weights) -> CellState:
    h, c = torch.lstm_cell(x, state, *weights)
    return h, c


def _gru_step(x: Tensor, state: CellState, weights: Weights) -> CellState:
    return (torch.gru_cell(x, *state, *weights),)


def _rnn_step(x: Tensor, state: CellState, weights: Weights) -> CellState:
    return (torch.rnn_tanh_cell(x, *state, *weights),)


@dataclass(frozen=True)
class Cell:
    """A kind of recurrent layer.

    Attributes:
        module: Reads whole sentences: torch's.
        step: Reads one token of each row: torch's equations for it.
        num_states: Tensors that it carries from step to step.
    """

    module: Callable[..., nn.RNNBase]
    step: Callable[[Tensor, CellState, Weights], CellState]
    num_states: int


CELLS = {
    "rnn": Cell(nn.RNN, _rnn_step, num_states=1),
    "lstm": Cell(nn.LSTM, _lstm_step, num_states=2),
    "gru": Cell(nn.GRU, _gru_step, num_states=1),
}


class RecurrentLayer(nn.Module):
    """A recurrent cell over sentences, then dropout and optionally a residual.

    Source: Elman 1990; Hochreiter and Schmidhuber 1997; Cho et al. 2014, with torch's equations
    (reset gate of the GRU after the matrix product). Dropout as in Zaremba et al. 2014.

    Args:
        cell: One of `CELLS`.
        d_input: Width of what it reads.
        d_model: Width of what it returns; each direction has half.
        bidirectional: Whether a second cell goes from right to left.
        residual: Whether the input is added to the output; they must have the same width.
        dropout: On the output of the cell.
    """

    def __init__(
        self,
        cell: Cell,
        d_input: int,
        d_model: int,
        *,
        bidirectional: bool = False,
        residual: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        width = d_model // 2 if bidirectional else d_model
        self.rnn = cell.module(d_input, width, bidirectional=bidirectional)
        self.residual = residual
        self.dropout = Dropout(dropout)
        self._cell = cell

    def forward(self, x: Tensor, batch_sizes: Tensor, *, state: CellState | None = None) -> Tensor:
        """Map tokens (tokens, D) to (tokens, D), both in the order of time.

        Args:
            x: See `TimeOrder`.
            batch_sizes: See `TimeOrder`.
            state: Before the first token (B, D), longest sentence first; None: zeros.
        """
        hx = None if state is None else tuple(part[None] for part in state)
        given = hx if hx is None or len(hx) > 1 else hx[0]
        y, _ = self.rnn(PackedSequence(x, batch_sizes), given)
        return self._add(x, y.data)

    def step(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """Map one token of each row (R, D) to (R, D), from left to right."""
        state = self._cell.step(x, state, self.rnn.all_weights[0])
        return self._add(x, state[0]), state

    def _add(self, x: Tensor, y: Tensor) -> Tensor:
        if self.residual:
            return self.dropout.add(x, y)
        dropped: Tensor = self.dropout(y)
        return dropped


class Bridge(nn.Module):
    """Initial states of the decoder's layers, from the encoder's states after a whole sentence.

    Source: Bahdanau et al. 2015, appendix A.2.2. differs: from both directions, for each layer;
    the cell state of an LSTM is that whose tanh is h.
    """

    def __init__(
        self, d_model: int, num_layers: int, *, cell: Cell, num_forward_channels: int
    ) -> None:
        """Take sizes; of the encoder's D channels, the first are those from left to right."""
        super().__init__()
        self.output = nn.Linear(d_model, num_layers * d_model)
        self.num_layers = num_layers
        self.num_states = cell.num_states
        self.num_forward_channels = num_forward_channels

    def forward(self, states: Tensor, segments: Segments) -> list[CellState]:
        """Map packed states of the encoder (N, D) to the states (B, D) of each layer."""
        offsets = segments.offsets[: segments.num_sentences + 1].long()
        # From left to right all is read at the last token, from right to left at the first.
        last = states[offsets[1:] - 1, : self.num_forward_channels]
        first = states[offsets[:-1], self.num_forward_channels :]
        layers = self.output(torch.cat([last, first], dim=1)).chunk(self.num_layers, dim=1)
        return [(part.tanh(), part)[: self.num_states] for part in layers]
