"""When a run ends, and how much of it is over."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of a run; None = no bound of this kind."""

    max_steps: int | None = None
    max_epochs: float | None = None
    max_total_tokens: int | None = None
    max_minutes: float | None = None

    def shares(
        self, *, step: int, epochs: float, num_tokens: int, seconds: float
    ) -> dict[str, float]:
        """Return for each bound how much of it is used up; 1 and more = reached.

        Args:
            step: Updates made.
            epochs: Passes over the data made, with their fractions.
            num_tokens: Target tokens seen.
            seconds: Time used, earlier sessions of the run included.
        """
        used = {
            "max_steps": (step, self.max_steps),
            "max_epochs": (epochs, self.max_epochs),
            "max_total_tokens": (num_tokens, self.max_total_tokens),
            "max_minutes": (seconds / 60, self.max_minutes),
        }
        return {name: amount / bound for name, (amount, bound) in used.items() if bound}

    def reached(self, shares: Mapping[str, float]) -> str | None:
        """Name the first bound that is used up; None if there is none."""
        for name, share in shares.items():
            if share >= 1:
                return f"{name} {getattr(self, name):g} is reached"
        return None
