"""N-best lists ranked again, against plain sums; models that write from right to left."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import tmt as run
from transformer_mt.bundle import Bundle, load_bundle, save_bundle, weights_of
from transformer_mt.config.data import DocumentSettings
from transformer_mt.errors import ConfigError, DataError
from transformer_mt.search.length_penalty import LengthPenalty
from transformer_mt.translation.glossary import Glossary, Term
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.requests import Line
from transformer_mt.translation.rescoring import Entry, parse_entry, read_n_best, rescore
from transformer_mt.translation.results import CONTROL_CHARACTERS
from transformer_mt.translation.scoring import token_log_probs
from transformer_mt.translation.translator import Translator


@pytest.fixture(scope="module")
def files(tiny_bundle, tiny_text, tmp_path_factory) -> tuple[Path, Path]:
    """Sources, one of them blank, and the list that the tiny model makes of them."""
    folder = tmp_path_factory.mktemp("lists")
    src, listed = folder / "src", folder / "list"
    src.write_text("".join(f"{line}\n" for line in ["", *tiny_text[0][:8]]), encoding="utf-8")
    made = run("translate", "--model", tiny_bundle, "--input", src, "--output", listed,
               "--n-best", 4)  # fmt: skip
    assert made.exit_code == 0, made.stderr
    return src, listed


def groups_of(text: str) -> list[list]:
    lines = text.splitlines()
    num_sources = int(lines[-1].partition(" ")[0]) + 1
    return list(read_n_best(lines, "list", num_sources=num_sources))


def test_scores_are_weighted_sums_and_fall(files, tiny_bundle):
    src, listed = files
    result = run("rescore", "--src", src, "--model", tiny_bundle, "--model", tiny_bundle,
                 "--input", listed, "--weights", "0.5,-2,0.25", "--n-best", 4)  # fmt: skip
    assert result.exit_code == 0, result.stderr
    model = Translator(load_bundle(tiny_bundle), SearchOptions())
    sources = src.read_text().splitlines()
    changed = 0
    for old, new in zip(groups_of(listed.read_text()), groups_of(result.stdout), strict=True):
        wanted = []
        for entry in old:
            (forced,) = model.scorer.score([sources[entry.number]], [entry.text])
            score = forced.log_prob / ((5 + len(forced.tokens)) / 6) ** 0.6
            wanted.append((0.5 * entry.score - 2 * score + 0.25 * score, entry.text, score))
        wanted.sort(key=lambda candidate: -candidate[0])
        assert [entry.score for entry in new] == pytest.approx([w[0] for w in wanted], abs=1e-3)
        for entry, (_, text, score) in zip(new, wanted, strict=True):
            assert entry.text == text
            words = entry.features.split()
            assert words[::2] == ["LogProb=", "Model1=", "Model2="]
            assert [float(x) for x in words[3::2]] == pytest.approx([score, score], abs=1e-3)
        changed += [entry.text for entry in new] != [entry.text for entry in old]
    assert changed > 0


def test_own_scores_alone_keep_the_order_of_the_list(files, tiny_bundle):
    src, listed = files
    result = run("rescore", "--src", src, "--model", tiny_bundle, "--input", listed,
                 "--weights", "1,0")  # fmt: skip
    firsts = [group[0].text for group in groups_of(listed.read_text())]
    assert result.stdout == "".join(f"{text}\n" for text in firsts)


def test_a_list_of_json_objects_says_the_same(files, tiny_bundle):
    src, _ = files
    made = [
        run("translate", "--model", tiny_bundle, "--input", src, "--json", "--n-best", n)
        for n in (4, 1)
    ]
    plain = run("translate", "--model", tiny_bundle, "--input", src, "--n-best", 4)
    expected = groups_of(plain.stdout)
    for result, size in zip(made, (4, 1), strict=True):
        assert result.exit_code == 0, result.stderr
        found = list(read_n_best(result.stdout.splitlines(), "list", num_sources=len(expected)))
        for own, wanted in zip(found, expected, strict=True):
            assert [(e.number, e.text) for e in own] == [(e.number, e.text) for e in wanted[:size]]
            assert [float(e.features.removeprefix("LogProb= ")) for e in own] == pytest.approx(
                [float(e.features.removeprefix("LogProb= ")) for e in wanted[:size]], abs=1e-4
            )
            assert [e.score for e in own] == pytest.approx(
                [e.score for e in wanted[:size]], abs=1e-5
            )


def test_columns_of_marian_are_no_text():
    for column in ("0-0 1-1", "WordScores= -0.1 -2e-05", "0-0 ||| WordScores= -1"):
        entry = parse_entry(f"2 ||| a b ||| {column} ||| F0= -1 ||| -0.5", "list:1")
        assert (entry.number, entry.text, entry.features) == (2, "a b", "F0= -1")


@pytest.mark.parametrize("text", ["a ||| b", "a |||", "||| b", "|||", "", " ", "a ||| ||| b"])
def test_text_may_hold_the_separator(text):
    entry = Entry(3, text, "LogProb= -1.000000", -0.5)
    assert parse_entry(str(entry), "list:1") == entry


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["0 ||| a ||| -1"], "list:1: expected NUMBER"),
        (["x ||| a ||| F= 1 ||| -1"], "list:1: expected NUMBER"),
        (["0 ||| a ||| F= 1 ||| nan"], "list:1: expected NUMBER"),
        ([""], "list:1: expected NUMBER"),
        (["1 ||| a ||| F= 1 ||| -1"], "list:1: expected a candidate of source 0"),
        (["0 ||| a |||  ||| -1", "2 ||| a |||  ||| -1"], "list:2: expected a candidate"),
        (["0 ||| a |||  ||| -1", "1 ||| a |||  ||| -1", "0 ||| a |||  ||| -1"], "list:3: expected"),
        (["0 ||| a |||  ||| -1"], "candidates for 1 line; there are 2"),
        ([], "candidates for 0 lines; there are 2"),
        (['{"text": "a"}'], "list:1: expected an object"),
        (['{"text": "a", "log_prob": -1, "score": -1}', "{"], "list:2: expected an object"),
        (['{"n_best": []}'], "list:1: expected an object"),
        (['{"text": 1, "log_prob": -1, "score": -1}'], "list:1: expected an object"),
        (['{"text": "a", "log_prob": -1, "score": NaN}'], "list:1: expected an object"),
        (['{"text": "a", "log_prob": -1, "score": -1}'], "for 1 line; there are 2"),
        (['{"text": "a", "log_prob": -1, "score": -1}'] * 3, "for 3 lines; there are 2"),
    ],
)
def test_damaged_lists_are_refused_with_the_place(lines, words):
    with pytest.raises(DataError, match=words):
        list(read_n_best(lines, "list", num_sources=2))


@pytest.mark.parametrize("weights", ["1", "1,2,3", "a,b", "1,nan", ""])
def test_weights_that_do_not_fit_are_refused(files, tiny_bundle, weights):
    src, listed = files
    result = run("rescore", "--src", src, "--model", tiny_bundle, "--input", listed,
                 "--weights", weights)  # fmt: skip
    assert result.exit_code == 2
    assert "expected 2 numbers" in result.stderr


@pytest.fixture(scope="module")
def plain(tiny_bundle) -> Bundle:
    return load_bundle(tiny_bundle)


@pytest.fixture(scope="module")
def turned(plain) -> Bundle:
    """The same model, taken for one that writes from right to left."""
    data = plain.config.data.model_copy(update={"reverse_target": True})
    return replace(plain, config=plain.config.model_copy(update={"data": data}))


@pytest.mark.parametrize("options", [{}, {"coverage_penalty": 0.2}, {"sample": True}])
def test_what_a_right_to_left_model_writes_is_turned_around(plain, turned, tiny_text, options):
    search = SearchOptions(n_best=3, max_length_offset=8, **options)
    lines = tiny_text[0][:6]
    decode = plain.tokenizers.tgt.decode
    both = [Translator(bundle, search).translate(lines) for bundle in (plain, turned)]
    for forward, backward in zip(*both, strict=True):
        for one, other in zip(forward.n_best, backward.n_best, strict=True):
            (written,), (shown,) = one.parts, other.parts
            assert shown.target == written.target[::-1]
            assert other.tokens == one.tokens[::-1]
            assert other.text == decode(written.target[::-1]).translate(CONTROL_CHARACTERS)
            assert (other.log_prob, other.score) == (one.log_prob, one.score)


def test_words_not_wanted_are_known_in_either_direction(turned, tiny_text):
    (free,) = Translator(turned, SearchOptions()).translate(tiny_text[0][:1])
    unwanted = turned.tokenizers.tgt.decode(free.n_best[0].parts[0].target[:3])
    tokens = turned.tokenizers.tgt.encode(unwanted)
    (kept,) = Translator(turned, SearchOptions(suppress=(unwanted,))).translate(tiny_text[0][:1])
    target = kept.n_best[0].parts[0].target
    size = len(tokens)
    assert tokens not in [target[i : i + size] for i in range(len(target) - size + 1)]


def test_forced_scores_of_a_right_to_left_model_are_those_of_turned_targets(
    plain, turned, tiny_text
):
    tokenizers = plain.tokenizers
    sources, targets = tiny_text
    found = Translator(turned, SearchOptions()).scorer.score(["", *sources], ["", *targets])
    for source, target, score in zip(["", *sources], ["", *targets], found, strict=True):
        ids = tokenizers.tgt.encode(target)
        (wanted,) = token_log_probs(plain, [(tokenizers.src.encode(source), ids[::-1])])
        *tokens, end = wanted
        assert score.token_log_probs == pytest.approx([*tokens[::-1], end], abs=1e-4)
        assert score.tokens == [*tokenizers.tgt.pieces(ids), "</s>"]


def test_attention_and_alternatives_stand_at_their_tokens(plain, turned, tiny_text):
    tokenizers = plain.tokenizers
    pairs = [
        (tokenizers.src.encode(src), tokenizers.tgt.encode(tgt))
        for src, tgt in zip(*tiny_text, strict=True)
    ][:5]
    backwards = [(src, tgt[::-1]) for src, tgt in pairs]
    model, reference = (Translator(bundle, SearchOptions()) for bundle in (turned, plain))
    for found, wanted in zip(
        model.scorer.source_attention(pairs, lambda a: a.mean(dim=(0, 1))),
        reference.scorer.source_attention(backwards, lambda a: a.mean(dim=(0, 1))),
        strict=True,
    ):
        assert found == pytest.approx(wanted[::-1], abs=1e-5)
    for found, wanted in zip(
        model.scorer.alternatives(pairs, 2),
        reference.scorer.alternatives(backwards, 2),
        strict=True,
    ):
        *places, end = wanted
        assert found == [*places[::-1], end]


def test_right_to_left_models_take_no_beginnings_and_phrases(turned):
    model = Translator(turned, SearchOptions())
    for line in (Line("a dog", prefix="ein"), Line("a dog", phrases=("Hund",))):
        with pytest.raises(ConfigError, match="right to left"):
            model.translate([line])
    with pytest.raises(ConfigError, match="right to left"):
        Translator(turned, SearchOptions(), glossary=Glossary([Term("dog", "Hund")]))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("reverse_target", True),
        ("document", DocumentSettings(context_sentences=1, separator="\u2581")),
    ],
)
def test_models_that_read_or_write_in_other_ways_make_no_ensemble(
    plain, tiny_bundle, tmp_path, setting, value
):
    data = plain.config.data.model_copy(update={setting: value})
    symbols = plain.config.tokenizer.model_copy(update={"user_symbols": ["\u2581"]})
    save_bundle(
        tmp_path / "other",
        config=plain.config.model_copy(update={"data": data, "tokenizer": symbols}),
        tokenizers=plain.tokenizers,
        state_dict=weights_of(plain.model),
        scores={},
    )
    text = tmp_path / "text"
    text.write_text("a dog\n")
    result = run("score", "--src", text, "--tgt", text, "--model", tiny_bundle, "--model",
                 tmp_path / "other")  # fmt: skip
    assert result.exit_code == 4
    assert f"differ in data.{setting}: they make no ensemble" in result.stderr


def test_candidates_without_a_score_come_last_in_their_order(tiny_bundle):
    translator = Translator(load_bundle(tiny_bundle), SearchOptions())
    long = "Hund " * 2000
    group = [Entry(0, text, "", 0.0) for text in (f"{long}a", "Hund.", f"{long}b", "Das Haus.")]
    (ranked,) = rescore(
        [group],
        ["dog."],
        translators=[translator],
        penalties=[LengthPenalty("gnmt", 0.0)],
        weights=[0.0, 1.0],
    )
    assert [entry.text for entry in ranked[2:]] == [f"{long}a", f"{long}b"]
    assert all(math.isnan(entry.score) for entry in ranked[2:])
    assert ranked[0].score >= ranked[1].score
