"""One update of the weights, from the micro-batches that make it up."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from transformer_mt.data.batches import Batch
from transformer_mt.decoding.batching import attempt
from transformer_mt.errors import ConfigError, DivergedError, TmtError
from transformer_mt.evaluation import PackedPairs, packed_loss
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.nn.layers import LayerDropout
from transformer_mt.training.compilation import compile_layers
from transformer_mt.training.distributed import World
from transformer_mt.training.graph import GraphedGradients, Record
from transformer_mt.training.optimizers import apply_update, set_learning_rate
from transformer_mt.training.sharding import whole
from transformer_mt.training.working_weights import WorkingWeights

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
MAX_UNUSABLE_IN_A_ROW = 10
MAX_SPLITS_IN_A_ROW = 3

Result = TypeVar("Result")

# Places in the tally.
_LOSS, _NLL, _TOKENS, _NORM, _UPDATES, _UNUSABLE, _UNUSABLE_IN_A_ROW = range(7)


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
        return self.loss_of(PackedPairs.of(batch))

    def loss_of(self, pairs: PackedPairs) -> tuple[Tensor, Tensor]:
        """Return the same for a batch that is laid out already."""
        return packed_loss(
            self.model, pairs, label_smoothing=self.label_smoothing, compiled=self.compiled
        )


class Updater:
    """Makes updates, and keeps count on the device of what they were like.

    Attributes:
        trained: The model whose weights are updated.
        with_loss: It, or its working copy, as a function of a batch, on this rank alone.
        optimizer: What updates them.
        scaler: Scale of the loss under fp16; does nothing otherwise.
        splits_in_a_row: How many updates up to the last one had to be split for want of memory.
    """

    def __init__(
        self,
        model: Seq2Seq,
        optimizer: torch.optim.Optimizer,
        *,
        world: World,
        device: torch.device,
        precision: str,
        label_smoothing: float,
        clip_norm: float | None,
        compiled: bool = False,
        working: WorkingWeights | None = None,
        record: Record | None = None,
    ) -> None:
        self.trained, self.optimizer = model, optimizer
        self._working = working
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
        self._weights = [weight for weight in model.parameters() if weight.requires_grad]
        self._world = world
        self._device = device
        self._dtype = DTYPES[precision]
        self._clip_norm = clip_norm
        self.splits_in_a_row = 0
        self.tally = torch.zeros(7, device=device)
        with_loss = ModelWithLoss(
            model if working is None else working.model,
            label_smoothing=label_smoothing,
            compiled=compiled,
        ).train()
        if compiled:
            with_loss.compiled = compile_layers(
                with_loss, device=device, autocast=self._forward_context()
            )
        self.with_loss = with_loss
        self.model = world.replicate(with_loss, device, some_unused=_leaves_out_layers(with_loss))
        self._graphs = (
            None if record is None else GraphedGradients(with_loss, self._gradients, record=record)
        )
        # The ranks of a sharded model meet in each pass: one that repeats a pass would be alone.
        self._can_retry = world.size == 1 or isinstance(self.model, DistributedDataParallel)

    def autocast(self) -> torch.autocast:
        """Return a context in which matrix products use the precision of the run."""
        return torch.autocast(
            self._device.type, dtype=self._dtype, enabled=self._dtype != torch.float32
        )

    def __call__(self, micro_batches: Sequence[Batch], *, num_tokens: float, lr: float) -> None:
        """Update the weights once; leave all as it was if a gradient is not finite.

        The loss sum of each micro-batch is divided by the tokens of the whole update, so that
        neither the split into micro-batches and ranks nor their unequal lengths change the result.

        Args:
            micro_batches: The share of this rank, equally many on all ranks.
            num_tokens: Target tokens of the update over all micro-batches and ranks.
            lr: Learning rate.
        """
        losses = self.accumulate(micro_batches, num_tokens=num_tokens)
        self.apply(losses, num_tokens=num_tokens, lr=lr)

    def accumulate(self, micro_batches: Sequence[Batch], *, num_tokens: float) -> Tensor:
        """Compute the gradients of an update; return its two loss sums.

        Where a rank is out of memory, all begin anew with each micro-batch in two halves.

        Raises:
            TmtError: If that is not possible.
        """
        if self._working is not None:
            self._working.refresh()
        parts, is_split = list(micro_batches), False
        while (losses := self._accumulate_if_it_fits(parts, num_tokens)) is None:
            self._drop_gradients()
            parts, is_split = [half for part in parts for half in part.halves()], True
        if self._working is not None:
            self._working.hand_over_gradients()
        self.splits_in_a_row = self.splits_in_a_row + 1 if is_split else 0
        return losses

    def has_room_for(self, batch: Batch) -> bool:
        """Try whether all ranks can compute the gradients of a batch; nothing is changed by it.

        Raises:
            ConfigError: If a rank cannot try alone.
        """
        if not self._can_retry:
            raise ConfigError(
                "training.micro_batch_tokens: auto cannot be found with a sharded model: set a "
                "number"
            )
        copies = 0 if self.optimizer.state else 2  # of the weights, that Adam is going to make

        def compute() -> list[Tensor]:
            """Compute a gradient and hold all that an update holds."""
            room = [torch.empty_like(weight) for weight in self._weights * copies]
            return [self._backward(self._forward(batch), 1.0), *room]

        devices = [self._device] if self._device.type == "cuda" else []
        with torch.random.fork_rng(devices), self._world.exchange(self.model, now=False):
            fits = attempt(compute) is not None
        self._drop_gradients()
        return self._world.sum_numbers([float(not fits)]) == [0.0]

    def apply(self, losses: Tensor, *, num_tokens: float, lr: float) -> None:
        """Update the weights by the gradients that `accumulate` computed, and count the update."""
        self.scaler.unscale_(self.optimizer)
        gradients = [weight.grad for weight in self._weights if weight.grad is not None]
        norm = whole(nn.utils.get_total_norm(gradients))
        if self._clip_norm is not None:
            nn.utils.clip_grads_with_norm_(self._weights, self._clip_norm, norm)
        unusable = (~torch.isfinite(norm)).float()
        set_learning_rate(self.optimizer, lr)
        if self.scaler.is_enabled():
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            apply_update(self.optimizer, unusable)
        self._drop_gradients()
        self._count(losses, num_tokens, norm, unusable)

    def total_tally(self) -> list[float]:
        """Wait for the device and return the tally over all ranks, as `restore_tally` takes it."""
        total: list[float] = self._world.sum_tensor(self.tally).tolist()
        every_rank_counts = slice(_NORM, None)
        total[every_rank_counts] = [count / self._world.size for count in total[every_rank_counts]]
        return total

    def restore_tally(self, total: Sequence[float]) -> None:
        """Continue the tally of all ranks of an earlier session."""
        self.tally.copy_(torch.tensor(total))
        self.tally[:_NORM] /= self._world.size

    def read_tally(self) -> dict[str, float]:
        """Wait for the device and return what the updates since `reset_tally` were like.

        Returns:
            `loss_nats` and `nll_nats` for each target token and the mean `gradient_norm`, all of
            usable updates; how many were not: `num_unusable`; under fp16, `loss_scale`.
        """
        tally = self.total_tally()
        tokens, updates = max(1.0, tally[_TOKENS]), max(1.0, tally[_UPDATES])
        scale = {"loss_scale": self.scaler.get_scale()} if self.scaler.is_enabled() else {}
        return scale | {
            "loss_nats": tally[_LOSS] / tokens,
            "nll_nats": tally[_NLL] / tokens,
            "gradient_norm": tally[_NORM] / updates,
            "num_unusable": tally[_UNUSABLE],
        }

    def check(self) -> None:
        """Wait for the device and see whether updates are still being made.

        Raises:
            DivergedError: If too many in a row were unusable.
        """
        in_a_row = self.tally[_UNUSABLE_IN_A_ROW].item()
        # Under fp16 unusable updates are how the scale finds its place, until it is too small.
        if in_a_row >= MAX_UNUSABLE_IN_A_ROW and self.scaler.get_scale() <= 1:
            raise DivergedError(
                f"the last {in_a_row:.0f} updates had gradients that are not finite: lower "
                "training.lr, lengthen the warm-up, set training.clip_norm, or choose precision "
                "bf16 or fp32"
            )

    def reset_tally(self) -> None:
        """Begin to count anew, but for unusable updates in a row."""
        self.tally[:_UNUSABLE_IN_A_ROW] = 0

    def _accumulate_if_it_fits(self, parts: Sequence[Batch], num_tokens: float) -> Tensor | None:
        """Add the gradients of all parts and return loss sums; None where a rank has no room.

        Until the backward pass of the last part no rank waits for another, so that all can agree
        before it whether they go on. That pass hardly needs more memory than is taken by then.
        """
        if self._graphs is not None:
            return self._attempt(partial(self._replay, parts, num_tokens), parts, can_retry=True)
        *others, last = parts
        losses = torch.zeros(2, device=self._device)
        alone = self._world.size == 1

        def add_others() -> Tensor:
            for part in others:
                losses.add_(self._backward(self._forward(part), num_tokens))
            return losses

        with self._world.exchange(self.model, now=False):
            fits = self._attempt(add_others, parts, can_retry=self._can_retry) is not None
            forward = partial(self._forward, last)
            loss = self._attempt(forward, parts, can_retry=self._can_retry) if fits else None
        if self._world.sum_numbers([float(loss is None)]) != [0.0] or loss is None:
            return None
        with self._world.exchange(self.model, now=True):
            if isinstance(self.model, DistributedDataParallel):
                # What its forward pass does outside of `no_sync`; there, it could not be undone.
                self.model.reducer.prepare_for_backward(list(loss))
            backward = partial(self._backward, loss, num_tokens)
            sums = self._attempt(backward, parts, can_retry=alone)
        return None if sums is None else losses + sums

    def _replay(self, parts: Sequence[Batch], num_tokens: float) -> Tensor:
        """Compute the gradients of all parts by graphs, on one rank; return the two loss sums."""
        assert self._graphs is not None
        self._graphs.clear()
        losses = torch.zeros(2, device=self._device)
        for part in parts:
            losses += self._graphs(part.to(self._device), 1 / num_tokens)
        return losses

    def _gradients(self, pairs: PackedPairs, factor: Tensor) -> Tensor:
        """Add the gradients of a micro-batch times a factor (); return its two loss sums."""
        with self.autocast():
            losses = self.with_loss.loss_of(pairs)
        torch.autograd.backward(losses[0] * factor)
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

    def _forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the two loss sums of a micro-batch."""
        with self._forward_context():
            losses: tuple[Tensor, Tensor] = self.model(batch.to(self._device))
        return losses

    def _forward_context(self) -> AbstractContextManager[object]:
        """Return the context of the precision of the run; a working copy has it by itself."""
        return self.autocast() if self._working is None else nullcontext()

    def _backward(self, losses: tuple[Tensor, Tensor], num_tokens: float) -> Tensor:
        """Add the gradient of a micro-batch; return its two loss sums, detached."""
        # Data parallelism takes the mean over ranks; the sum is wanted.
        loss = self.scaler.scale(losses[0] * (self._world.size / num_tokens))
        loss.backward()  # type: ignore[no-untyped-call]
        if self._working is not None and self._world.size == 1:
            # Sums of many micro-batches are exact; with ranks, their exchange must come first.
            self._working.hand_over_gradients()
        return torch.stack(losses).detach()

    def _drop_gradients(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.with_loss.zero_grad(set_to_none=True)  # those of a working copy

    def _count(self, losses: Tensor, num_tokens: float, norm: Tensor, unusable: Tensor) -> None:
        usable = 1 - unusable
        share = num_tokens / self._world.size
        facts = torch.stack(
            [
                *torch.nan_to_num(losses) * usable,
                usable * share,
                torch.nan_to_num(norm) * usable,
                usable,
                unusable,
            ]
        )
        self.tally[:_UNUSABLE_IN_A_ROW] += facts
        self.tally[_UNUSABLE_IN_A_ROW] = (self.tally[_UNUSABLE_IN_A_ROW] + 1) * unusable


def _leaves_out_layers(model: nn.Module) -> bool:
    return any(isinstance(module, LayerDropout) and module.p > 0 for module in model.modules())
