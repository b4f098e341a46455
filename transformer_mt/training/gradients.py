"""Gradient accumulation over micro-batches and ranks, in mixed precision."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from transformer_mt.data.batches import Batch
from transformer_mt.errors import ConfigError, TmtError
from transformer_mt.models.batch_loss import batch_loss
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.nn.layers import LayerDropout
from transformer_mt.out_of_memory import attempt
from transformer_mt.training.distributed import World
from transformer_mt.training.layer_compilation import compile_layers
from transformer_mt.training.working_weights import WorkingWeights

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

Result = TypeVar("Result")


class ModelWithLoss(nn.Module):
    """A model as a function from a batch to its loss, the form that data parallelism wraps.

    Attributes:
        compiled: Whether the loss is compiled.
    """

    def __init__(self, model: Seq2Seq, *, label_smoothing: float, compiled: bool = False) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        self.compiled = compiled

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the label-smoothed and the plain loss of a batch, sums over its tokens in nats."""
        return batch_loss(
            self.model, batch, label_smoothing=self.label_smoothing, compiled=self.compiled
        )


class Gradients:
    """Computes the gradients of a model.

    Attributes:
        model: Its weights get the gradients.
        with_loss: It, or its working copy, as a function of a batch, on this rank alone.
        replicated: The same, as all ranks compute it together.
        scaler: Scale of the loss under fp16; does nothing otherwise.
        splits_in_a_row: Updates up to the last one that had to be split for lack of memory.
    """

    def __init__(
        self,
        model: Seq2Seq,
        *,
        world: World,
        device: torch.device,
        precision: str,
        label_smoothing: float,
        compiled: bool = False,
        working: WorkingWeights | None = None,
    ) -> None:
        self.model = model
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
        self.splits_in_a_row = 0
        self._working = working
        self._world = world
        self._device = device
        self._dtype = DTYPES[precision]
        # A working copy is in the precision of the run by itself.
        self._precision = self.autocast() if working is None else nullcontext()
        with_loss = ModelWithLoss(
            model if working is None else working.model,
            label_smoothing=label_smoothing,
            compiled=compiled,
        ).train()
        if compiled:
            with_loss.compiled = compile_layers(with_loss, device=device, autocast=self._precision)
        self.with_loss = with_loss
        self._layer_dropouts = [m for m in with_loss.modules() if isinstance(m, LayerDropout)]
        self.replicated = world.replicate(
            with_loss, device, some_unused=any(side.p > 0 for side in self._layer_dropouts)
        )
        # The ranks of a sharded model meet in each pass: one that repeats a pass would be alone.
        self._can_retry = world.size == 1 or isinstance(self.replicated, DistributedDataParallel)

    def autocast(self) -> torch.autocast:
        """Return a context in which matrix products use the precision of the run."""
        return torch.autocast(
            self._device.type, dtype=self._dtype, enabled=self._dtype != torch.float32
        )

    def seed_layer_dropout(self, seed: int, step: int) -> None:
        """Let all ranks leave out the same layers in all micro-batches of an update.

        Otherwise some ranks would wait for gradients that others do not have, and the result would
        depend on the number of ranks.
        """
        for number, side in enumerate(self._layer_dropouts):
            side.seed = (seed * 1_000_003 + step) * 4096 + 4095 - number

    def accumulate(self, micro_batches: Sequence[Batch], *, num_tokens: float) -> Tensor:
        """Accumulate the gradients of an update; return its two loss sums (2,).

        The loss sum of each micro-batch is divided by the tokens of the whole update, so that
        neither the split into micro-batches and ranks nor their unequal lengths change the result.
        Where a rank is out of memory, all repeat it with each micro-batch in two halves.

        Args:
            micro_batches: The share of this rank, equally many on all ranks.
            num_tokens: Target tokens of the update over all micro-batches and ranks.

        Raises:
            TmtError: If there is no room, and nothing to be done.
        """
        if self._working is not None:
            self._working.refresh()
        parts, is_split = list(micro_batches), False
        while (losses := self._accumulate_if_it_fits(parts, num_tokens)) is None:
            self.drop()
            parts, is_split = [half for part in parts for half in part.halves()], True
        if self._working is not None:
            self._working.hand_over_gradients()
        self.splits_in_a_row = self.splits_in_a_row + 1 if is_split else 0
        return losses

    def drop(self) -> None:
        """Free all gradients."""
        self.model.zero_grad(set_to_none=True)
        self.with_loss.zero_grad(set_to_none=True)  # those of a working copy

    def have_room_for(self, batch: Batch, *, extra: Sequence[Tensor]) -> bool:
        """Try whether all ranks can compute the gradients of a batch; nothing is changed by it.

        Args:
            batch: On the processor.
            extra: Memory is needed for more tensors like these.

        Raises:
            ConfigError: If a rank cannot try alone.
        """
        if not self._can_retry:
            raise ConfigError(
                "training.micro_batch_tokens: auto cannot be found with a sharded model: set a "
                "number"
            )

        def compute() -> list[Tensor]:
            """Compute a gradient and hold all that an update holds."""
            room = [torch.empty_like(tensor) for tensor in extra]
            return [self._backward(self._forward(batch), 1.0), *room]

        devices = [self._device] if self._device.type == "cuda" else []
        with torch.random.fork_rng(devices), self._world.exchange(self.replicated, now=False):
            fits = attempt(compute) is not None
        self.drop()
        return self._world.sum_numbers([float(not fits)]) == [0.0]

    def _accumulate_if_it_fits(self, parts: Sequence[Batch], num_tokens: float) -> Tensor | None:
        """Add the gradients of all parts and return loss sums; None where a rank has no room.

        Until the backward pass of the last part no rank waits for another, so that all can agree
        before it whether to continue. That pass hardly needs more memory than is in use by then.
        """
        with self._world.exchange(self.replicated, now=False):
            but_last = partial(self._all_but_last, parts, num_tokens)
            done = self._attempt(but_last, parts, can_retry=self._can_retry)
        if self._world.sum_numbers([float(done is None)]) != [0.0] or done is None:
            return None
        sums, losses = done
        with self._world.exchange(self.replicated, now=True):
            if isinstance(self.replicated, DistributedDataParallel):
                # As its forward pass does outside of `no_sync`, where it could not be undone.
                self.replicated.reducer.prepare_for_backward(list(losses))
            backward = partial(self._backward, losses, num_tokens)
            last = self._attempt(backward, parts, can_retry=self._world.size == 1)
        return None if last is None else sums + last

    def _all_but_last(
        self, parts: Sequence[Batch], num_tokens: float
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Do all but the last backward pass; return the loss sums before it (2,), and its own."""
        *others, last = parts
        sums = torch.zeros(2, device=self._device)
        for part in others:
            sums += self._backward(self._forward(part), num_tokens)
        return sums, self._forward(last)

    def _forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the two loss sums of a micro-batch."""
        with self._precision:
            losses: tuple[Tensor, Tensor] = self.replicated(batch.to(self._device))
        return losses

    def _backward(self, losses: tuple[Tensor, Tensor], num_tokens: float) -> Tensor:
        """Add the gradient of a micro-batch; return its two loss sums (2,), detached."""
        # Data parallelism takes the mean over ranks; the sum is wanted.
        loss = self.scaler.scale(losses[0] * (self._world.size / num_tokens))
        loss.backward()  # type: ignore[no-untyped-call]
        if self._working is not None and self._world.size == 1:
            # Sums of many micro-batches are exact; with ranks, their exchange must come first.
            self._working.hand_over_gradients()
        return torch.stack(losses).detach()

    def _attempt(
        self, function: Callable[[], Result], parts: Sequence[Batch], *, can_retry: bool
    ) -> Result | None:
        """Call a function; return None where it has no room for `parts` but may for smaller ones.

        Raises:
            TmtError: If there is no room and nothing to be done.
        """
        result = attempt(function)
        if result is None and (not can_retry or all(part.num_pairs == 1 for part in parts)):
            num_tokens = max(part.num_tgt_tokens for part in parts)
            raise TmtError(
                f"rank {self._world.rank}: out of memory with {num_tokens} target tokens at once: "
                "lower training.micro_batch_tokens and with it data.filters.max_length, or take a "
                "smaller model"
            )
        return result
