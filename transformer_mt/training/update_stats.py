"""Running totals of updates (loss, tokens, gradient norm), kept on the device to avoid waiting."""

from collections.abc import Sequence

import torch
from torch import Tensor

from transformer_mt.training.distributed import World

# Places in the sums.
_LOSS, _NLL, _TOKENS, _NORM, _UPDATES, _UNUSABLE, _UNUSABLE_IN_A_ROW = range(7)


class UpdateStats:
    """Counts updates on one rank; losses and tokens are its share, all else the same everywhere."""

    def __init__(self, world: World, device: torch.device) -> None:
        self._world = world
        self._sums = torch.zeros(7, device=device)

    def add(self, losses: Tensor, *, num_tokens: float, norm: Tensor, unusable: Tensor) -> None:
        """Count an update.

        Args:
            losses: Label-smoothed and plain, sums of this rank in nats (2,).
            num_tokens: Target tokens of the update, all ranks.
            norm: Of its gradient ().
            unusable: 1 if the update was left out, else 0 ().
        """
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
        self._sums[:_UNUSABLE_IN_A_ROW] += facts
        self._sums[_UNUSABLE_IN_A_ROW] = (self._sums[_UNUSABLE_IN_A_ROW] + 1) * unusable

    def means(self) -> dict[str, float]:
        """Wait for the device and return means over the updates since `reset`.

        Returns:
            `loss_nats` and `nll_nats` for each target token and the mean `gradient_norm`, all of
            usable updates; how many were not: `num_unusable`.
        """
        sums = self.total()
        tokens, updates = max(1.0, sums[_TOKENS]), max(1.0, sums[_UPDATES])
        return {
            "loss_nats": sums[_LOSS] / tokens,
            "nll_nats": sums[_NLL] / tokens,
            "gradient_norm": sums[_NORM] / updates,
            "num_unusable": sums[_UNUSABLE],
        }

    def num_unusable_in_a_row(self) -> int:
        """Wait for the device and return how many updates up to the last one were left out."""
        return round(self._sums[_UNUSABLE_IN_A_ROW].item())

    def reset(self) -> None:
        """Set all to zero but the unusable updates in a row."""
        self._sums[:_UNUSABLE_IN_A_ROW] = 0

    def total(self) -> list[float]:
        """Wait for the device and return the sums over all ranks, as `restore` takes them."""
        total: list[float] = self._world.sum_tensor(self._sums).tolist()
        every_rank_counts = slice(_NORM, None)
        total[every_rank_counts] = [count / self._world.size for count in total[every_rank_counts]]
        return total

    def restore(self, total: Sequence[float]) -> None:
        """Continue the sums of all ranks of an earlier session."""
        self._sums.copy_(torch.tensor(total))
        self._sums[:_NORM] /= self._world.size
