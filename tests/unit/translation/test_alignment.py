"""Word alignments and attention, and the alternatives of forced passes."""

from dataclasses import replace

import numpy as np
import pytest
from fake_decoders import CopyModel

from transformer_mt.bundle import Bundle, load_bundle
from transformer_mt.translation.alignment import attention_of
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.translator import Translator


@pytest.fixture
def copying(tiny_bundle) -> Bundle:
    """A bundle whose translations are the sources, and attend to the same place."""
    bundle = load_bundle(tiny_bundle)
    return replace(bundle, model=CopyModel(bundle.tokenizers.tgt.vocab_size).eval())


def test_words_are_linked_through_their_pieces(copying):
    """The model copies: word i belongs to word i, also over parts and characters in bytes."""
    lines = ["A dog sees the cat.", "a  big \u4f60\u597d, house", "", "Cat."]
    translator = Translator(copying, SearchOptions())
    candidates = [t.n_best[0] for t in translator.translate(lines)]
    for line, found in zip(lines, attention_of(translator, candidates), strict=True):
        assert found.source == found.target == " ".join(line.split())
        assert found.links() == [(i, i) for i in range(len(line.split()))]


def test_attention_is_the_mean_of_heads_of_a_layer_or_of_all(tiny_bundle, tiny_text):
    translator = Translator(load_bundle(tiny_bundle), SearchOptions())
    candidates = [t.n_best[0] for t in translator.translate(tiny_text[0][:4])]
    layers = [attention_of(translator, candidates, layer=n) for n in (1, 2)]
    both = attention_of(translator, candidates)
    for first, second, mean in zip(*layers, both, strict=True):
        np.testing.assert_allclose(mean.weights, (first.weights + second.weights) / 2, atol=1e-6)
        assert not np.allclose(first.weights, second.weights)
        assert mean.weights.shape == (len(mean.target_spans), len(mean.source_tokens))


def test_sentences_of_a_paragraph_are_translated_alone_and_joined(copying):
    lines = ["A dog.  The cat sees. Red!", "", "  One man. ", "Mr. Big has a car. "]
    whole = Translator(copying, SearchOptions(), split_sentences=True)
    results = whole.translate(lines)
    assert [result.text for result in results] == [line.strip() for line in lines]
    assert [len(result.n_best[0].parts) for result in results] == [3, 0, 1, 1]
    (alignment,) = attention_of(whole, [results[0].n_best[0]])
    assert alignment.pharaoh() == "0-0 1-1 2-2 3-3 4-4 5-5"


def test_alternatives_are_the_most_probable_tokens_of_the_forced_pass(tiny_bundle, tiny_text):
    translator = Translator(load_bundle(tiny_bundle), SearchOptions(beam_size=1))
    candidates = [t.n_best[0] for t in translator.translate(tiny_text[0][:6])]
    pairs = [(part.source, part.target) for c in candidates for part in c.parts]
    for (_, target), places, candidate in zip(
        pairs, translator.scorer.alternatives(pairs, 400), candidates, strict=True
    ):
        assert len(places) == len(target) + 1
        for place in places:
            assert sum(np.exp([log_prob for _, log_prob in place])) == pytest.approx(1, abs=1e-4)
        # Greedy search takes the first that is no special token.
        chosen = [next(token for token, _ in place if token > 2) for place in places]
        assert chosen[: len(target)] == target
        total = sum(dict(place)[t] for place, t in zip(places, [*target, 3], strict=True))
        assert total == pytest.approx(candidate.log_prob, abs=1e-4)
