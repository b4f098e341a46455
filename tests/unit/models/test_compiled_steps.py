"""Compiled steps of decoders translate like plain ones; where compiling fails, plain ones stay.

The compiler here is the first half of `torch.compile`: see `test_layer_compilation.py`.
"""

import logging
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch._dynamo
from fake_decoders import CopyModel

from transformer_mt.bundle import load_bundle
from transformer_mt.models.build import build_model
from transformer_mt.nn.layers import DecoderLayer
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.translator import Translator

OPTIONS = SearchOptions(beam_size=2, n_best=2, max_length_offset=6, batch_tokens=400)


@pytest.fixture
def bundle(tiny_bundle):
    return load_bundle(tiny_bundle)


def translations(bundle, lines, *, compiled):
    translator = Translator(bundle, replace(OPTIONS, compile=compiled))
    return [translation.n_best for translation in translator.translate(lines)]


def layers(bundle):
    return [part for part in bundle.model.modules() if isinstance(part, DecoderLayer)]


def test_compiled_steps_translate_like_plain_ones_and_are_compiled_in_one_piece(
    bundle, tiny_text, monkeypatch
):
    expected = translations(bundle, tiny_text[0][:9], compiled=False)
    compiler = partial(torch.compile, backend="eager", fullgraph=True)
    monkeypatch.setattr(torch, "compile", compiler)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    found = translations(bundle, tiny_text[0][:9], compiled=True)
    assert all("step" in vars(layer) for layer in layers(bundle))
    # Before the first fork, few sentences, many, and one: however many layers there are.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 4
    for own, plain in zip(found, expected, strict=True):
        assert [one.text for one in own] == [one.text for one in plain]
        scores = [[one.score for one in some] for some in (own, plain)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_a_model_of_short_sentences_is_compiled_with_short_ones(bundle, monkeypatch, caplog):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    settings = {
        **bundle.config.model.model_dump(),
        "positions": {"type": "learned", "max_length": 9},
    }
    config = type(bundle.config.model).model_validate(settings)
    sizes = {f"{side}_vocab_size": bundle.tokenizers.tgt.vocab_size for side in ("src", "tgt")}
    short = replace(bundle, model=build_model(config, **sizes).eval())
    with caplog.at_level(logging.WARNING, logger="transformer_mt"):
        Translator(short, replace(OPTIONS, compile=True))
    assert not caplog.records
    assert all("step" in vars(layer) for layer in layers(short))


def test_where_compiling_fails_one_warning_says_why_and_plain_steps_stay(
    bundle, tiny_text, monkeypatch, caplog
):
    def backend(graph, inputs):
        raise RuntimeError("no compiler here")

    expected = translations(bundle, tiny_text[0][:3], compiled=False)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    torch._dynamo.reset()
    with caplog.at_level(logging.WARNING, logger="transformer_mt"):
        found = translations(bundle, tiny_text[0][:3], compiled=True)
    (record,) = caplog.records
    assert record.message == (
        "decoding.compile: torch.compile failed; translating without it: RuntimeError: no "
        "compiler here"
    )
    assert found == expected
    assert not any("step" in vars(layer) for layer in layers(bundle))


def test_compiling_a_model_without_a_transformer_decoder_warns_that_it_has_no_effect(
    bundle, caplog
):
    copying = replace(bundle, model=CopyModel(bundle.tokenizers.tgt.vocab_size).eval())
    with caplog.at_level(logging.WARNING, logger="transformer_mt"):
        Translator(copying, replace(OPTIONS, compile=True))
    assert "decoding.compile has no effect" in caplog.text
