"""CTranslate2 as the engine of beam search."""

from dataclasses import replace
from pathlib import Path

import pytest

import transformer_mt as tmt
from transformer_mt.bundle import load_bundle
from transformer_mt.errors import ConfigError
from transformer_mt.exchange.engine import CTranslate2Search, with_engine
from transformer_mt.translation.batch_search import BatchSearch
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.requests import Request

pytest.importorskip("ctranslate2", reason="it is in the extra `ct2`")


def test_greedy_translations_and_their_scores_are_those_of_our_own_search(
    tiny_bundle: Path, tiny_text
) -> None:
    lines = [*tiny_text[0][:8], "", "  "]
    ours = tmt.load(tiny_bundle).translate(lines, beam_size=1, prefixes=["", "ein "] * 5)
    theirs = tmt.load(tiny_bundle, engine="ctranslate2").translate(
        lines, beam_size=1, prefixes=["", "ein "] * 5
    )
    assert [line.text for line in theirs] == [line.text for line in ours]
    assert len({line.text for line in theirs}) > 5
    for here, there in zip(ours, theirs, strict=True):
        assert there.score == pytest.approx(here.score, abs=1e-4)


def test_hypotheses_are_ranked_by_our_length_penalty(tiny_bundle: Path, tiny_text) -> None:
    bundle = load_bundle(tiny_bundle)
    options = SearchOptions(beam_size=4, n_best=4, length_penalty=0.9, max_length_offset=6)
    requests = [Request(tuple(bundle.tokenizers.src.encode(line))) for line in tiny_text[0][:6]]
    for own in CTranslate2Search(bundle, options, None, precision="fp32")(requests):
        assert len(own) <= 4
        for hypothesis in own:
            length = len(hypothesis.tokens) + 1
            assert hypothesis.score == pytest.approx(
                options.ranking.scores(hypothesis.log_prob, length), rel=1e-6
            )
            assert length <= max(len(request.source) for request in requests) + 7
        assert [h.score for h in own] == sorted((h.score for h in own), reverse=True)


def test_what_it_cannot_do_is_listed(tiny_bundle: Path) -> None:
    bundle = load_bundle(tiny_bundle)
    options = SearchOptions(sample=True, no_repeat_ngram=3, length_penalty_kind="reward")
    message = r"sample True, decoding.no_repeat_ngram 3, decoding.length_penalty_kind reward, prec"
    with pytest.raises(ConfigError, match=message):
        CTranslate2Search(bundle, options, None, precision="fp16")
    with pytest.raises(ConfigError, match="phrases"):
        CTranslate2Search(bundle, SearchOptions(), None, precision="fp32")(
            [Request((5, 6), phrases=((7,),))]
        )


def test_auto_searches_with_torch_what_ctranslate2_cannot_do(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = with_engine(load_bundle(tiny_bundle), "auto", precision="fp32")
    assert bundle.search is not None
    assert isinstance(bundle.search(bundle, SearchOptions(no_repeat_ngram=3), None), BatchSearch)
    search = bundle.search(bundle, SearchOptions(beam_size=2), None)
    phrases = [Request((5, 6), phrases=((7,),))]
    assert search(phrases) == BatchSearch(bundle, SearchOptions(beam_size=2), None)(phrases)
    alibi = bundle.config.model.model_copy(
        update={"positions": type("Alibi", (), {"type": "alibi"})()}
    )
    other = replace(bundle, config=bundle.config.model_copy(update={"model": alibi}), search=None)
    assert with_engine(other, "auto", precision="fp32").search is None
    monkeypatch.setattr("transformer_mt.exchange.engine.find_spec", lambda name: None)
    plain = load_bundle(tiny_bundle)
    assert with_engine(plain, "auto", precision="fp32").search is None
