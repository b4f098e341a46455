"""Phrases that hypotheses must hold: progress, guarantees, and the best of all that hold them."""

import functools
import itertools

import numpy as np
import pytest
import torch
from fake_decoders import BOS, EOS, GruDecoder, TableDecoder, memory_of

from transformer_mt.search.beam_search import beam_search
from transformer_mt.search.length_penalty import LengthPenalty
from transformer_mt.search.logit_processors import NoRepeatedNgrams, Suppressed
from transformer_mt.search.phrase_constraints import PhraseConstraints, PhraseProgress

SOURCES = [[5, 6], [7], [4, 4, 8, 5], [8, 6, 5], [6]]
LIMITS = [7, 5, 9, 8, 6]
PHRASES = [((5,),), (), ((6, 7), (4,)), ((8, 8), (5, 4), (7,)), ((4, 5, 6, 7, 8),)]
FREE = torch.zeros(100, dtype=torch.bool)


def progress_of(tokens, phrases):
    return functools.reduce(PhraseProgress.after, tokens, PhraseProgress(phrases))


def run(
    decoder, lines, *, beam_size, phrases=PHRASES, limits=LIMITS, continues_word=FREE, processors=()
):
    constraints = PhraseConstraints(
        [phrases[i] for i in lines],
        np.array([limits[i] for i in lines]),
        beam_size=beam_size,
        continues_word=continues_word[: decoder.vocab_size],
        processors=processors,
    )
    return beam_search(
        decoder,
        memory_of([SOURCES[i] for i in lines]),
        beam_size=constraints.num_slots,
        n_best=beam_size,
        length_penalty=LengthPenalty(),
        max_lengths=torch.tensor([limits[i] for i in lines]),
        processors=[constraints.restrict],
        select=constraints,
    )


def table(vocab_size=9, **options):
    decoder = TableDecoder(vocab_size, **options)
    decoder.vocab_size = vocab_size
    return decoder


def holds(tokens: list[int], phrases) -> bool:
    """Whether the phrases are there, side by side and not overlapping."""
    if not phrases:
        return True
    first, rest = phrases[0], phrases[1:]
    for i in range(len(tokens) - len(first) + 1):
        if tuple(tokens[i : i + len(first)]) == first:
            # A hole in place of what is used, so that nothing else can use it.
            holed = [*tokens[:i], *[-1] * len(first), *tokens[i + len(first) :]]
            if holds(holed, rest):
                return True
    return False


@pytest.mark.parametrize("beam_size", [1, 2, 5])
@pytest.mark.parametrize("seed", range(4))
def test_every_hypothesis_holds_its_phrases(beam_size, seed):
    found = run(table(seed=seed, spread=2.0), range(5), beam_size=beam_size)
    for hypotheses, phrases, limit in zip(found, PHRASES, LIMITS, strict=True):
        assert hypotheses
        for hypothesis in hypotheses:
            assert holds(hypothesis.tokens, phrases), (hypothesis.tokens, phrases)
            assert len(hypothesis.tokens) < limit


def test_phrases_that_leave_no_room_for_anything_else_are_all_that_is_said():
    phrases = [((5, 6), (7,))] * 5
    for hypotheses in run(
        table(spread=2.0), range(5), beam_size=2, phrases=phrases, limits=[4] * 5
    ):
        assert hypotheses
        for hypothesis in hypotheses:
            assert hypothesis.tokens in ([5, 6, 7], [7, 5, 6])


@pytest.mark.parametrize("phrases", [((5,),), ((4, 5),), ((5,), (4,)), ((5, 5),), ((4,), (4,))])
def test_a_wide_beam_finds_the_best_of_all_that_hold_the_phrases(phrases):
    vocab_size, limit = 6, 6
    for seed in range(3):
        decoder = table(vocab_size, seed=seed, spread=1.5)
        every = []
        for length in range(limit):
            for tokens in itertools.product([4, 5], repeat=length):
                if holds(list(tokens), phrases):
                    key, log_prob = int(decoder._start(memory_of([[5, 6]]))[0]), 0.0
                    for last, token in itertools.pairwise([BOS, *tokens, EOS]):
                        key = int(decoder._next(key, last))
                        log_prob += float(torch.log_softmax(decoder.logits[key], -1)[token])
                    score = float(LengthPenalty().scores(np.array(log_prob), length + 1))
                    every.append((score, list(tokens)))
        every.sort(reverse=True)
        (found,) = run(decoder, [0], beam_size=70, phrases=[phrases], limits=[limit])
        assert [h.tokens for h in found[:5]] == [tokens for _, tokens in every[:5]]
        assert [h.score for h in found[:5]] == pytest.approx([score for score, _ in every[:5]])


def test_sentences_without_phrases_and_neighbours_are_as_without():
    decoder = GruDecoder(80)
    decoder.vocab_size = 80
    together = run(decoder, range(5), beam_size=3)
    shuffled = run(decoder, [3, 1, 4, 0, 2], beam_size=3)
    for place, line in enumerate([3, 1, 4, 0, 2]):
        assert [h.tokens for h in shuffled[place]] == [h.tokens for h in together[line]]
    free = beam_search(
        decoder,
        memory_of([SOURCES[1]]),
        beam_size=3,
        n_best=3,
        length_penalty=LengthPenalty(),
        max_lengths=torch.tensor([LIMITS[1]]),
    )
    assert [h.tokens for h in together[1]] == [h.tokens for h in free[0]]


def test_a_phrase_ends_where_its_word_ends():
    continues = torch.zeros(9, dtype=torch.bool)
    continues[[6, 7]] = True
    for seed in range(5):
        for hypotheses in run(
            table(seed=seed, spread=2.0),
            range(5),
            beam_size=3,
            phrases=[((5,),)] * 5,
            continues_word=continues,
        ):
            for hypothesis in hypotheses:
                text = [*hypothesis.tokens, EOS]
                assert any(a == 5 and b not in (6, 7) for a, b in itertools.pairwise(text))


def test_a_phrase_is_there_though_its_words_are_suppressed_and_may_not_come_again():
    phrases = [((5,), (6,), (5,))] * 5
    processors = [Suppressed([[5], [6]]), NoRepeatedNgrams(1)]
    for seed in range(3):
        found = run(
            table(seed=seed, spread=2.0),
            range(5),
            beam_size=3,
            phrases=phrases,
            processors=processors,
        )
        for hypotheses in found:
            assert hypotheses
            for hypothesis in hypotheses:
                assert holds(hypothesis.tokens, phrases[0])
                assert sum(token in (5, 6) for token in hypothesis.tokens) == 3


def test_a_phrase_that_turns_out_to_be_the_beginning_of_a_word_is_missing_again():
    ended = progress_of([1, 2], ((1, 2), (3,)))
    assert ended.missing == ((3,),)
    assert set(ended.after(4, continues_word=True).missing) == {(1, 2), (3,)}
    assert ended.after(3, continues_word=True).missing == ((1, 2),)
    assert ended.after(4).missing == ((3,),)


@pytest.mark.parametrize(
    ("tokens", "missing", "begun"),
    [
        ([], ((1, 2), (3,)), ()),
        ([1], ((1, 2), (3,)), (1,)),
        ([1, 1], ((1, 2), (3,)), (1,)),
        ([1, 1, 2], ((3,),), ()),
        ([1, 3], ((1, 2),), ()),
        ([9, 1, 2, 3, 1], (), ()),
    ],
)
def test_progress_counts_what_is_met_and_what_is_begun(tokens, missing, begun):
    progress = progress_of(tokens, ((1, 2), (3,)))
    assert (progress.missing, progress.begun) == (missing, begun)
    assert progress.num_missing == sum(map(len, missing)) - len(begun)


def test_a_phrase_wanted_twice_must_come_twice():
    assert progress_of([7, 8], ((7,), (7,))).missing == ((7,),)
    assert progress_of([7, 8, 7], ((7,), (7,))).missing == ()
