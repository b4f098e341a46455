"""Tokenizers keep text, repeat exactly, and say clearly what they cannot do."""

import logging
import math
import pickle
import random
import signal
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transformer_mt.errors import ConfigError, DataError
from transformer_mt.text import tokenizer as tokenizer_module
from transformer_mt.text import tokenizer_training
from transformer_mt.text.segmentation import BpeDropout, UnigramSampling, split_words
from transformer_mt.text.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.text.tokenizer import NONCHARACTERS, Tokenizer
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.text.tokenizer_training import (
    MAX_LINE_CHARS,
    sample_lines,
    train_tokenizer,
    train_tokenizers,
)

Type = Literal["unigram", "bpe"]
TYPES: tuple[Type, ...] = get_args(Type)
SIZES: dict[Type, int] = {"bpe": 390, "unigram": 340}

WORDS = [
    *("Haus", "Häuser", "Hausbau", "Baum", "Bäume", "Katze", "Katzen", "Hund", "Hunde", "läuft"),
    *("laufen", "gelaufen", "schnell", "schneller", "grün", "grüner", "über", "Wasser", "und"),
    *("Wasserfall", "Stein", "steinig", "Himmel", "Sonne", "sonnig", "der", "die", "das", "nicht"),
    *("12", "2024", ",", ".", "!", "<s>", "</s>", "<pad>", "don't", "中文", "русский", "ไทย"),
]


@cache
def corpus() -> list[str]:
    rng = random.Random(1)
    return [" ".join(rng.choices(WORDS, k=rng.randrange(3, 12))) for _ in range(600)]


@cache
def trained(kind: Type, byte_fallback: bool = True) -> Tokenizer:
    return train_tokenizer(
        [corpus()],
        type=kind,
        vocab_size=SIZES[kind] if byte_fallback else 85,
        byte_fallback=byte_fallback,
        user_symbols=["<2de>", "a,b"],
    )


@pytest.fixture(params=TYPES)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    kind: Type = request.param
    return trained(kind)


fragments = st.sampled_from(
    [*WORDS, " ", "  ", "▁", "<2de>", "a,b", "<0x41>", "\t", "\n", *NONCHARACTERS[:2]]
)
any_text = st.text(st.characters(codec="utf-8")) | st.lists(fragments).map("".join)


class TestEncoding:
    @pytest.mark.parametrize("kind", TYPES)
    @given(text=any_text)
    def test_decoding_gives_the_same_text_back(self, kind, text):
        tokenizer = trained(kind)
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.encode_batch([text, "Haus", text]) == [
            tokenizer.encode(text),
            tokenizer.encode("Haus"),
            tokenizer.encode(text),
        ]

    @pytest.mark.parametrize("kind", TYPES)
    @given(text=st.text())
    def test_no_string_fails_and_no_text_becomes_a_special_id(self, kind, text):
        # st.text() has lone surrogates, which no file can hold.
        ids = trained(kind).encode(text)
        assert not {PAD_ID, UNK_ID, BOS_ID, EOS_ID} & set(ids)
        ids = trained(kind, byte_fallback=False).encode(text)
        assert not {PAD_ID, BOS_ID, EOS_ID} & set(ids)

    @pytest.mark.parametrize("text", ["<s>", "</s>", "<pad>", "<unk>", "<0x41>", "x</s>y", "▁"])
    def test_names_of_symbols_in_text_are_text(self, tokenizer, text):
        ids = tokenizer.encode(text)
        assert min(ids) > EOS_ID
        assert tokenizer.byte_ids[0x41] not in ids
        assert tokenizer.decode(ids) == text

    def test_spaces_and_characters_that_normalisation_breaks_stay(self, tokenizer):
        spaces = ("", " ", "  ", " Haus", "Haus ", "Haus  Baum", "\u00a0Haus\u202f!")
        # Sinhala and emoji with zero-width joiner, a decomposed letter, a ligature, a soft hyphen.
        fragile = ("ක්‍ෂ", "👩‍👩‍👧", "e\u0301", "ﬁ", "Wasser\u00adfall", "\ufeff", "\u061c")
        for text in (*spaces, *fragile):
            assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.encode("") == []

    def test_lone_surrogates_become_the_replacement_character(self, tokenizer):
        assert tokenizer.decode(tokenizer.encode("Haus\ud800")) == "Haus\ufffd"
        assert tokenizer.decode(tokenizer.encode("\ud83d\ude00")) == "😀"

    def test_unknown_characters_are_bytes_or_unk(self):
        tokenizer = trained("bpe")
        assert tokenizer.pieces(tokenizer.encode("ß"))[-2:] == ["<0xC3>", "<0x9F>"]
        assert tokenizer.byte_ids[0xC3] in tokenizer.encode("ß")
        plain = trained("bpe", byte_fallback=False)
        assert plain.byte_ids == []
        assert plain.encode("ß")[-1] == UNK_ID
        assert "\u2047" in plain.decode(plain.encode("ß"))

    def test_user_symbols_are_single_pieces(self, tokenizer):
        for symbol in ("<2de>", "a,b"):
            ids = tokenizer.encode(f"Haus{symbol} Baum")
            assert tokenizer.pieces(ids).count(symbol) == 1
            assert tokenizer.decode(ids) == f"Haus{symbol} Baum"

    def test_special_ids_are_left_out_of_text(self, tokenizer):
        ids = tokenizer.encode("Haus Baum")
        padded = [BOS_ID, *ids, EOS_ID, PAD_ID, PAD_ID]
        assert tokenizer.decode(padded) == "Haus Baum"
        assert tokenizer.decode(np.array(padded, dtype=np.uint16)) == "Haus Baum"  # type: ignore[arg-type]
        assert tokenizer.pieces([0, 1, 2, 3]) == ["<pad>", "<unk>", "<s>", "</s>"]

    def test_ids_that_are_no_text_become_the_replacement_character_or_an_error(self, tokenizer):
        assert tokenizer.decode([tokenizer.byte_ids[0xFF]]) == "\ufffd"
        with pytest.raises(IndexError):
            tokenizer.decode([tokenizer.vocab_size])


class TestSampling:
    @pytest.mark.parametrize("kind", TYPES)
    @settings(deadline=None)
    @given(text=any_text, seed=st.integers(0, 2**32), strength=st.floats(0, 0.99))
    def test_samples_decode_to_the_same_text(self, kind, text, seed, strength):
        tokenizer = trained(kind)
        ids = tokenizer.encode(text)
        sampled = tokenizer.sample(ids, np.random.default_rng(seed), strength=strength)
        assert tokenizer.decode(sampled) == text
        again = tokenizer.sample(ids, np.random.default_rng(seed), strength=strength)
        assert sampled == again
        if strength == 0:
            assert sampled == ids

    def test_dropout_of_almost_nothing_is_the_encoder_of_sentencepiece(self):
        tokenizer = trained("bpe")
        rng = np.random.default_rng(0)
        for line in [*corpus(), "", "▁", "  x  ", "<2de>", "Hausßbau", "Häuser" * 200]:
            ids = tokenizer.encode(line)
            assert tokenizer.sample(ids, rng, strength=1e-12) == ids

    def test_a_sharp_unigram_sample_is_the_encoder_of_sentencepiece(self):
        tokenizer = trained("unigram")
        rng = np.random.default_rng(0)
        for line in [*corpus(), "", "▁", "<2de>", "Hausßbau"]:
            ids = tokenizer.encode(line)
            assert tokenizer.sample(ids, rng, strength=1e6) == ids

    def test_much_dropout_leaves_characters(self):
        tokenizer = trained("bpe")
        ids = tokenizer.encode("Wasserfall")
        rng = np.random.default_rng(0)
        assert tokenizer.pieces(tokenizer.sample(ids, rng, strength=1 - 1e-12)) == list(
            "▁Wasserfall"
        )

    def test_dropout_follows_algorithm_1_of_provilkov(self):
        # The algorithm as the paper states it, with all draws made anew before each merge.
        scores = {"ab": -1.0, "bc": -2.0, "cd": -3.0, "abc": -4.0, "abcd": -5.0}
        names = [*"abcd", *scores]
        ids = {piece: i for i, piece in enumerate(names)}
        strength = 0.4

        def plain(rng: random.Random) -> tuple[str, ...]:
            symbols = list("abcd")
            while True:
                merges = [
                    (-scores[symbols[i] + symbols[i + 1]], i)
                    for i in range(len(symbols) - 1)
                    if symbols[i] + symbols[i + 1] in scores and rng.random() >= strength
                ]
                if not merges:
                    return tuple(symbols)
                i = min(merges)[1]
                symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]

        num_draws = 20_000
        chance = random.Random(0)
        expected = Counter(plain(chance) for _ in range(num_draws))
        sampler = BpeDropout(scores, ids)
        word = ("abcd", (ids["abcd"],))
        rng = np.random.default_rng(0)
        actual = Counter(
            tuple(names[i] for i in sampler.sample([word], rng, strength=strength))
            for _ in range(num_draws)
        )
        assert set(actual) == set(expected)
        for cut, count in expected.items():
            # Five standard deviations of the difference of two counts.
            assert abs(actual[cut] - count) < 5 * math.sqrt(2 * count), cut

    def test_unigram_samples_have_the_probabilities_of_kudo(self):
        scores = {"a": -1.0, "b": -1.5, "c": -2.0, "ab": -2.2, "bc": -2.4, "abc": -3.9}
        ids = {piece: i for i, piece in enumerate(scores)}
        alpha = 0.5
        cuts = [("a", "b", "c"), ("ab", "c"), ("a", "bc"), ("abc",)]
        weights = [math.exp(alpha * sum(scores[piece] for piece in cut)) for cut in cuts]
        sampler = UnigramSampling(scores, ids)
        rng = np.random.default_rng(0)
        names = list(scores)
        num_draws = 20_000
        actual = Counter(
            tuple(names[i] for i in sampler.sample([("abc", (5,))], rng, strength=alpha))
            for _ in range(num_draws)
        )
        assert set(actual) == set(cuts)
        for cut, weight in zip(cuts, weights, strict=True):
            mean = num_draws * weight / sum(weights)
            assert abs(actual[cut] - mean) < 5 * math.sqrt(mean), cut

    def test_words_with_characters_that_have_no_piece_stay_as_they_are(self):
        word = ("axb", (7,))
        rng = np.random.default_rng(0)
        ids = {"a": 0, "b": 1}
        assert BpeDropout({}, ids).sample([word], rng, strength=0.5) == [7]
        assert UnigramSampling({"a": -1, "b": -1}, ids).sample([word], rng, strength=0.5) == [7]

    def test_words_begin_at_spaces(self):
        pieces = [None, "▁Ha", "us", "▁", "▁Baum"]
        assert split_words([1, 2, 3, 0, 2, 4, 0, 0], pieces) == [
            ("▁Haus", (1, 2)),
            ("▁", (3,)),
            ("", (0,)),
            ("us", (2,)),
            ("▁Baum", (4,)),
            ("", (0,)),
            ("", (0,)),
        ]

    def test_long_text_without_spaces_is_no_trouble(self, tokenizer):
        ids = tokenizer.encode("Wasserfall" * 2_000)
        sampled = tokenizer.sample(ids, np.random.default_rng(0), strength=0.6)
        assert tokenizer.decode(sampled) == "Wasserfall" * 2_000

    def test_a_model_with_one_segmentation_samples_only_that(self, tmp_path):
        path = write_model(tmp_path / "x.model", model_type="char", vocab_size=40)
        tokenizer = Tokenizer.load(path)
        ids = tokenizer.encode("Haus Baum")
        assert tokenizer.sample(ids, np.random.default_rng(0), strength=0.5) == ids


def write_model(path: Path, **options: object) -> Path:
    arguments: dict[str, object] = {
        "vocab_size": 80,
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": 2,
        "eos_id": 3,
        "minloglevel": 4,
    }
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(corpus()), model_writer=file, **arguments | options
        )
    return path


def write_foreign_model(path: Path, **options: object) -> Path:
    """Train as SentencePiece does by default."""
    size = {"vocab_size": 340 if options["byte_fallback"] else 84}
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(corpus()), model_writer=file, minloglevel=4, **size | options
        )
    return path


def number_after(words: str, error: Exception) -> int:
    return int(str(error).partition(words)[2].split()[0])


class TestTraining:
    def test_equal_lines_give_an_equal_model(self):
        for kind in TYPES:
            again = train_tokenizer(
                [iter(corpus())], type=kind, vocab_size=SIZES[kind], user_symbols=["<2de>", "a,b"]
            )
            assert again.fingerprint() == trained(kind).fingerprint()

    def test_vocabulary_has_exactly_the_size_and_ids_asked_for(self, tokenizer):
        assert tokenizer.vocab_size in SIZES.values()
        assert len(tokenizer.byte_ids) == 256
        assert (PAD_ID, UNK_ID, BOS_ID, EOS_ID) == (0, 1, 2, 3)

    def test_sentencepiece_writes_nothing_to_the_terminal(self, capfd, monkeypatch):
        monkeypatch.setattr(tokenizer_training.logger, "disabled", True)
        train_tokenizer([corpus()], type="bpe", vocab_size=390)
        with pytest.raises(DataError):
            train_tokenizer([corpus()], type="unigram", vocab_size=100_000)
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize("kind", TYPES)
    @pytest.mark.parametrize(
        ("size", "reason", "step"),
        [(100_000, "vocabulary larger than the data allows", 1), (270, "vocabulary too small", -1)],
    )
    def test_a_size_that_does_not_fit_the_text_is_refused_with_the_nearest_that_does(
        self, kind, size, reason, step
    ):
        with pytest.raises(DataError, match=reason) as caught:
            train_tokenizer([corpus()], type=kind, vocab_size=size)
        nearest = number_after("set tokenizer.vocab_size to ", caught.value)
        assert train_tokenizer([corpus()], type=kind, vocab_size=nearest).vocab_size == nearest
        with pytest.raises(DataError, match=reason):
            train_tokenizer([corpus()], type=kind, vocab_size=nearest + step)

    def test_a_size_below_symbols_and_bytes_is_refused(self):
        with pytest.raises(DataError, match=r"vocab_size is 260, .* take 260"):
            train_tokenizer([corpus()], type="bpe", vocab_size=260)
        with pytest.raises(DataError, match=r"vocab_size is 5, .* take 5"):
            train_tokenizer(
                [corpus()], type="bpe", vocab_size=5, byte_fallback=False, user_symbols=["x"]
            )

    @pytest.mark.parametrize("lines", [[], [""], ["", "  ", "\u3000"]])
    def test_no_text_is_refused(self, lines):
        with pytest.raises(DataError, match="no text to train a tokenizer on"):
            train_tokenizer([lines], type="bpe", vocab_size=300)

    @pytest.mark.parametrize("lines", [["a"], ["▁"], ["\0"], ["\ud800"], ["</s>"], ["\t▅"]])
    @pytest.mark.parametrize("kind", TYPES)
    def test_tiny_and_odd_text_is_refused_or_trained_on(self, kind, lines):
        with pytest.raises(DataError, match="larger than the data allows") as caught:
            train_tokenizer([lines], type=kind, vocab_size=300)
        greatest = number_after("set tokenizer.vocab_size to ", caught.value)
        assert train_tokenizer([lines], type=kind, vocab_size=greatest).vocab_size == greatest

    @pytest.mark.parametrize(
        ("symbols", "reason"),
        [
            ([""], "empty"),
            (["a b"], "spaces"),
            (["▁a"], "reserved"),
            (["a\tb"], "spaces"),
            (["<s>"], "every tokenizer"),
            (["<unk>"], "every tokenizer"),
            (["<0x0A>"], "every tokenizer"),
            (["x", "y", "x"], "twice"),
        ],
    )
    def test_user_symbols_that_cannot_be_are_refused(self, symbols, reason):
        with pytest.raises(ConfigError, match=f"tokenizer.user_symbols: .*{reason}"):
            train_tokenizer([corpus()], type="bpe", vocab_size=390, user_symbols=symbols)

    def test_a_coverage_that_sentencepiece_does_not_know_is_refused(self):
        with pytest.raises(ConfigError, match=r"tokenizer\.character_coverage: expected 0\.98"):
            train_tokenizer([corpus()], type="bpe", vocab_size=390, character_coverage=0.95)

    def test_less_coverage_leaves_rare_characters_to_bytes(self):
        lines = [*corpus(), "\u1234"]
        for coverage, has_piece in ((1.0, True), (0.9995, False)):
            tokenizer = train_tokenizer(
                [lines], type="bpe", vocab_size=390, character_coverage=coverage
            )
            assert ("\u1234" in tokenizer.pieces(tokenizer.encode("\u1234"))) == has_piece

    def test_long_lines_are_used_up_to_a_limit(self, caplog):
        long = "ж" * 100 + " " + "ф " * MAX_LINE_CHARS + "ю"
        with caplog.at_level(logging.INFO):
            tokenizer = train_tokenizer([[*corpus(), long]], type="bpe", vocab_size=390)
        used = [character for character in "жфю" if character in tokenizer.ids]
        assert used == ["ж", "ф"]
        assert (
            "1 line longer than 4,000 characters: the tokenizer is trained on its beginning"
            in caplog.text
        )

    def test_a_sample_too_large_for_memory_is_thinned_with_a_warning(self, monkeypatch, caplog):
        monkeypatch.setattr(tokenizer_training, "MAX_SAMPLE_CHARS", 10_000)
        train_tokenizer([corpus()], type="bpe", vocab_size=330)
        [warning] = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        assert "of 600 sampled lines" in warning
        assert "tokenizer.num_sample_lines" in warning

    def test_a_signal_during_training_is_not_taken_for_bad_text(self, monkeypatch):
        lines = corpus()

        def interrupted(line: str) -> bytes:
            if line == lines[9]:
                signal.raise_signal(signal.SIGINT)
            return line.encode()

        monkeypatch.setattr(tokenizer_training, "to_utf8", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train_tokenizer([lines], type="bpe", vocab_size=390)

    def test_joint_and_separate_vocabularies(self):
        src, tgt = ["aaa bbb aab"] * 5, ["xxx yyy xxy"] * 5
        joint = train_tokenizers(src, tgt, joint=True, type="bpe", vocab_size=270)
        assert joint.joint
        assert joint.src is joint.tgt
        assert "a" in joint.tgt.pieces(joint.tgt.encode("ax"))
        separate = train_tokenizers(src, tgt, joint=False, type="bpe", vocab_size=266)
        assert not separate.joint
        assert separate.src.fingerprint() != separate.tgt.fingerprint()
        assert "<0x61>" in separate.tgt.pieces(separate.tgt.encode("a"))


class TestSampleOfLines:
    def test_every_line_is_as_likely_as_any_other(self):
        lines = [str(i) for i in range(20)]
        counts = Counter(line for seed in range(4000) for line in sample_lines(lines, 5, seed=seed))
        # Each is drawn with probability 1/4: 1000 +- 27.
        assert all(860 < counts[line] < 1140 for line in lines), counts

    def test_blank_lines_do_not_count_and_few_lines_are_all_taken(self):
        assert sample_lines(["", "a", " ", "b"], 5, seed=1) == ["a", "b"]

    def test_equal_seeds_draw_equal_lines(self):
        lines = [str(i) for i in range(1000)]
        assert sample_lines(lines, 10, seed=1) == sample_lines(iter(lines), 10, seed=1)
        assert sample_lines(lines, 10, seed=1) != sample_lines(lines, 10, seed=2)


class TestFiles:
    def test_saved_tokenizers_are_the_same_when_loaded(self, tmp_path):
        bpe, unigram = trained("bpe"), trained("unigram")
        for tokenizers, files in (
            (Tokenizers(bpe, unigram), ["src.model", "tgt.model"]),
            (Tokenizers(bpe, bpe), ["joint.model"]),
        ):
            tokenizers.save(tmp_path / "new" / "tokenizer")
            loaded = Tokenizers.load(tmp_path / "new" / "tokenizer")
            assert sorted(p.name for p in (tmp_path / "new" / "tokenizer").iterdir()) == files
            assert loaded.joint == tokenizers.joint
            assert loaded.fingerprint() == tokenizers.fingerprint()
            assert loaded.tgt.type == tokenizers.tgt.type
            assert loaded.tgt.encode("Häuser") == tokenizers.tgt.encode("Häuser")

    def test_fingerprints_tell_models_and_sides_apart(self):
        bpe, unigram = trained("bpe"), trained("unigram")
        pairs = [(bpe, bpe), (unigram, unigram), (bpe, unigram), (unigram, bpe)]
        assert len({Tokenizers(*pair).fingerprint() for pair in pairs}) == 4

    def test_tokenizers_go_to_other_processes(self):
        bpe = trained("bpe")
        bpe.sample(bpe.encode("Haus"), np.random.default_rng(0), strength=0.5)
        copy = pickle.loads(pickle.dumps(Tokenizers(bpe, bpe)))
        assert copy.joint
        assert copy.fingerprint() == Tokenizers(bpe, bpe).fingerprint()

    @pytest.mark.parametrize(
        "data",
        [b"", b"\0", b"\n", b"hello world" * 100, b"\x0a\xff\xff\xff\xff\xff\xff", b"\x1a\0\x12\0"],
    )
    def test_files_that_are_no_models_are_refused_by_name(self, tmp_path, data):
        path = tmp_path / "joint.model"
        path.write_bytes(data)
        with pytest.raises(DataError, match=r"joint\.model: not a (whole|sound) SentencePiece"):
            Tokenizer.load(path)

    def test_models_cut_anywhere_are_refused(self, tmp_path):
        whole = tmp_path / "whole.model"
        trained("bpe").save(whole)
        data = whole.read_bytes()
        for size in [*range(0, len(data) - 200, 97), *range(len(data) - 200, len(data), 3)]:
            # The last part holds options of the trainer's normaliser, which are all optional.
            if size > data.rindex(b"identity"):
                break
            path = tmp_path / "cut.model"
            path.write_bytes(data[:size])
            with pytest.raises(DataError, match=r"cut\.model"):
                Tokenizer.load(path)

    @settings(max_examples=100, deadline=None)
    @example(place=0.9425701212767849, byte=9)  # a length inside the record of a piece
    @given(place=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
    def test_a_changed_byte_gives_an_error_or_a_working_tokenizer(self, place, byte):
        data = bytearray(trained("bpe").model)
        data[int(place * len(data))] = byte
        try:
            tokenizer = Tokenizer(bytes(data))
        except ValueError:
            return
        ids = tokenizer.encode("Häuser und </s> ▁")
        sampled = tokenizer.sample(ids, np.random.default_rng(0), strength=0.1)
        assert all(0 <= id < tokenizer.vocab_size for id in [*ids, *sampled])
        assert isinstance(tokenizer.decode(sampled), str)

    @pytest.mark.parametrize("kind", TYPES)
    @pytest.mark.parametrize("byte_fallback", [True, False])
    @pytest.mark.parametrize(
        "options",
        [
            {},  # of SentencePiece itself: unk 0, bos 1, eos 2, no pad, nmt_nfkc
            {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},  # T5
            {"pad_id": 9, "unk_id": 3, "pad_piece": "[P]", "user_defined_symbols": ["<pad>", "a"]},
            {"treat_whitespace_as_suffix": True, "control_symbols": ["<mask>"]},
        ],
    )
    def test_a_model_with_other_ids_cuts_and_joins_as_sentencepiece_does(
        self, tmp_path, kind, byte_fallback, options
    ):
        path = write_foreign_model(
            tmp_path / "spm.model", model_type=kind, byte_fallback=byte_fallback, **options
        )
        theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
        ours = Tokenizers.load(path).src
        special = ours.pieces([PAD_ID, UNK_ID, BOS_ID, EOS_ID])
        assert special[1:] == ["<unk>", "<s>", "</s>"]
        assert special[0] in ("<pad>", "[P]")
        lines = [*corpus()[:50], " ﬁ  x ▁ ½ ", "", " ", "😀<pad>a</s>", "Haus\u200dBaum ŒÆ"]
        for line, ids in zip(lines, ours.encode_batch(lines), strict=True):
            assert ours.pieces(ids) == list(map(theirs.IdToPiece, theirs.Encode(line)))
            assert ours.decode(ids) == theirs.Decode(theirs.Encode(line))
            assert ours.encode(line) == ids
            for strength in (0.1, 0.5):
                noisy = ours.sample(ids, np.random.default_rng(1), strength=strength)
                assert ours.decode(noisy) == ours.decode(ids)
                assert all(id > EOS_ID or id == UNK_ID for id in noisy)
        assert {ours.decode([id]) for id in (PAD_ID, BOS_ID, EOS_ID)} == {""}
        symbols = options.get("user_defined_symbols", [])
        assert ours.user_symbols == symbols
        ours.save(tmp_path / "again.model")
        again = Tokenizer.load(tmp_path / "again.model")
        assert again.fingerprint() == ours.fingerprint()
        assert again.vocab_size == theirs.GetPieceSize() + (1 if theirs.pad_id() < 0 else 0) + (
            1 if theirs.bos_id() < 0 else 0
        )

    def test_a_file_too_large_for_a_tokenizer_is_not_read(self, tmp_path, monkeypatch):
        path = tmp_path / "joint.model"
        path.write_bytes(bytes(1001))
        monkeypatch.setattr(tokenizer_module, "MAX_MODEL_BYTES", 1000)
        with pytest.raises(DataError, match="more than 1,000 bytes"):
            Tokenizer.load(path)

    def test_missing_tokenizers_are_named(self, tmp_path):
        with pytest.raises(DataError, match="no such folder"):
            Tokenizers.load(tmp_path / "missing")
        with pytest.raises(DataError, match=r"no tokenizer here: expected joint\.model"):
            Tokenizers.load(tmp_path)
        (tmp_path / "file").touch()
        with pytest.raises(DataError, match="file: not a whole SentencePiece model"):
            Tokenizers.load(tmp_path / "file")
        trained("bpe").save(tmp_path / "src.model")
        with pytest.raises(DataError, match=r"tgt\.model: no such tokenizer file"):
            Tokenizers.load(tmp_path)
        (tmp_path / "src.model").unlink()
        (tmp_path / "joint.model").mkdir()
        with pytest.raises(DataError, match=r"joint\.model: cannot be read: is a directory"):
            Tokenizers.load(tmp_path)

    def test_a_model_of_others_works_with_its_own_rules(self, tmp_path):
        path = write_model(tmp_path / "x.model", model_type="bpe", vocab_size=120)
        tokenizer = Tokenizer.load(path)
        assert tokenizer.byte_ids == []
        assert tokenizer.decode(tokenizer.encode(" ﬁ  Haus▁Baum ")) == "fi Haus Baum"
