"""Which target tokens go with a source token, against the plain definition of model 1."""

from collections import defaultdict

import numpy as np
import pytest
from conftest import WORDS, small_text

from transformer_mt.bundle import load_bundle
from transformer_mt.data import lexicon as module
from transformer_mt.data.lexicon import ROUNDS, Lexicon, learn_lexicon
from transformer_mt.data.pairs import TokenPairs, tokenize_pairs
from transformer_mt.errors import ModelError
from transformer_mt.text.special_ids import EOS_ID
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.text.tokenizer_training import train_tokenizers


@pytest.fixture(scope="module")
def tokenizers(tiny_bundle) -> Tokenizers:
    return load_bundle(tiny_bundle).tokenizers


@pytest.fixture(scope="module")
def pairs(tokenizers) -> TokenPairs:
    return tokenize_pairs(*small_text(60, seed=3), tokenizers=tokenizers)


def model_1(pairs: TokenPairs) -> dict[int, dict[int, float]]:
    """Expectation and maximisation, word by word; None is the empty word."""
    probs: dict = defaultdict(lambda: defaultdict(lambda: 1.0))
    for _ in range(ROUNDS):
        counts: dict = defaultdict(lambda: defaultdict(float))
        for number in range(len(pairs)):
            src, tgt = (tokens.tolist()[:-1] for tokens in pairs.pair(number))
            for target in tgt:
                total = sum(probs[source][target] for source in [None, *src])
                for source in [None, *src]:
                    counts[source][target] += probs[source][target] / total
        probs = {
            source: {target: count / sum(own.values()) for target, count in own.items()}
            for source, own in counts.items()
        }
    return probs


@pytest.mark.parametrize("links_at_once", [1, 500, 1 << 20])
def test_candidates_are_the_most_probable_by_model_1(pairs, tokenizers, monkeypatch, links_at_once):
    monkeypatch.setattr(module, "_LINKS_AT_ONCE", links_at_once)
    found = learn_lexicon(
        [pairs], tokenizers, num_candidates=5, num_frequent=3, max_pairs=len(pairs)
    )
    expected = model_1(pairs)
    assert len(expected) > 30
    for source, probs in expected.items():
        if source is None:
            continue
        own = [token for token in found.candidates[source, 1:].tolist() if token > EOS_ID]
        assert found.candidates[source, 0] == source  # one vocabulary: itself
        best = sorted(probs.values(), reverse=True)[:5]
        assert [probs[token] for token in own] == pytest.approx(best, rel=1e-3)
    unseen = sorted(set(range(1, 400)) - set(expected))
    assert not found.candidates[unseen, 1:].any()


def test_most_words_are_found_with_their_translations(pairs, tokenizers):
    found = learn_lexicon([pairs], tokenizers, num_candidates=3, num_frequent=0, max_pairs=100)
    whole = {
        source: tokenizers.tgt.encode(target)
        for source, target in WORDS.items()
        if len(tokenizers.src.encode(source)) == 1
    }
    found_right = [
        bool(set(found.candidates[tokenizers.src.encode(source)[0], 1:]) & set(target))
        for source, target in whole.items()
    ]
    assert len(whole) > 10
    assert sum(found_right) > 0.7 * len(whole)


def test_frequent_tokens_are_those_of_most_targets(pairs, tokenizers):
    found = learn_lexicon([pairs], tokenizers, num_candidates=1, num_frequent=4, max_pairs=100)
    counts = np.bincount(pairs.tgt[pairs.tgt > EOS_ID])
    assert counts[found.frequent].tolist() == sorted(counts, reverse=True)[:4]


def test_of_many_pairs_some_are_taken_evenly_and_corpora_count_together(pairs, tokenizers):
    halves = [
        tokenize_pairs(src, tgt, tokenizers=tokenizers)
        for src, tgt in zip(
            np.array_split(small_text(60, seed=3)[0], 2),
            np.array_split(small_text(60, seed=3)[1], 2),
            strict=True,
        )
    ]
    arguments = {"num_candidates": 3, "num_frequent": 3}
    whole = learn_lexicon([pairs], tokenizers, **arguments, max_pairs=60)
    parts = learn_lexicon(halves, tokenizers, **arguments, max_pairs=60)
    some = learn_lexicon([pairs], tokenizers, **arguments, max_pairs=20)
    every_third = tokenize_pairs(
        *(side[::3] for side in small_text(60, seed=3)), tokenizers=tokenizers
    )
    thirds = learn_lexicon([every_third], tokenizers, **arguments, max_pairs=20)
    assert np.array_equal(whole.candidates, parts.candidates)
    assert np.array_equal(some.candidates, thirds.candidates)
    assert not np.array_equal(whole.candidates, some.candidates)


def test_a_file_gives_back_the_same_and_other_files_are_refused(tokenizers, tmp_path):
    table = np.zeros((tokenizers.src.vocab_size, 2), np.int32)
    table[:2] = [5, 0], [6, 7]
    made = Lexicon(table, np.array([9], np.int32))
    path = tmp_path / "new" / "list"
    made.save(path, tokenizers)
    found = Lexicon.load(path, tokenizers)
    assert np.array_equal(found.candidates, made.candidates)
    assert found.tokens_for([0, 1]).tolist() == [5, 6, 7, 9]
    other = train_tokenizers(*small_text(50), joint=True, type="bpe", vocab_size=320)
    with pytest.raises(ModelError, match="made for another vocabulary"):
        Lexicon.load(path, other)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ModelError, match="cannot be read as a shortlist"):
        Lexicon.load(path, tokenizers)
    with pytest.raises(ModelError, match="cannot be read as a shortlist"):
        Lexicon.load(tmp_path / "none", tokenizers)
    with pytest.raises(ModelError, match="no shortlist of this version"):
        Lexicon.load(_weights_file(tmp_path), tokenizers)


def _weights_file(folder):
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(1)}, folder / "weights")
    return folder / "weights"
