"""Scores are sacrebleu's, with signatures that name the tokenization."""

import logging
import math
from collections import Counter
from typing import get_args

import pytest

from transformer_mt.cli.scoring_options import language_of
from transformer_mt.config.language_codes import WITHOUT_SPACES, plain_code, unknown_code_warning
from transformer_mt.config.training import MetricName
from transformer_mt.errors import DataError
from transformer_mt.metrics import scores as scores_module
from transformer_mt.metrics.scores import METRICS, Score, score
from transformer_mt.metrics.significance import score_with_intervals
from transformer_mt.text.sentences import has_spaces

HYPOTHESES = ["The cat sat on the big red mat .", "Hello world !", "A b c d e f"]
REFERENCES = ["The cat is on the big red mat .", "Hello my world !", "A b c d x f"]


@pytest.fixture(autouse=True)
def _forget_advice() -> None:
    scores_module._advise.cache_clear()


def only(metric: MetricName, *, tgt_lang: str = "en") -> Score:
    [result] = score(HYPOTHESES, REFERENCES, metrics=[metric], tgt_lang=tgt_lang)
    return result


def test_every_metric_of_the_config_has_its_row() -> None:
    assert set(METRICS) == set(get_args(MetricName))


def edits(first: str, second: str) -> int:
    """Levenshtein distance, by its recursion."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        row, above = [i], row
        for j, b in enumerate(second, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (a != b)))
    return row[-1]


def test_error_rates_and_exact_are_their_definitions_and_can_be_sampled() -> None:
    hypotheses, references = [*HYPOTHESES, "the same ", ""], [*REFERENCES, "the same", "x"]
    found = score(hypotheses, references, metrics=["cer", "exact"], tgt_lang="en")
    pairs = [(h.rstrip(), r) for h, r in zip(hypotheses, references, strict=True)]
    wanted = sum(edits(*pair) for pair in pairs) / sum(len(r) for _, r in pairs)
    assert [one.value for one in found] == pytest.approx([100 * wanted, 20])
    assert [one.higher_is_better for one in found] == [False, True]
    assert "rapidfuzz" in found[0].signature
    # Of several references, the nearest.
    (best,) = score(["abc"], ["xyz"], metrics=["cer"], tgt_lang="en", more_references=[["abcdef"]])
    assert best.value == 50
    # Two words of five differ, and one is missing.
    (words,) = score(["D AO G Z", "K"], ["D AA G", "K AE"], metrics=["wer"], tgt_lang="xx")
    assert words.value == pytest.approx(100 * 3 / 5)
    sure = score_with_intervals(hypotheses, references, metrics=["cer", "exact"], tgt_lang="en")
    assert all(one.half_width is not None and one.half_width > 0 for one in sure)


def test_bleu_is_the_formula_of_the_paper() -> None:
    # Papineni et al. 2002, sections 2.1 to 2.3, on text whose words are already apart.
    def ngrams(line: str, n: int) -> Counter[tuple[str, ...]]:
        words = line.split()
        return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))

    precisions = []
    for n in range(1, 5):
        pairs = [(ngrams(h, n), ngrams(r, n)) for h, r in zip(HYPOTHESES, REFERENCES, strict=True)]
        matches = sum(sum((h & r).values()) for h, r in pairs)
        precisions.append(matches / sum(sum(h.values()) for h, _ in pairs))
    num_words = sum(len(line.split()) for line in HYPOTHESES)
    num_reference_words = sum(len(line.split()) for line in REFERENCES)
    brevity_penalty = min(1.0, math.exp(1 - num_reference_words / num_words))
    expected = 100 * brevity_penalty * math.exp(sum(map(math.log, precisions)) / 4)
    assert only("bleu").value == pytest.approx(expected)


def test_ter_counts_edits_for_each_word_of_the_reference() -> None:
    # sat -> is; my inserted; e -> x; of 9 + 4 + 6 words.
    assert only("ter").value == pytest.approx(100 * 3 / 19)


def test_chrf_is_the_mean_over_character_ngrams() -> None:
    # Popovic 2015 with n = 6, beta = 2; all n-grams of the corpus together, spaces left out.
    def ngrams(line: str, n: int) -> Counter[str]:
        text = line.replace(" ", "")
        return Counter(text[i : i + n] for i in range(len(text) - n + 1))

    precisions, recalls = [], []
    for n in range(1, 7):
        pairs = [(ngrams(h, n), ngrams(r, n)) for h, r in zip(HYPOTHESES, REFERENCES, strict=True)]
        matches = sum(sum((h & r).values()) for h, r in pairs)
        precisions.append(matches / sum(sum(h.values()) for h, _ in pairs))
        recalls.append(matches / sum(sum(r.values()) for _, r in pairs))
    precision, recall = sum(precisions) / 6, sum(recalls) / 6
    expected = 100 * 5 * precision * recall / (4 * precision + recall)
    assert only("chrf").value == pytest.approx(expected)


def test_scores_come_in_the_order_asked_for_with_direction_and_signature() -> None:
    results = score(HYPOTHESES, REFERENCES, metrics=["ter", "chrf", "bleu"], tgt_lang="de")
    assert [r.name for r in results] == ["ter", "chrf", "bleu"]
    assert [r.higher_is_better for r in results] == [False, True, True]
    assert results[2].signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert "nc:6|nw:0" in results[1].signature
    assert score(HYPOTHESES, REFERENCES, metrics=[], tgt_lang="de") == []


def test_equal_lines_have_the_best_scores() -> None:
    results = score(REFERENCES, REFERENCES, metrics=["bleu", "chrf", "ter"], tgt_lang="en")
    assert [r.value for r in results] == pytest.approx([100, 100, 0])


def test_empty_translations_have_the_worst_scores() -> None:
    results = score(["", "", ""], REFERENCES, metrics=["bleu", "chrf", "ter"], tgt_lang="en")
    assert [r.value for r in results] == pytest.approx([0, 0, 100])


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("de", "13a"),
        ("", "13a"),
        ("zh", "zh"),
        ("zh-CN", "zh"),
        ("zh_Hant", "zh"),
        ("ZH", "zh"),
        ("cmn_Hans", "zh"),
        ("Chinese", "zh"),
        ("thai", "char"),
        ("th", "char"),
        ("tha_Thai", "char"),
    ],
)
def test_the_language_chooses_how_bleu_tells_words_apart(language: str, tokenizer: str) -> None:
    assert f"|tok:{tokenizer}|" in only("bleu", tgt_lang=language).signature


@pytest.mark.parametrize(("language", "package"), [("ja", "ja_mecab"), ("kor", "ko_mecab")])
def test_without_a_dictionary_bleu_counts_characters_and_says_so_once(
    language: str,
    package: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    module = pytest.importorskip(f"sacrebleu.tokenizers.tokenizer_{package}")
    for name in ("MeCab", "mecab_ko"):
        monkeypatch.setattr(module, name, None, raising=False)
    for _ in range(2):
        assert "|tok:char|" in only("bleu", tgt_lang=language).signature
    [record] = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "BLEU counts characters" in record.getMessage()
    assert "pip install 'sacrebleu[" in record.getMessage()


def test_chinese_words_of_ter_are_characters() -> None:
    [result] = score(["我爱北京"], ["我爱南京"], metrics=["ter"], tgt_lang="zh")
    assert result.value == pytest.approx(25)
    assert "asian:yes" in result.signature


def test_ter_of_a_language_without_spaces_warns(caplog: pytest.LogCaptureFixture) -> None:
    only("ter", tgt_lang="km")
    assert "target language km: TER takes whole sentences for words" in caplog.text


def test_different_numbers_of_lines_are_refused_with_both() -> None:
    with pytest.raises(DataError, match="got 2 translations and 3 references"):
        score(HYPOTHESES[:2], REFERENCES, metrics=["bleu"], tgt_lang="en")


def test_an_empty_set_is_refused() -> None:
    with pytest.raises(DataError, match="nothing to score"):
        score([], [], metrics=["bleu"], tgt_lang="en")


def test_blank_references_are_refused() -> None:
    with pytest.raises(DataError, match="all references are blank"):
        score(["x", "y"], ["", " "], metrics=["bleu"], tgt_lang="en")


@pytest.mark.parametrize("code", ["jp", "cn", "thai", "Japanese", "tha_Thai", "khm", "zh-CN"])
def test_scorer_and_sentence_splitter_know_the_same_codes(code: str) -> None:
    assert not has_spaces(code)
    assert plain_code(code) in WITHOUT_SPACES
    assert unknown_code_warning(code) is None


def test_a_code_that_nobody_knows_is_doubted_with_a_suggestion() -> None:
    assert "did you mean 'de'?" in (unknown_code_warning("germann") or "")
    assert unknown_code_warning("qq") is not None
    assert unknown_code_warning("swh_Latn") is None


def test_references_tell_their_script_and_blank_ones(caplog: pytest.LogCaptureFixture) -> None:
    assert language_of(None, ["\u6211\u7231\u5317\u4eac", ""]) == "zh"
    assert "1 of 2 references blank; they count" in caplog.text
    assert "seem to be in 'zh'" in caplog.text
    caplog.clear()
    assert language_of(None, ["Ein Hund."]) == ""
    assert language_of("de", ["\u6211"]) == "de"
    assert not caplog.text
    assert language_of("qq", ["a"]) == "qq"
    assert "--tgt-lang: 'qq'" in caplog.text


def test_references_in_another_script_than_that_of_the_model_get_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert language_of(None, ["\u6211\u7231\u5317\u4eac"], of_model="zh-CN") == "zh-CN"
    assert language_of(None, ["Ein Hund."], of_model="de") == "de"
    assert not caplog.text
    assert language_of(None, ["\u6211\u7231\u5317\u4eac", ""], of_model="de") == "de"
    assert "the references are in 'zh', but the target language of the model is 'de'" in caplog.text
    assert "1 of 2 references blank" in caplog.text
