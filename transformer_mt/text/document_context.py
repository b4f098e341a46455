"""Document context: several sentences on one line, with a separator between them.

Source: Tiedemann and Scherrer 2017, on both sides.
"""

from collections import deque
from collections.abc import Sequence


def join_sentences(sentences: Sequence[str], separator: str) -> str:
    """Write sentences on one line; the separator belongs to the one before it."""
    return f"{separator} ".join(sentences)


class Context:
    """Remembers the last sentences of a document.

    Args:
        num_sentences: Greatest number of sentences to remember.
    """

    def __init__(self, num_sentences: int) -> None:
        self._before: deque[tuple[str, ...]] = deque(maxlen=num_sentences)

    def place(self, *sentence: str) -> list[tuple[str, ...]]:
        """Return a sentence after those before it, and remember it.

        Args:
            *sentence: With its translations, if there are any. If all are blank, a document ends
                and there is nothing to return; if some are, the sentence stands alone.
        """
        num_blank = sum(not text.strip() for text in sentence)
        if num_blank == len(sentence):
            self.forget()
            return []
        if num_blank:
            return [sentence]
        placed = [*self._before, sentence]
        self._before.append(sentence)
        return placed

    def forget(self) -> None:
        """Begin a new document."""
        self._before.clear()
