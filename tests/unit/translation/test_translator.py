"""Translation of lines: order, batches, blank and long lines, constraints."""

import itertools
import logging
import math
import random
import re
from dataclasses import replace
from functools import partial

import pytest
import torch
from fake_decoders import CopyModel

from transformer_mt.bundle import Bundle, load_bundle
from transformer_mt.errors import ConfigError, DataError, ModelError, TmtError
from transformer_mt.nn.kernels.cpu_linear import prepack
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.text.special_ids import EOS_ID
from transformer_mt.text.tokenizer_training import train_tokenizers
from transformer_mt.translation import long_lines
from transformer_mt.translation.batch_search import BatchSearch
from transformer_mt.translation.detokenize import Detokenizer
from transformer_mt.translation.glossary import Glossary, Term
from transformer_mt.translation.long_lines import Part, split_line
from transformer_mt.translation.mbr import by_expected_utility
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.requests import Line, requests_for
from transformer_mt.translation.translator import Translator
from transformer_mt.translation.workers import Workers

OPTIONS = SearchOptions(beam_size=4, max_length_offset=8, batch_tokens=400)


@pytest.fixture(scope="module")
def bundle(tiny_bundle) -> Bundle:
    return load_bundle(tiny_bundle)


@pytest.fixture
def copying(bundle) -> Bundle:
    """A bundle whose translations are the sources."""
    return replace(bundle, model=CopyModel(bundle.tokenizers.tgt.vocab_size).eval())


def reading_as_it_is(bundle: Bundle) -> Bundle:
    """The same model without `data.clean_source`."""
    data = bundle.config.data.model_copy(update={"clean_source": False})
    return replace(bundle, config=bundle.config.model_copy(update={"data": data}))


def make(bundle: Bundle, **options) -> Translator:
    return Translator(bundle, replace(OPTIONS, **options))


def texts(translations) -> list[str]:
    return [translation.text for translation in translations]


def test_translations_come_in_the_order_of_the_lines(copying, tiny_text):
    lines, _ = tiny_text
    assert texts(make(copying).translate(lines)) == lines


def test_bf16_gives_the_same_scores_in_one_process_and_in_two(tiny_bundle, tiny_text):
    bundle = load_bundle(tiny_bundle, dtype=torch.bfloat16)
    prepack(bundle.model)
    found = []
    for in_one in (False, True):
        translator = make(bundle, batch_tokens=240, num_workers=2)
        if in_one:
            translator._workers = Workers(translator._search, 1)
        translations = translator.translate(tiny_text[0][:60])
        found.append([(best.text, best.log_prob) for t in translations for best in t.n_best])
    assert found[0] == found[1]


def test_sentences_of_like_length_share_a_batch_and_batches_keep_to_their_tokens(
    copying, tiny_text
):
    make(copying, batch_tokens=240).translate(tiny_text[0])
    batches = copying.model.batches
    assert len(batches) > 3
    flat = list(itertools.chain(*batches))
    assert flat == sorted(flat, reverse=True)
    assert all(sum(batch) * 4 <= 240 for batch in batches)


def test_a_sentence_larger_than_a_batch_is_translated_alone(copying, tiny_text):
    lines = tiny_text[0][:4]
    assert texts(make(copying, batch_tokens=1).translate(lines)) == lines
    assert [len(batch) for batch in copying.model.batches] == [1] * 4


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 70])
def test_blank_lines_come_back_as_they_are_at_every_place(copying, tiny_text, size):
    blanks = ("", " ", "\t", "\u3000", "\u00a0 ")
    for blank_every in (1, 2, 3):
        words = itertools.cycle(tiny_text[0])
        lines = [
            blanks[i % len(blanks)] if i % blank_every == 0 else next(words) for i in range(size)
        ]
        assert texts(make(copying).translate(lines)) == lines


@pytest.mark.parametrize("line", [" ", " " * 100_001, "\u200b", "\ufeff \u200e"])
def test_blank_lines_do_not_reach_the_model(copying, line):
    (translation,) = make(copying, n_best=3).translate([line])
    assert copying.model.batches == []
    (candidate,) = translation.n_best
    assert (candidate.text, candidate.tokens) == (line, [])
    assert (candidate.log_prob, candidate.score, translation.score) == (0, 0, 0)


def test_no_lines_give_no_translations(copying):
    assert make(copying).translate([]) == []


def test_equal_sentences_are_translated_once(copying, tiny_text):
    line = tiny_text[0][0]
    assert texts(make(copying).translate([line] * 50)) == [line] * 50
    assert list(map(len, copying.model.batches)) == [1]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_translation_does_not_depend_on_batch_size_or_neighbours(bundle, tiny_text, beam_size):
    lines = tiny_text[0][:30]
    expected = make(bundle, beam_size=beam_size).translate(lines)
    order = random.Random(0).sample(range(len(lines)), len(lines))
    for batch_tokens in (1, 150, 100_000):
        translate = make(bundle, beam_size=beam_size, batch_tokens=batch_tokens).translate
        found = translate([lines[i] for i in order])
        for i, translation in zip(order, found, strict=True):
            assert translation.text == expected[i].text
            assert translation.score == pytest.approx(expected[i].score, abs=1e-4)


def test_search_scores_equal_forced_scores_of_the_same_text(bundle, tiny_text):
    lines, _ = tiny_text
    candidates = [t.n_best[0] for t in make(bundle).translate(lines)]
    scores = make(bundle).scorer.score(lines, [candidate.text for candidate in candidates])
    compared = 0
    for candidate, score in zip(candidates, scores, strict=True):
        # Random weights also choose pieces that no text is cut into.
        if score.tokens == [*candidate.tokens, "</s>"]:
            assert score.log_prob == pytest.approx(candidate.log_prob, abs=1e-4)
            compared += 1
    assert compared


def test_forced_scores_do_not_depend_on_batches(bundle, tiny_text):
    together = make(bundle).scorer.score(*tiny_text)
    for pair, expected in zip(zip(*tiny_text, strict=True), together, strict=True):
        (alone,) = make(bundle).scorer.score(*([line] for line in pair))
        assert alone.tokens == expected.tokens
        assert alone.token_log_probs == pytest.approx(expected.token_log_probs, abs=1e-4)
        assert alone.log_prob == pytest.approx(sum(alone.token_log_probs))


def test_targets_of_a_source_are_scored_like_each_alone_and_the_source_is_encoded_once(
    bundle, copying, tiny_text
):
    sources, targets = (side[:6] for side in tiny_text)
    pairs = [(source, target) for target in targets for source in sources]
    expected = [make(bundle).scorer.score([source], [target])[0] for source, target in pairs]
    for batch_tokens in (1, 60, 1000):
        found = make(bundle, batch_tokens=batch_tokens).scorer.score(*zip(*pairs, strict=True))
        for one, alone in zip(found, expected, strict=True):
            assert one.token_log_probs == pytest.approx(alone.token_log_probs, abs=1e-4)
    make(copying, batch_tokens=1000).scorer.score(*zip(*pairs, strict=True))
    assert sum(map(len, copying.model.batches)) == len(sources)


def test_blank_lines_can_be_scored(bundle):
    (score,) = make(bundle).scorer.score([""], [""])
    assert score.tokens == ["</s>"]
    assert score.log_prob < 0


def test_n_best_candidates_are_different_and_fall(bundle, tiny_text):
    for translation in make(bundle, n_best=4).translate(tiny_text[0]):
        assert len(translation.n_best) == 4
        assert len({tuple(candidate.tokens) for candidate in translation.n_best}) == 4
        scores = [candidate.score for candidate in translation.n_best]
        assert scores == sorted(scores, reverse=True)


def test_text_has_no_line_breaks_whatever_the_model_says(copying):
    spelled = "a\nb\x1b\r\nc\x0bd\x0ce\x1cf\x85g\u2028h\u2029i"
    (translation,) = make(reading_as_it_is(copying), max_length_factor=9).translate([spelled])
    assert translation.text.splitlines() == ["a b   c d e f g h i"]
    (translation,) = make(copying).translate(["a\0b"])
    assert translation.text == "a b"


@pytest.mark.parametrize("max_length", [20, None])
def test_lines_too_long_for_the_model_are_translated_in_parts(
    copying, tiny_text, max_length, monkeypatch, caplog
):
    monkeypatch.setattr(long_lines, "MAX_SOURCE_LENGTH", 20 if max_length is None else 1024)
    copying.model.max_length = max_length
    long = " ".join(tiny_text[0])
    lines = [tiny_text[0][0], long, tiny_text[0][1]]
    with caplog.at_level(logging.WARNING):
        found = make(copying).translate(lines, first_line=101)
    assert texts(found) == lines
    assert max(itertools.chain(*copying.model.batches)) <= 20
    assert "line 102: " in caplog.text
    assert "translated in" in caplog.text
    assert caplog.text.count("\n") == 1
    assert found[1].n_best[0].log_prob < found[0].n_best[0].log_prob


@pytest.mark.parametrize("num_words", [12_500, 12_501])
def test_a_line_of_a_hundred_thousand_characters_is_translated(copying, num_words):
    line = "dog cat " * num_words
    copying.model.max_length = 256
    assert texts(make(copying).translate([line])) == [line.strip()]
    assert max(map(len, copying.model.batches)) * 256 * 4 < 100_000


@pytest.mark.parametrize(("factor", "offset"), [(1.0, 8), (0.5, 3), (2.0, 1)])
def test_a_target_has_at_most_factor_times_source_plus_offset_tokens(
    bundle, tiny_text, monkeypatch, factor, offset
):
    """Both lengths in tokens with eos; the model would go on for ever."""
    decoder = type(bundle.model.decoder)
    original = decoder.step

    def without_end(self, tokens, state):
        logits, state = original(self, tokens, state)
        logits[..., EOS_ID] = -1e4
        return logits, state

    monkeypatch.setattr(decoder, "step", without_end)
    lines = tiny_text[0][:6]
    found = make(bundle, max_length_factor=factor, max_length_offset=offset).translate(lines)
    for line, translation in zip(lines, found, strict=True):
        source_length = len(bundle.tokenizers.src.encode(line)) + 1
        length = len(translation.n_best[0].tokens) + 1
        assert length == int(factor * source_length) + offset


def test_targets_keep_to_the_positions_of_the_model(bundle, tiny_text, monkeypatch):
    monkeypatch.setattr(type(bundle.model.decoder), "max_length", 5)
    for translation in make(bundle, max_length_offset=50).translate(tiny_text[0]):
        assert len(translation.n_best[0].tokens) <= 4


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("one two. three four", ["one two.", "three four"]),
        ("one, two three four", ["one, two", "three four"]),
        ("one two three. four five six seven eight", None),
        ("onetwothreefour", None),
        ("\u4e00" * 9 + "\u3002" + "\u4e01" * 9, ["\u4e00" * 9 + "\u3002", "\u4e01" * 9]),
    ],
)
def test_long_lines_are_cut_at_the_best_place_and_nothing_is_lost(line, parts):
    def encode(text: str) -> list[int]:
        return list(map(ord, text))

    found = split_line(line, encode, 10)
    assert all(len(part.tokens) <= 10 for part in found)
    assert "".join("".join(map(chr, part.tokens)) + part.glue for part in found) == line
    if parts is not None:
        assert ["".join(map(chr, part.tokens)) for part in found] == parts


def test_pairs_too_long_to_score_are_nan_and_named(copying, tiny_text, caplog):
    copying.model.max_length = 12
    long = " ".join(tiny_text[0])
    pairs = ["dog", "dog", long, "cat"], ["Hund", long, "Hund", "Hund"]
    found = [score.log_prob for score in make(copying).scorer.score(*pairs, first_line=7)]
    assert [math.isnan(log_prob) for log_prob in found] == [False, True, True, False]
    assert found[3] == make(copying).scorer.score(["cat"], ["Hund"])[0].log_prob
    assert re.search(r"line 8: the target has \d+ tokens; at most 11", caplog.text)
    assert "line 9: the source has" in caplog.text


def test_the_mode_of_the_model_is_left_as_it_was(copying, tiny_text):
    copying.model.train()
    make(copying).translate(tiny_text[0])
    make(copying).scorer.score(*tiny_text)
    assert copying.model.training
    assert not any(copying.model.modes)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"beam_size": 401}, "beam size 401 is larger than the vocabulary of 400 tokens"),
        ({"n_best": 5}, "a beam of 4 cannot give 5 translations"),
    ],
)
def test_impossible_beams_are_refused(copying, options, words):
    with pytest.raises(ConfigError, match=words):
        make(copying, **options)


def test_a_batch_too_large_for_the_device_is_halved(copying, tiny_text, monkeypatch):
    encode = copying.model.encode

    def small_device(src, segments):
        if segments.num_sentences > 3:
            raise torch.OutOfMemoryError("too much")
        return encode(src, segments)

    monkeypatch.setattr(copying.model, "encode", small_device)
    assert texts(make(copying).translate(tiny_text[0])) == tiny_text[0]
    scores = make(copying).scorer.score(*tiny_text)
    assert len(scores) == len(tiny_text[0])


def test_a_sentence_too_large_for_the_device_is_an_error(copying, monkeypatch):
    def no_device(src, segments):
        raise torch.OutOfMemoryError("too much")

    monkeypatch.setattr(copying.model, "encode", no_device)
    with pytest.raises(TmtError, match="out of memory with a single sentence"):
        make(copying).translate(["dog", "cat"])


def test_weights_that_are_nan_are_reported(tiny_bundle):
    bundle = load_bundle(tiny_bundle)
    with torch.no_grad():
        next(bundle.model.decoder.parameters())[5] = torch.nan
        bundle.model.decoder.output_weight()[0][7] = torch.nan
    with pytest.raises(ModelError, match="not a number"):
        make(bundle).translate(["dog"])


def test_progress_counts_sentences(copying, tiny_text):
    calls: list[tuple[int, int]] = []
    lines = [*tiny_text[0], "", tiny_text[0][0]]
    make(copying, batch_tokens=240).translate(lines, on_progress=lambda *call: calls.append(call))
    different = len(set(tiny_text[0]))
    assert calls[-1] == (different, different)
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})


def test_samples_do_not_depend_on_batches_and_order(bundle, tiny_text):
    lines = list(dict.fromkeys(tiny_text[0]))[:20]
    options = {"sample": True, "n_best": 3, "top_p": 0.9}
    expected = make(bundle, **options).translate(lines)
    assert all(len(translation.n_best) == 3 for translation in expected)
    alone = make(bundle, **options, batch_tokens=1).translate(lines[::-1])[::-1]
    for here, there in zip(expected, alone, strict=True):
        assert [c.text for c in here.n_best] == [c.text for c in there.n_best]
    other = make(bundle, **options, seed=2).translate(lines)
    assert texts(other) != texts(expected)


def test_of_a_line_in_parts_each_part_is_chosen_by_itself(bundle):
    options = replace(OPTIONS, sample=True, n_best=8, seed=3)
    choose = partial(by_expected_utility, utility="chrf", tgt_lang="de", n_best=2)
    translator = Translator(bundle, options, split_sentences=True, choose=choose)
    texts = ["A red dog. The cat runs.", "A red dog.", "The cat runs."]
    line, *sentences = translator.translate(texts)
    assert [len(sentence.n_best) for sentence in sentences] == [2, 2]
    for whole, *parts in zip(line.n_best, *(s.n_best for s in sentences), strict=True):
        assert whole.text == " ".join(part.text for part in parts)
        assert whole.score == sum(part.score for part in parts)


def test_a_part_with_fewer_candidates_than_others_stays_with_its_last(bundle):
    def choose(candidates):
        return candidates[: 1 if "rot" in candidates[0].text else 3]

    joiner = Detokenizer(bundle.tokenizers, None, choose)
    encode = bundle.tokenizers.tgt.encode
    found = [
        [Hypothesis(encode(text), -1.0, -1.0) for text in own] for own in (["ein rot", "x"], "abc")
    ]
    parts = [Part((5,), " "), Part((6,), "")]
    translation = joiner.translation(Line("a b"), parts, found, [], 0)
    assert [c.text for c in translation.n_best] == ["ein rot a", "ein rot b", "ein rot c"]


@pytest.mark.parametrize(
    "option", [{"top_k": 3}, {"top_p": 0.5}, {"temperature": 2.0}, {"seed": 5}]
)
def test_options_of_sampling_need_sampling(bundle, option):
    (name,) = option
    with pytest.raises(ConfigError, match=f"{name}: has no effect without decoding.sample"):
        make(bundle, **option)


def test_a_prefix_and_phrases_are_in_the_translation(bundle, tiny_text):
    lines = [Line(text, prefix="der Hund", phrases=("rot",)) for text in tiny_text[0][:6]]
    for translation in make(bundle, n_best=2).translate([*lines, tiny_text[0][0]])[:6]:
        for candidate in translation.n_best:
            assert candidate.text.startswith("der Hund")
            assert "rot" in re.findall(r"\w+", candidate.text)


def test_constraints_of_a_line_do_not_affect_other_lines(bundle, tiny_text):
    text = tiny_text[0][0]
    plain, _, again = make(bundle).translate([text, Line(text, phrases=("blau",)), Line(text)])
    assert plain.text == again.text


def test_constraints_longer_than_the_output_are_refused_with_the_line(bundle):
    with pytest.raises(DataError, match=r"line 8: the prefix and the phrases have \d+ tokens"):
        make(bundle, max_length=3).translate(["dog", Line("dog", "so viel Text")], first_line=7)


def test_constraints_override_rules_for_all_lines(bundle):
    model = make(bundle, suppress=("der", "Hund"), no_repeat_ngram=1, max_length_offset=30)
    wishes = Line("A dog.", prefix="der Hund der ", phrases=("der", "der"))
    (translation,) = model.translate([wishes])
    assert translation.text.startswith("der Hund der")
    assert re.findall(r"\w+", translation.text).count("der") >= 2


def test_constraints_outside_the_vocabulary_are_reported_with_the_line(bundle, caplog):
    tokenizers = train_tokenizers(
        ["a dog."], ["ein Hund."], joint=True, type="bpe", vocab_size=30, byte_fallback=False
    )
    model = CopyModel(tokenizers.tgt.vocab_size).eval()
    other = replace(bundle, tokenizers=tokenizers, model=model)
    glossary = Glossary([Term("dog", "\u72d7")])
    translator = Translator(other, OPTIONS, glossary=glossary)
    for wish in ({"prefix": "\u72d7"}, {"phrases": ("\u72d7",)}):
        with pytest.raises(DataError, match="line 3: the vocabulary has no pieces for '\u72d7'"):
            translator.translate([Line("a dog", **wish)], first_line=3)
    translator.translate(["a dog.", Line(" ", prefix="ein")])
    assert "line 1: the vocabulary has no pieces for the term '\u72d7'; left out" in caplog.text
    assert "line 2: blank: its prefix and phrases are not used" in caplog.text
    (kept,) = Translator(other, replace(OPTIONS, suppress=("\u72d7.",))).translate(["a dog."])
    assert kept.text == "a dog."


def test_a_term_that_is_also_a_phrase_comes_once(bundle):
    translator = Translator(bundle, OPTIONS, glossary=Glossary([Term("dog", "blau")]))
    (translation,) = translator.translate([Line("A dog.", phrases=("blau",))])
    assert re.findall(r"\w+", translation.text).count("blau") == 1
    assert translation.num_terms_met == 1


def test_a_line_without_any_translation_is_reported(bundle, caplog, monkeypatch):
    monkeypatch.setattr(BatchSearch, "__call__", lambda self, requests: [[] for _ in requests])
    assert texts(make(bundle).translate(["", "A dog."], first_line=5)) == ["", ""]
    assert [message.split(":")[0] for message in caplog.messages] == ["line 6"]


def test_punctuation_is_suppressed_with_and_without_a_space_before_it(copying):
    lines = ["A dog . The dog.", "dogs."]
    found = make(copying, suppress=(".",)).translate(lines)
    assert not any("." in text for text in texts(found))
    with pytest.raises(ConfigError, match="suppress: expected a word or phrase"):
        make(copying, suppress=(" ",))


@pytest.mark.parametrize(("language", "joined"), [("zh", "狗猫"), ("de", "狗 猫")])
def test_phrases_of_languages_without_spaces_get_none(language, joined):
    lines = ["我喜欢狗和猫。", "狗在雪里玩。", "猫喜欢雪。"] * 3
    tokenizer = train_tokenizers(lines, lines, joint=True, type="bpe", vocab_size=300).tgt
    for line, terms in ((Line("x", phrases=("猫",)), []), (Line("x"), [Term("x", "猫")])):
        (request,) = requests_for(
            line,
            [Part((5,), "")],
            [terms],
            tokenizer,
            language=language,
            room=lambda _: 9,
        )
        (phrase,) = request.phrases
        assert tokenizer.decode([*tokenizer.encode("狗"), *phrase]) == joined


def test_terms_of_a_glossary_are_enforced_and_those_without_room_left_out(bundle, caplog):
    glossary = Glossary([Term("dog", "blau"), Term("cat", "ein sehr langer Text " * 9)])
    translator = Translator(bundle, OPTIONS, glossary=glossary)
    met, left_out, none = translator.translate(["A red dog.", "The cat, a dog.", "A house."])
    assert (met.num_terms_met, len(met.terms)) == (1, 1)
    assert "blau" in re.findall(r"\w+", met.text)
    assert (left_out.num_terms_met, len(left_out.terms)) == (1, 2)
    assert none.terms == []
    assert "line 2: no room for the term" in caplog.text


def test_each_sentence_gets_its_own_terms_and_lost_phrases_are_reported(bundle, caplog):
    glossary = Glossary([Term("dog", "blau"), Term("cat", "rot")])
    translator = Translator(bundle, OPTIONS, glossary=glossary, split_sentences=True)
    line = Line("The cat sees. The dog runs.", "der", ("grün",))
    (translation,) = translator.translate([line])
    first, second = (
        bundle.tokenizers.tgt.decode(part.target) for part in translation.n_best[0].parts
    )
    assert first.startswith("der")
    assert Term("cat", "rot").is_in(first)
    assert not Term("dog", "blau").is_in(first)
    assert Term("dog", "blau").is_in(second)
    assert (translation.num_terms_met, len(translation.terms)) == (2, 2)
    assert "line 1: translated in parts: its phrases are not enforced" in caplog.text


def test_length_limits_and_suppressed_words_are_respected(bundle, tiny_text):
    lines = tiny_text[0][:8]
    short = make(bundle, max_length=4).translate(lines)
    assert all(len(t.n_best[0].tokens) < 4 for t in short)
    long = make(bundle, min_length=12, no_repeat_ngram=2).translate(lines)
    for translation in long:
        tokens = translation.n_best[0].tokens
        assert len(tokens) >= 11
        pairs = list(itertools.pairwise(tokens))
        assert len(set(pairs)) == len(pairs)
    words = [word for t in make(bundle).translate(lines) for word in t.text.split()]
    word = max(set(words), key=words.count)
    free = make(bundle, suppress=(word,)).translate(lines)
    pieces = bundle.tokenizers.tgt.pieces(bundle.tokenizers.tgt.encode(word))
    for translation in free:
        tokens = translation.n_best[0].tokens
        assert pieces not in [tokens[i : i + len(pieces)] for i in range(len(tokens))]


def test_beam_groups_and_coverage_penalty_reach_the_search(bundle, tiny_text):
    lines = tiny_text[0][:4]
    groups = make(bundle, beam_groups=4, n_best=4, diversity_penalty=5.0).translate(lines)
    assert all(len({c.text for c in t.n_best}) > 1 for t in groups)
    alike = make(bundle, beam_groups=4, n_best=4, diversity_penalty=0.0).translate(lines)
    assert [len(t.n_best) for t in alike] == [1] * 4
    plain = make(bundle, n_best=4).translate(lines)
    ranked = make(bundle, n_best=4, coverage_penalty=1.0).translate(lines)
    for here, there in zip(plain, ranked, strict=True):
        assert here.n_best[0].score >= there.n_best[0].score
        assert [c.score for c in there.n_best] == sorted(
            (c.score for c in there.n_best), reverse=True
        )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"beam_groups": 3}, "beam_groups: 3 does not divide beam_size 4"),
        (
            {"diversity_penalty": 1.0},
            "diversity_penalty: has no effect without",
        ),
        ({"min_length": 9, "max_length": 8}, "min_length: 9 is more than max_length 8"),
        ({"sample": True, "beam_groups": 2}, "beam_groups: has no effect on samples"),
        ({"min_length_ratio": float("inf")}, "min_length_ratio inf: expected at most 1,000"),
        ({"max_length": 10**30}, "max_length 1000000000000000000000000000000: expected at most"),
    ],
)
def test_options_that_do_not_fit_each_other_are_refused(bundle, options, words):
    with pytest.raises(ConfigError, match=words):
        make(bundle, **options)


@pytest.mark.parametrize("options", [{"sample": True}, {"beam_groups": 2}])
def test_only_plain_beam_search_takes_phrases(bundle, options):
    with pytest.raises(ConfigError, match="only plain beam search can enforce phrases"):
        make(bundle, **options).translate([Line("dog", phrases=("blau",))])


def test_white_space_of_sources_counts_only_where_the_model_was_trained_with_it(tiny_bundle):
    bundle = load_bundle(tiny_bundle)
    plain, odd = "The dog runs.", " The\u00a0dog\t runs. "
    for model, is_equal in ((bundle, True), (reading_as_it_is(bundle), False)):
        translator = Translator(model, SearchOptions(beam_size=1))
        sources = [t.n_best[0].parts[0].source for t in translator.translate([plain, odd])]
        assert (sources[0] == sources[1]) is is_equal
        scores = translator.scorer.score([plain, odd], ["Das Hund.", "Das Hund."])
        assert (scores[0] == scores[1]) is is_equal
        assert (translator.source_lengths([plain]) == translator.source_lengths([odd])) is is_equal


def test_blank_lines_keep_their_white_space(tiny_bundle):
    translator = Translator(load_bundle(tiny_bundle), SearchOptions(beam_size=1))
    assert [t.text for t in translator.translate([" \u00a0", ""])] == [" \u00a0", ""]
