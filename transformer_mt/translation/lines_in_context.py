"""Document context: lines to translate with the lines before them."""

from collections.abc import Sequence

from transformer_mt.text.document_context import Context, join_sentences
from transformer_mt.text.tokenizer import Tokenizer


class LinesInContext:
    """Gives each line the lines before it, back to a blank one, as far as they fit.

    Args:
        tokenizer: Of the source.
        context_sentences: Maximum number of lines before.
        separator: Stands between them; one piece of the vocabulary.
        max_tokens: Maximum number of tokens of all together, without eos.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, context_sentences: int, separator: str, max_tokens: int
    ) -> None:
        self._context = Context(context_sentences)
        self._tokenizer = tokenizer
        self._separator = separator
        self._max_tokens = max_tokens

    def join(self, lines: Sequence[str], *, is_start: bool) -> list[str]:
        """Join each line with those before it; blank ones stay blank.

        Args:
            lines: In the order of the text.
            is_start: Whether a text begins; otherwise it continues that of the last call.
        """
        if is_start:
            self._context.forget()
        joined = []
        for line in lines:
            sentences = [text for (text,) in self._context.place(line)] or [line]
            while len(sentences) > 1 and self._length(sentences) > self._max_tokens:
                del sentences[0]
            joined.append(join_sentences(sentences, self._separator))
        return joined

    def _length(self, sentences: Sequence[str]) -> int:
        return len(self._tokenizer.encode(join_sentences(sentences, self._separator)))
