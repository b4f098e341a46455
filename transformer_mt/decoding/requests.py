"""What is wanted of single sentences."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """A line of text to translate, and what its translation must hold.

    Attributes:
        text: The source.
        prefix: How the translation begins.
        phrases: What else it holds, in any order.
    """

    text: str
    prefix: str = ""
    phrases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """The same in tokens, for one sentence; no eos anywhere.

    Attributes:
        source: At least one token.
        prefix: Likewise.
        phrases: Likewise; none is empty.
    """

    source: tuple[int, ...]
    prefix: tuple[int, ...] = ()
    phrases: tuple[tuple[int, ...], ...] = ()

    @property
    def num_phrase_tokens(self) -> int:
        """Tokens of all phrases together."""
        return sum(map(len, self.phrases))
