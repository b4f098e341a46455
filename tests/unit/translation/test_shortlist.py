"""Search among the tokens that a source makes likely."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_decoders import TableDecoder, memory_of

from tests.commands import tmt as run
from transformer_mt.bundle import Bundle, load_bundle
from transformer_mt.data.lexicon import Lexicon
from transformer_mt.errors import ConfigError
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.search.beam_search import beam_search
from transformer_mt.search.length_penalty import LengthPenalty
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.requests import Line, Request
from transformer_mt.translation.shortlist import Shortlist
from transformer_mt.translation.translator import Translator

V = 40
OPTIONS = SearchOptions(beam_size=4, max_length_offset=8, batch_tokens=400)
SOURCES = [[5, 9, 21], [30], [7, 7, 8, 12]]


def random_lexicon(vocab_size: int, num: int, *, seed: int = 0) -> Lexicon:
    """Candidates without sense."""
    rng = np.random.default_rng(seed)
    candidates = rng.integers(0, vocab_size, (vocab_size, num)).astype(np.int32)
    return Lexicon(candidates, np.array([10, 20], np.int32))


class Masked(TableDecoder):
    """The whole vocabulary, but for one sentence with logits of minus infinity."""

    def __init__(self, allowed: list[int]):
        super().__init__(V)
        forbidden = torch.ones(V, dtype=torch.bool)
        forbidden[allowed] = False
        self.logits = self.logits.masked_fill(forbidden, -torch.inf)


class Limited(TableDecoder):
    """A table that can be limited, as models can."""

    def limited_to(self, tokens: torch.Tensor) -> "Limited":
        limited = Limited(V)
        limited.logits = self.logits[:, tokens]
        return limited


def search(decoder, sources, **options):
    return beam_search(
        decoder,
        memory_of(sources),
        beam_size=3,
        length_penalty=LengthPenalty("gnmt", 0.6),
        max_lengths=torch.full((len(sources),), 6),
        n_best=3,
        **options,
    )


def test_a_batch_finds_what_each_sentence_finds_alone_among_its_own_tokens():
    lexicon = random_lexicon(V, 3)
    shortlist = Shortlist(lexicon, [Request(tuple(s)) for s in SOURCES], torch.device("cpu"))
    found = shortlist.restored(search(shortlist.limited(Limited(V)), SOURCES))
    for source, own in zip(SOURCES, found, strict=True):
        allowed = {*range(4), 10, 20, *lexicon.candidates[source].ravel().tolist()}
        assert len(allowed) < len(shortlist.ids) < V
        (expected,) = search(Masked(sorted(allowed)), [source])
        assert [h.tokens for h in own] == [h.tokens for h in expected]
        assert [h.score for h in own] == pytest.approx([h.score for h in expected], abs=1e-5)


@pytest.fixture(scope="module")
def bundle(tiny_bundle) -> Bundle:
    return load_bundle(tiny_bundle)


def make(bundle: Bundle, lexicon: Lexicon | None, **options) -> Translator:
    return Translator(bundle, replace(OPTIONS, **options), lexicon=lexicon)


def test_a_translation_does_not_depend_on_batch_size_or_neighbours(bundle, tiny_text):
    lines = tiny_text[0][:30]
    lexicon = random_lexicon(400, 5)
    expected = make(bundle, lexicon).translate(lines)
    assert [t.text for t in expected] != [t.text for t in make(bundle, None).translate(lines)]
    order = random.Random(0).sample(range(len(lines)), len(lines))
    for batch_tokens in (1, 100_000):
        found = make(bundle, lexicon, batch_tokens=batch_tokens).translate(
            [lines[i] for i in order]
        )
        for i, translation in zip(order, found, strict=True):
            assert translation.text == expected[i].text
            assert translation.score == pytest.approx(expected[i].score, abs=1e-4)


def test_a_list_of_all_tokens_changes_nothing(bundle, tiny_text):
    everything = Lexicon(np.zeros((400, 1), np.int32), np.arange(400, dtype=np.int32))
    options = {"no_repeat_ngram": 2, "min_length": 5, "coverage_penalty": 0.2, "n_best": 3}
    some = make(bundle, everything, **options).translate(tiny_text[0][:20])
    plain = make(bundle, None, **options).translate(tiny_text[0][:20])
    for one, other in zip(some, plain, strict=True):
        assert [c.tokens for c in one.n_best] == [c.tokens for c in other.n_best]
        assert one.score == pytest.approx(other.score, abs=1e-4)


def test_outputs_hold_only_listed_tokens_and_their_constraints(bundle, tiny_text):
    lexicon = random_lexicon(400, 4)
    tokenizer = bundle.tokenizers.tgt
    lines = [Line(text, "der Hund", ("blau rot",)) for text in tiny_text[0][:5]]
    plain = make(bundle, lexicon, suppress=("Hund", "alt")).translate(tiny_text[0][:5])
    forced = make(bundle, lexicon).translate(lines)
    for line, free, bound in zip(lines, plain, forced, strict=True):
        allowed = set(lexicon.tokens_for(tokenizer.encode(line.text)).tolist())
        assert allowed.issuperset(free.n_best[0].parts[0].target)
        wanted = {*tokenizer.encode("der Hund"), *tokenizer.encode("blau rot")}
        assert not wanted <= allowed
        assert (allowed | wanted).issuperset(bound.n_best[0].parts[0].target)
        assert bound.text.startswith("der Hund")
        assert "blau rot" in bound.text


def test_samples_are_refused(bundle):
    with pytest.raises(ConfigError, match="not with samples"):
        make(bundle, random_lexicon(400, 3), sample=True)


@pytest.fixture(scope="module")
def made(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command learns from the training pairs of the tiny model."""
    folder = tmp_path_factory.mktemp("lists")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # its corpora
        result = run("shortlist", "--model", tiny_bundle, "--output", folder / "new" / "list",
                     "--candidates", 4, "--frequent", 10)  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "learning from 20 pairs of 20" in result.stderr
    return Path(result.stdout.strip())


def test_the_command_learns_and_translate_uses_it(tiny_bundle, made):
    lexicon = Lexicon.load(made, load_bundle(tiny_bundle).tokenizers)
    assert lexicon.candidates.shape == (400, 5)
    assert lexicon.frequent.shape == (10,)
    options = ("--model", tiny_bundle, "--set", f"decoding.shortlist={made}")
    result = run("translate", *options, data=b"A dog.\n")
    assert result.exit_code == 0, result.stderr
    (expected,) = make(load_bundle(tiny_bundle), lexicon).translate(["A dog."])
    assert result.stdout == f"{expected.text}\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--sample"], "one model"),
        (["--set", "decoding.mbr=chrf"], "one model"),
        (["--model", "again"], "one model"),
    ],
)
def test_options_that_do_not_go_with_a_shortlist_are_refused(tiny_bundle, made, options, words):
    result = run(
        "translate",
        "--model",
        tiny_bundle,
        "--set",
        f"decoding.shortlist={made}",
        *options,
        data=b"x\n",
    )
    assert result.exit_code == 2
    assert words in result.stderr


def test_an_ensemble_cannot_be_limited(bundle):
    from transformer_mt.models.ensemble import ensemble

    both: Seq2Seq = ensemble([bundle.model, bundle.model], [1, 1])
    with pytest.raises(ConfigError, match="not with an ensemble"):
        both.decoder.limited_to(torch.tensor([5]))
