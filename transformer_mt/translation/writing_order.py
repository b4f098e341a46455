"""The order in which a model writes the tokens of a target."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class WritingOrder:
    """Brings what belongs to the tokens of a target into the model's order, and back from it.

    Attributes:
        is_reversed: Whether the model writes the last word first (`data.reverse_target`).
    """

    is_reversed: bool

    def turned(self, items: Sequence[Item]) -> list[Item]:
        """Return one item for each token in the other order, if the model has another."""
        return list(reversed(items) if self.is_reversed else items)

    def turned_but_end(self, items: Sequence[Item]) -> list[Item]:
        """Likewise, where the last item is that of eos, which is last in both."""
        return [*self.turned(items[:-1]), items[-1]]
