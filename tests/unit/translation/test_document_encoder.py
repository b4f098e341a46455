"""Segment memory in translation and scoring: what is kept is what a whole document would give."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import small_text
from transformer_mt.bundle import Bundle, load_bundle
from transformer_mt.errors import ConfigError
from transformer_mt.models.build import build_model
from transformer_mt.models.ensemble import ensemble
from transformer_mt.translation.document_encoder import DocumentEncoder
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.requests import Line
from transformer_mt.translation.rescoring import rescore
from transformer_mt.translation.translator import Translator

OPTIONS = SearchOptions(beam_size=2, max_length_offset=8)


@pytest.fixture(scope="module")
def bundle(tiny_bundle: Path) -> Bundle:
    """A bundle with segment memory and random weights, large enough to tell contexts apart."""
    tiny = load_bundle(tiny_bundle)
    model = {**tiny.config.model.model_dump(), "positions": {"type": "rotary"}, "norm": "pre"}
    document = {"context_sentences": 2, "memory": "states"}
    config = tiny.config.model_copy(
        update={
            "model": type(tiny.config.model).model_validate(model),
            "data": tiny.config.data.model_validate(
                {**tiny.config.data.model_dump(), "document": document}
            ),
        }
    )
    size = tiny.tokenizers.src.vocab_size
    with torch.random.fork_rng():
        torch.manual_seed(2)
        built = build_model(config.model, src_vocab_size=size, tgt_vocab_size=size)
    for parameter in built.parameters():
        parameter.data *= 2
    return replace(tiny, config=config, model=built.eval())


def states_of(bundle: Bundle, sentences: list[list[int]], max_tokens: int) -> list[np.ndarray]:
    encoder = DocumentEncoder.of(bundle, max_tokens)
    assert encoder is not None
    return [source.states for source in encoder.encode(sentences, is_start=True)]


def test_kept_keys_and_values_stand_for_the_sentences(bundle) -> None:
    sentences = bundle.tokenizers.src.encode_batch(small_text(9)[0])
    sentences[5] = []
    whole = states_of(bundle, sentences, 9999)
    in_passes = states_of(bundle, sentences, 40)
    encoder = DocumentEncoder.of(bundle, 9999)
    assert encoder is not None
    encoder.encode(sentences[:3], is_start=True)  # another text, of which nothing may be left
    one_by_one = [
        encoder.encode([sentence], is_start=number == 0)[0].states
        for number, sentence in enumerate(sentences)
    ]
    alone = [states_of(bundle, [sentence], 9999)[0] for sentence in sentences]
    for place, expected in enumerate(whole):
        np.testing.assert_allclose(in_passes[place], expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(one_by_one[place], expected, rtol=1e-4, atol=1e-4)
        begins = place in (0, 5, 6)
        assert np.allclose(alone[place], expected, rtol=1e-2, atol=1e-2) == begins


def test_lines_are_translated_in_their_document_alone(bundle) -> None:
    lines = small_text(6)[0]
    texts = [*lines[:3], " ", *lines[3:]]
    translator = Translator(bundle, OPTIONS)
    found = [t.text for t in translator.translate(texts)]
    assert len(found) == 7
    assert found[3] == " "
    again = [t.text for t in translator.translate(lines[3:])]
    assert again == found[4:]
    translator.translate(texts[:2])
    rest = [t.text for t in translator.translate(texts[2:], first_line=3)]
    assert rest == found[2:]
    assert next(t.text for t in translator.translate(texts[2:])) != found[2]
    assert translator.translate([]) == []


def test_workers_read_the_same_states(bundle) -> None:
    lines = small_text(30)[0]
    options = replace(OPTIONS, batch_tokens=128)
    expected = [t.text for t in Translator(bundle, options).translate(lines)]
    shared = Translator(bundle, replace(options, num_workers=2))
    assert [t.text for t in shared.translate(lines)] == expected


def test_scores_are_those_of_the_search(bundle) -> None:
    lines = small_text(3)[0]
    translator = Translator(bundle, OPTIONS)
    found = [t.n_best[0] for t in translator.translate(lines)]
    scores = translator.scorer.score(lines, [one.text for one in found])
    for own, score in zip(found, scores, strict=True):
        if own.tokens == score.tokens[:-1]:
            assert score.log_prob == pytest.approx(own.log_prob, abs=1e-3)
    (blank,) = translator.scorer.score([""], [""])
    assert np.isfinite(blank.log_prob)


def test_an_ensemble_of_equals_keeps_what_its_members_keep(bundle) -> None:
    lines = small_text(4)[0]
    pair = replace(bundle, model=ensemble([bundle.model, bundle.model], [1, 1]))
    expected, found = (
        [t.text for t in Translator(b, OPTIONS).translate(lines)] for b in (bundle, pair)
    )
    assert found == expected


def test_constraints_hold_in_a_document_and_candidates_are_refused(bundle) -> None:
    first, second = small_text(2)[0]
    translator = Translator(bundle, OPTIONS)
    _, constrained = translator.translate([first, Line(second, prefix="Das Haus")])
    assert constrained.text.startswith("Das Haus")
    with pytest.raises(ConfigError, match="scores texts, not candidates"):
        rescore([], [], translators=[translator], penalties=[], weights=[])
