"""One update: gradient, clipping by its norm, a step of the optimizer unless it is not finite."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from transformer_mt.data.batches import Batch
from transformer_mt.errors import DivergedError
from transformer_mt.training.gradients import Gradients
from transformer_mt.training.optimizers import apply_update, set_learning_rate
from transformer_mt.training.sharding import whole
from transformer_mt.training.update_stats import UpdateStats

MAX_UNUSABLE_IN_A_ROW = 10
MAX_SPLITS_IN_A_ROW = 3


class Updater:
    """Makes updates, and keeps statistics of them.

    Attributes:
        gradients: Of the model, from micro-batches.
        optimizer: What updates its weights.
        stats: Sums over the updates.
        trained: The model.
    """

    def __init__(
        self,
        gradients: Gradients,
        optimizer: torch.optim.Optimizer,
        *,
        stats: UpdateStats,
        clip_norm: float | None,
    ) -> None:
        self.gradients, self.optimizer, self.stats = gradients, optimizer, stats
        self.trained = gradients.model
        self._weights = [weight for weight in self.trained.parameters() if weight.requires_grad]
        self._clip_norm = clip_norm

    def __call__(self, micro_batches: Sequence[Batch], *, num_tokens: float, lr: float) -> None:
        """Update the weights once; leave all as it was if a gradient is not finite.

        Args:
            micro_batches: The share of this rank, equally many on all ranks.
            num_tokens: Target tokens of the update over all micro-batches and ranks.
            lr: Learning rate.
        """
        losses = self.gradients.accumulate(micro_batches, num_tokens=num_tokens)
        self.apply(losses, num_tokens=num_tokens, lr=lr)

    def apply(self, losses: Tensor, *, num_tokens: float, lr: float) -> None:
        """Update the weights by the gradients that they have, and count the update.

        Args:
            losses: What `Gradients.accumulate` returned.
            num_tokens: Target tokens of the update over all micro-batches and ranks.
            lr: Learning rate.
        """
        scaler = self.gradients.scaler
        scaler.unscale_(self.optimizer)
        gradients = [weight.grad for weight in self._weights if weight.grad is not None]
        norm = whole(nn.utils.get_total_norm(gradients))
        if self._clip_norm is not None:
            nn.utils.clip_grads_with_norm_(self._weights, self._clip_norm, norm)
        unusable = (~torch.isfinite(norm)).float()
        set_learning_rate(self.optimizer, lr)
        if scaler.is_enabled():
            scaler.step(self.optimizer)
            scaler.update()
        else:
            apply_update(self.optimizer, unusable)
        self.gradients.drop()
        self.stats.add(losses, num_tokens=num_tokens, norm=norm, unusable=unusable)

    def has_room_for(self, batch: Batch) -> bool:
        """Try whether all ranks have room for an update by a batch; nothing is changed by it.

        Raises:
            ConfigError: If a rank cannot try alone.
        """
        copies = 0 if self.optimizer.state else 2  # of the weights, that Adam is going to make
        return self.gradients.have_room_for(batch, extra=self._weights * copies)

    def facts(self) -> dict[str, float]:
        """Wait for the device; return `UpdateStats.means`, and under fp16 `loss_scale`."""
        scaler = self.gradients.scaler
        scale = {"loss_scale": scaler.get_scale()} if scaler.is_enabled() else {}
        return scale | self.stats.means()

    def check(self) -> None:
        """Wait for the device and see whether updates are still being made.

        Raises:
            DivergedError: If too many in a row were unusable.
        """
        in_a_row = self.stats.num_unusable_in_a_row()
        # Under fp16 unusable updates are how the scale finds its place, until it is too small.
        if in_a_row >= MAX_UNUSABLE_IN_A_ROW and self.gradients.scaler.get_scale() <= 1:
            raise DivergedError(
                f"the last {in_a_row} updates had gradients that are not finite: lower "
                "training.lr, lengthen the warm-up, set training.clip_norm, or choose precision "
                "bf16 or fp32"
            )
