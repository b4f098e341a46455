"""Word by word, text gets the ids that SentencePiece gives to whole lines."""

from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.conftest import small_text
from transformer_mt.data import word_cache
from transformer_mt.data.word_cache import WordCache
from transformer_mt.text.special_ids import EOS_ID
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.text.tokenizer_training import train_tokenizer

USER_SYMBOLS = ["<2de>", "a,b"]


@cache
def trained(byte_fallback: bool = True, kind: str = "bpe") -> Tokenizer:
    return train_tokenizer(
        small_text(400),
        type=kind,  # type: ignore[arg-type]
        vocab_size=350 if byte_fallback else 90,
        byte_fallback=byte_fallback,
        user_symbols=USER_SYMBOLS,
    )


fragments = st.sampled_from(
    ["Hund", "dogs", "läuft", "aaaa", " ", "  ", "\u2581", "<2de>", "a,b", "<0x41>", "</s>", "\t"]
) | st.sampled_from(
    ["\n", "\ufdd0", "\ud83d", "\ude00", "\u00a0", "\u2028", "\U0001f469\u200d", "中文", "\0"]
)
lines = st.lists(st.text() | st.lists(fragments).map("".join), min_size=1, max_size=6)


@pytest.mark.parametrize("byte_fallback", [True, False])
@settings(deadline=None)
@given(lines=lines)
@example(lines=[" ", "a  b", " a", "a ", "\u2581"])
@example(lines=["中 文", "中中 文文"])
@example(lines=["a\u2581", "\u2581 b", "\u2581\u2581a"])
def test_words_one_after_another_have_the_ids_of_the_line(byte_fallback, lines):
    tokenizer = trained(byte_fallback)
    words = WordCache(tokenizer, np.dtype(np.uint16))
    expected = [[*tokenizer.encode(line), EOS_ID] for line in lines]
    for _ in range(2):  # then from memory
        tokens, lengths = words.encode(lines)
        assert tokens.tolist() == [i for ids in expected for i in ids]
        assert lengths.tolist() == list(map(len, expected))


def test_memory_is_bounded_and_forgetting_changes_nothing(monkeypatch):
    monkeypatch.setattr(word_cache, "_NUM_REMEMBERED", 50)
    monkeypatch.setattr(word_cache, "_LONGEST_REMEMBERED", 8)
    tokenizer = trained()
    words = WordCache(tokenizer, np.dtype(np.uint16))
    for i in range(100):
        text = [f"dog {i} {i * i}", "x" * 100]
        expected = [t for line in text for t in (*tokenizer.encode(line), EOS_ID)]
        assert words.encode(text)[0].tolist() == expected
        assert len(words._remembered) < 50 + 6
        assert max(map(len, words._remembered)) <= 8


def test_a_word_is_tokenized_once(monkeypatch):
    tokenizer = trained()
    words = WordCache(tokenizer, np.dtype(np.uint16))
    words.encode(["the dog", "the cat"])
    seen: list[str] = []
    encode_batch = tokenizer.encode_batch
    monkeypatch.setattr(
        tokenizer, "encode_batch", lambda new: seen.extend(new) or encode_batch(new)
    )
    words.encode(["the cat sees the dog", "the man sees"])
    assert sorted(seen) == ["man", "sees"]


def test_models_whose_words_are_not_alone_are_known():
    assert trained().cuts_words_alone
    assert not trained(kind="unigram").cuts_words_alone
    with pytest.raises(ValueError, match="does not segment words on their own"):
        WordCache(trained(kind="unigram"), np.dtype(np.uint16))
