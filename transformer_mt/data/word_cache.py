"""Tokenization word by word with a cache: each word is segmented once.

The more text, the more of it is words seen before (Zipf). The distinct words of a chunk are found
in C++ (Arrow), so that Python sees only these: on Tatoeba six times as fast as SentencePiece on
whole lines.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer_mt.data.pairs import Ints, pack_sentences
from transformer_mt.text.special_ids import EOS_ID
from transformer_mt.text.tokenizer import Tokenizer, to_utf8

_NUM_REMEMBERED = 1 << 18
"""Words, at about 200 bytes each."""
_LONGEST_REMEMBERED = 64
"""Bytes: longer words rarely occur again, and can be as long as a file."""


class WordCache:
    """The tokens that a tokenizer gives to lines, found word by word.

    Args:
        tokenizer: One that `cuts_words_alone`.
        dtype: Of tokens.
    """

    def __init__(self, tokenizer: Tokenizer, dtype: np.dtype[Any]) -> None:
        if not tokenizer.cuts_words_alone:
            raise ValueError("this tokenizer does not segment words on their own")
        self._tokenizer, self._dtype = tokenizer, dtype
        # Words are stored with the space after them. A line ends with one that is a line feed.
        # Nothing between two spaces is the piece of a lone space.
        (space,) = tokenizer.encode(" ")[:1]
        self._fixed = {b"\n ": self._pack([EOS_ID]), b" ": self._pack([space])}
        self._remembered = dict(self._fixed)

    def encode(self, lines: Sequence[str]) -> tuple[NDArray[Any], Ints]:
        """Tokenize lines: packed tokens, each line ended by eos (N,), and lengths with eos (B,)."""
        import pyarrow as pa

        text = to_utf8(" \n ".join([*lines, ""]))
        if text.count(b"\n") != len(lines) or not all(lines):
            # A line feed inside a line would end it here; an empty one has no piece of a space.
            tokens, lengths = pack_sentences(self._tokenizer.encode_batch(lines))
            return tokens.astype(self._dtype), lengths
        ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord(" ")) + 1
        offsets = pa.py_buffer(np.concatenate([[0], ends]).astype(np.int64))
        words = pa.Array.from_buffers(
            pa.large_binary(), len(ends), [None, offsets, pa.py_buffer(text)]
        ).dictionary_encode()
        cuts = pa.array(self._cut(words.dictionary.to_pylist()), pa.large_binary())
        tokens = np.frombuffer(cuts.take(words.indices).buffers()[2], self._dtype)
        line_ends = np.flatnonzero(tokens == EOS_ID)  # text never becomes a special symbol
        return tokens, np.diff(line_ends, prepend=-1)

    def _cut(self, words: list[bytes]) -> list[bytes]:
        """Return the tokens of different words."""
        if len(self._remembered) > _NUM_REMEMBERED:
            self._remembered = dict(self._fixed)
        known = self._remembered
        new = [word for word in words if word not in known]
        ids = self._tokenizer.encode_batch([word[:-1].decode() for word in new])
        found = dict(zip(new, map(self._pack, ids), strict=True))
        result = [known[word] if word in known else found[word] for word in words]
        known.update((w, cut) for w, cut in found.items() if len(w) <= _LONGEST_REMEMBERED)
        return result

    def _pack(self, ids: list[int]) -> bytes:
        return np.array(ids, self._dtype).tobytes()
