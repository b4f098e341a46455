"""Small decoders as `models.interfaces` wants them, to test search without a Transformer."""

import torch
from torch import Tensor, nn

from transformer_mt.models.interfaces import Memory
from transformer_mt.packing import Segments, pack_tokens

PAD, UNK, BOS, EOS = 0, 1, 2, 3
BANNED = (PAD, UNK, BOS)


def packed(sentences: list[list[int]]) -> tuple[Tensor, Segments]:
    """Pack sentences of token ids."""
    return pack_tokens(sentences, "cpu")


def memory_of(sentences: list[list[int]]) -> Memory:
    """A memory whose states are the source tokens themselves."""
    tokens, segments = packed(sentences)
    return Memory(tokens[:, None].float(), segments)


class TableState:
    """A number for each row that stands for everything before it."""

    def __init__(self, keys: Tensor) -> None:
        self.keys = keys

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> "TableState":
        num_rows_each = self.keys.shape[1]
        old = rows // num_rows_each
        expected = torch.arange(len(self.keys)) if sentences is None else sentences
        assert (old == expected[:, None]).all(), "a row went to another sentence"
        return TableState(self.keys.flatten()[rows])


class TableDecoder:
    """Logits are random numbers that depend on the source and on the whole target before."""

    max_length = None

    def __init__(
        self, vocab_size: int, *, seed: int = 0, spread: float = 1.0, size: int = 4093
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.logits = spread * torch.randn(size, vocab_size, generator=generator)
        self.num_rows = 0
        self.num_steps = 0

    def _start(self, memory: Memory) -> Tensor:
        parts = memory.states[:, 0].long().split(memory.segments.lengths.tolist())
        return torch.stack([(part * torch.arange(7, 7 + len(part))).sum() for part in parts])

    def _next(self, keys: Tensor, tokens: Tensor) -> Tensor:
        return (keys * 31 + tokens * 7 + 1) % len(self.logits)

    def __call__(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        states = []
        parts = tgt_in.split(segments.lengths.tolist())
        for key, part in zip(self._start(memory), parts, strict=True):
            for token in part:
                key = self._next(key, token)
                states.append(self.logits[key])
        return torch.stack(states)

    def project(self, states: Tensor) -> Tensor:
        return states

    def output_weight(self) -> tuple[Tensor, None]:
        return torch.eye(self.logits.shape[1]), None

    def init_state(self, memory: Memory, *, max_length: int) -> TableState:
        self.num_rows = self.num_steps = 0
        return TableState(self._start(memory)[:, None])

    def step(self, tokens: Tensor, state: TableState) -> tuple[Tensor, TableState]:
        self.num_steps += 1
        self.num_rows += tokens.numel()
        keys = self._next(state.keys, tokens)
        return self.logits[keys], TableState(keys)


class GruState:
    """What a GRU has read, for each hypothesis, beside what it knows of the source."""

    def __init__(self, context: Tensor, hidden: Tensor) -> None:
        self.context = context  # (B, D), one for all rows of a sentence
        self.hidden = hidden  # (B, W, D)

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> "GruState":
        context = self.context if sentences is None else self.context[sentences]
        return GruState(context, self.hidden.flatten(0, 1)[rows])


class GruDecoder(nn.Module):
    """A recurrent network that sees the mean of embedded source tokens."""

    max_length = None

    def __init__(
        self, vocab_size: int, d_model: int = 16, *, seed: int = 0, spread: float = 3.0
    ) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(vocab_size, d_model)
            self.cell = nn.GRUCell(2 * d_model, d_model)
            self.output = nn.Linear(d_model, vocab_size)
        nn.init.normal_(self.output.weight, std=spread * d_model**-0.5)

    def _context(self, memory: Memory) -> Tensor:
        parts = memory.states[:, 0].long().split(memory.segments.lengths.tolist())
        return torch.stack([self.embedding(part).mean(0) for part in parts])

    def forward(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        states = []
        parts = tgt_in.split(segments.lengths.tolist())
        for context, part in zip(self._context(memory), parts, strict=True):
            hidden = torch.zeros_like(context)
            for token in part:
                hidden = self.cell(torch.cat((self.embedding(token), context)), hidden)
                states.append(hidden)
        return torch.stack(states)

    def project(self, states: Tensor) -> Tensor:
        return self.output(states)

    def output_weight(self) -> tuple[Tensor, Tensor]:
        return self.output.weight, self.output.bias

    def init_state(self, memory: Memory, *, max_length: int) -> GruState:
        context = self._context(memory)
        return GruState(context, torch.zeros_like(context)[:, None])

    def step(self, tokens: Tensor, state: GruState) -> tuple[Tensor, GruState]:
        context = state.context[:, None].expand(-1, tokens.shape[1], -1)
        inputs = torch.cat((self.embedding(tokens), context), dim=-1).flatten(0, 1)
        hidden = self.cell(inputs, state.hidden.flatten(0, 1)).view_as(state.hidden)
        return self.output(hidden), GruState(state.context, hidden)


class CopyState:
    """Sources and the place up to which they are copied."""

    def __init__(self, sources: Tensor, position: int) -> None:
        self.sources = sources  # (B, S), eos behind the end
        self.position = position

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> "CopyState":
        sources = self.sources if sentences is None else self.sources[sentences]
        return CopyState(sources, self.position)


class CopyModel(nn.Module):
    """Encoder and decoder in one, whose most probable translation is the source itself.

    Other tokens are far less probable, the nearer to the right one the more.
    """

    def __init__(self, vocab_size: int, *, max_length: int | None = None) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.zeros(1))
        self.max_length = max_length
        self.vocab_size = vocab_size
        self.batches: list[list[int]] = []
        self.modes: list[bool] = []

    @property
    def encoder(self) -> "CopyModel":
        return self

    @property
    def decoder(self) -> "CopyModel":
        return self

    def encode(self, src: Tensor, segments: Segments) -> Memory:
        self.batches.append(segments.lengths.tolist())
        self.modes.append(self.training)
        return Memory(src[:, None].float(), segments)

    def _sources(self, memory: Memory) -> Tensor:
        parts = memory.states[:, 0].long().split(memory.segments.lengths.tolist())
        return nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=EOS)

    def _logits(self, wanted: Tensor) -> Tensor:
        distance = (torch.arange(self.vocab_size) - wanted[..., None]).abs()
        return -torch.where(distance > 0, 10.0 + distance / self.vocab_size, 0.0)

    def forward(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        pairs = zip(self._sources(memory), segments.lengths.tolist(), strict=True)
        ends = torch.full((segments.max_length,), EOS)
        wanted = [torch.cat((source, ends))[:length] for source, length in pairs]
        return self._logits(torch.cat(wanted))

    def project(self, states: Tensor) -> Tensor:
        return states

    def output_weight(self) -> tuple[Tensor, None]:
        return torch.eye(self.vocab_size), None

    def source_attention(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        """Each token attends to its source alone, in 2 layers of 1 head."""
        sizes = (segments.max_length, memory.segments.max_length)
        return torch.eye(max(sizes))[: sizes[0], : sizes[1]].expand(
            segments.num_sentences, 2, 1, *sizes
        )

    def init_state(self, memory: Memory, *, max_length: int) -> CopyState:
        return CopyState(self._sources(memory), 0)

    def step(self, tokens: Tensor, state: CopyState) -> tuple[Tensor, CopyState]:
        place = min(state.position, state.sources.shape[1] - 1)
        wanted = state.sources[:, place, None].expand_as(tokens)
        return self._logits(wanted), CopyState(state.sources, state.position + 1)
