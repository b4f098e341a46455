"""Beam search against plain definitions, on decoders small enough to enumerate."""

import itertools
import math
import random

import pytest
import torch
from fake_decoders import BANNED, BOS, EOS, GruDecoder, TableDecoder, memory_of, packed
from torch import Tensor

from transformer_mt.errors import ModelError
from transformer_mt.search.beam_search import beam_search
from transformer_mt.search.continuations import best_continuations
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.search.length_penalty import LengthPenalty
from transformer_mt.translation import scoring
from transformer_mt.translation.scoring import score_targets

PENALTIES = [
    LengthPenalty("gnmt", 0.0),
    LengthPenalty("gnmt", 0.6),
    LengthPenalty("gnmt", 2.0),
    LengthPenalty("average", 0.6),
    LengthPenalty("average", 1.0),
    LengthPenalty("reward", 0.5),
    LengthPenalty("reward", 3.0),
]
GNMT = LengthPenalty("gnmt", 0.6)


def run(decoder, sources: list[list[int]], max_lengths: list[int], **options):
    settings = {"beam_size": 4, "length_penalty": GNMT, "n_best": 1} | options
    return beam_search(
        decoder,
        memory_of(sources),
        max_lengths=torch.tensor(max_lengths),
        **settings,
    )


def log_probs_after(decoder, source: list[int], prefix: list[int]) -> Tensor:
    """Log-probabilities of the token after bos + prefix, from the decoder's training pass."""
    tgt_in, segments = packed([[BOS, *prefix]])
    with torch.no_grad():
        states = decoder(tgt_in, segments, memory_of([source]))
        weight, bias = decoder.output_weight()
        return torch.log_softmax(torch.nn.functional.linear(states[-1], weight, bias), dim=-1)


def ranked(log_prob: float, length: int, penalty: LengthPenalty) -> float:
    if penalty.kind == "gnmt":
        return log_prob / ((5 + length) / 6) ** penalty.strength
    if penalty.kind == "average":
        return log_prob / length**penalty.strength
    return log_prob + penalty.strength * length


def plain_beam_search(
    decoder, source: list[int], max_length: int, *, beam_size, length_penalty, n_best
) -> list[Hypothesis]:
    """The same slots and the same order of equals, but it never stops before all slots close."""
    slots: list[tuple[list[int], Tensor]] = [([], torch.tensor(0.0))]
    finished: list[Hypothesis] = []
    width = beam_size
    for length in range(1, max_length + 1):
        candidates = []
        for number, (prefix, total) in enumerate(slots):
            log_probs = log_probs_after(decoder, source, prefix)
            for token in range(len(log_probs)):
                if token in BANNED or (length == max_length and token != EOS):
                    continue
                candidates.append((float(total + log_probs[token]), number, token))
        candidates.sort(key=lambda c: (-c[0], c[1], c[2]))
        old, slots = slots, []
        for total, number, token in candidates[:width]:
            prefix = old[number][0]
            if token == EOS:
                finished.append(Hypothesis(prefix, total, ranked(total, length, length_penalty)))
            else:
                slots.append(([*prefix, token], torch.tensor(total)))
        width = beam_size - len(finished)
    return sorted(finished, key=lambda h: -h.score)[:n_best]


def random_sources(count: int, *, seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(4, 9) for _ in range(rng.randrange(1, 6))] for _ in range(count)]


def assert_same(found: list[Hypothesis], expected: list[Hypothesis], *, tolerance: float = 2e-5):
    assert [h.tokens for h in found] == [h.tokens for h in expected]
    for a, b in zip(found, expected, strict=True):
        assert a.log_prob == pytest.approx(b.log_prob, abs=tolerance)
        assert a.score == pytest.approx(b.score, abs=tolerance)


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
def test_beam_search_equals_brute_force_when_the_beam_holds_everything(penalty):
    max_length, vocab_size = 4, 7
    letters = [t for t in range(vocab_size) if t not in (*BANNED, EOS)]
    for seed in range(3):
        decoder = TableDecoder(vocab_size, seed=seed, spread=1.5)
        every = []
        for length in range(max_length):
            for tokens in itertools.product(letters, repeat=length):
                log_prob = 0.0
                for place, token in enumerate([*tokens, EOS]):
                    log_prob += float(log_probs_after(decoder, [5, 6], list(tokens[:place]))[token])
                every.append(
                    Hypothesis(list(tokens), log_prob, ranked(log_prob, length + 1, penalty))
                )
        every.sort(key=lambda h: -h.score)
        assert len(every) == 1 + 3 + 9 + 27
        (found,) = run(
            decoder, [[5, 6]], [max_length], beam_size=40, length_penalty=penalty, n_best=10
        )
        assert_same(found, every[:10])


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
@pytest.mark.parametrize("beam_size", [1, 2, 3, 5])
def test_stopping_early_changes_no_result(penalty, beam_size):
    early = 0
    for seed in range(3):
        decoder = TableDecoder(9, seed=seed, spread=2.0)
        sources = random_sources(5, seed=seed)
        max_lengths = [len(source) + 7 for source in sources]
        for n_best in {1, beam_size}:
            options = {"beam_size": beam_size, "length_penalty": penalty, "n_best": n_best}
            found = run(decoder, sources, max_lengths, **options)
            early += decoder.num_steps < max(max_lengths)
            for line, source in enumerate(sources):
                expected = plain_beam_search(decoder, source, max_lengths[line], **options)
                assert_same(found[line], expected)
    assert early > 0


@pytest.mark.parametrize("penalty", [PENALTIES[1], PENALTIES[4], PENALTIES[6]], ids=str)
@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("sync_every", [2, 3, 100])
def test_syncing_every_few_steps_changes_no_result(penalty, beam_size, sync_every):
    decoder = TableDecoder(9, spread=2.0)
    sources = random_sources(20)
    max_lengths = [len(source) % 3 + 5 for source in sources]
    for n_best in {1, beam_size}:
        options = {"beam_size": beam_size, "length_penalty": penalty, "n_best": n_best}
        expected = run(decoder, sources, max_lengths, **options)
        steps = decoder.num_steps
        found = run(decoder, sources, max_lengths, sync_every=sync_every, **options)
        assert found == expected
        assert decoder.num_steps <= max(max_lengths)
        assert decoder.num_steps in (max(max_lengths), steps + -steps % sync_every)


def test_search_ends_when_no_open_hypothesis_can_win():
    class Certain(TableDecoder):
        """Ends at once with probability near 1; the other slots could go on for long."""

        def step(self, tokens, state):
            logits, state = super().step(tokens, state)
            logits = logits.clone()
            logits[..., EOS] += 20.0 if self.num_steps == 1 else -20.0
            return logits, state

    decoder = Certain(9)
    run(decoder, [[5]], [50], beam_size=4)
    assert decoder.num_steps == 1
    run(decoder, [[5]], [50], beam_size=4, n_best=2)
    assert decoder.num_steps > 1


def test_forced_scores_do_not_depend_on_how_logits_are_split(monkeypatch):
    decoder = GruDecoder(50)
    tgt_in, segments = packed([[BOS, 5, 6, 7], [BOS, 8]])
    arguments = {
        "tgt_in": tgt_in,
        "tgt_out": torch.tensor([5, 6, 7, EOS, 8, EOS]),
        "segments": segments,
    }
    memory = memory_of([[4, 5], [6]])
    whole = score_targets(decoder, memory, **arguments)
    monkeypatch.setattr(scoring, "MAX_LOGITS", 60)
    torch.testing.assert_close(score_targets(decoder, memory, **arguments), whole)


@pytest.mark.parametrize("vocab_size", [9, 64, 65, 200])
def test_equal_candidates_come_in_the_order_of_slots_and_tokens(vocab_size):
    class Coarse(TableDecoder):
        """Few different logits, so that many candidates are equal."""

        def __init__(self):
            super().__init__(vocab_size, seed=3)
            self.logits = self.logits.round().clamp(-1, 1)

    decoder = Coarse()
    sources = random_sources(12)
    found = run(decoder, sources, [6] * 12, beam_size=5, n_best=5)
    for line, source in enumerate(sources):
        expected = plain_beam_search(decoder, source, 6, beam_size=5, length_penalty=GNMT, n_best=5)
        assert_same(found[line], expected)


@pytest.mark.parametrize("num", [1, 4, 7])
@pytest.mark.parametrize("vocab_size", [5, 63, 64, 65, 128, 200, 1001])
def test_best_continuations_equal_a_full_sort(num, vocab_size):
    generator = torch.Generator().manual_seed(num)
    log_probs = torch.randn(3, 4, vocab_size, generator=generator).round(decimals=1)
    log_probs[0, 1, -1] = 9  # the last block may hold no other token
    log_probs = torch.log_softmax(log_probs, dim=-1)
    log_probs[..., :3] = -torch.inf
    scores = -torch.rand(3, 4, generator=generator).round(decimals=1)
    scores[1, 2] = -torch.inf
    found = best_continuations(log_probs, scores, num)
    for line in range(3):
        sums = scores[line, :, None] + log_probs[line]
        every = [
            (-float(sums[slot, token]), slot, token)
            for slot in range(4)
            for token in range(vocab_size)
        ]
        got = zip(-found.scores[line], found.slots[line], found.tokens[line], strict=True)
        alive = [triple for triple in got if triple[0] < math.inf]
        best = [triple for triple in sorted(every)[:num] if triple[0] < math.inf]
        assert alive == [pytest.approx(triple) for triple in best]


def test_at_the_greatest_length_only_eos_follows_and_costs_what_it_costs():
    class NeverEnds(TableDecoder):
        def __init__(self):
            super().__init__(9)
            self.logits[:, EOS] -= 30

    decoder = NeverEnds()
    sources = random_sources(3)
    found = run(decoder, sources, [3, 1, 6], beam_size=2, n_best=2)
    assert [[len(h.tokens) for h in hypotheses] for hypotheses in found] == [[2, 2], [0], [5, 5]]
    for hypotheses, source in zip(found, sources, strict=True):
        for hypothesis in hypotheses:
            last = float(log_probs_after(decoder, source, hypothesis.tokens)[EOS])
            assert last < -25
            assert hypothesis.log_prob <= last


def test_banned_tokens_keep_their_share_of_the_probability():
    class Flat(TableDecoder):
        def __init__(self):
            super().__init__(10)
            self.logits.zero_()

    ((found,),) = run(Flat(), [[5]], [1])
    assert found.log_prob == pytest.approx(-math.log(10))


@pytest.mark.parametrize("beam_size", [5, 9, 30])
def test_a_beam_may_exceed_the_vocabulary(beam_size):
    decoder = TableDecoder(6)
    (found,) = run(decoder, [[5]], [3], beam_size=beam_size, n_best=beam_size)
    options = {"beam_size": beam_size, "length_penalty": GNMT, "n_best": beam_size}
    assert_same(found, plain_beam_search(decoder, [5], 3, **options))
    assert len(found) == min(beam_size, 1 + 2 + 4)


def test_sentences_that_ended_leave_the_batch():
    decoder = TableDecoder(9, spread=2.0)
    run(decoder, random_sources(30), [12] * 30)
    assert decoder.num_rows < 0.75 * decoder.num_steps * 30 * 4


def test_no_sentences_give_no_results():
    memory = memory_of([[5]])
    assert (
        beam_search(
            TableDecoder(9),
            memory,
            beam_size=2,
            length_penalty=GNMT,
            max_lengths=torch.zeros(0, dtype=torch.int64),
        )
        == []
    )


@pytest.mark.parametrize("value", [math.nan, -math.nan, math.inf])
@pytest.mark.parametrize("place", [4, 250])
@pytest.mark.parametrize("sync_every", [1, 4])
def test_logits_that_are_nan_or_infinite_are_reported(value, place, sync_every):
    class Broken(TableDecoder):
        def step(self, tokens, state):
            logits, state = super().step(tokens, state)
            if self.num_steps == 3:
                logits = logits.clone()
                logits[2, -1, place] = value
            return logits, state

    with pytest.raises(ModelError, match=r"not a number .* at target token 3"):
        run(Broken(300), random_sources(5), [9] * 5, sync_every=sync_every)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_best": 5}, "n_best must be between 1 and beam_size 4; got 5"),
        ({"n_best": 0}, "n_best must be between 1"),
        ({"max_lengths": [0]}, "max_lengths must be at least 1; got 0"),
    ],
)
def test_impossible_settings_are_refused(options, words):
    lengths = options.pop("max_lengths", [5])
    with pytest.raises(ValueError, match=words):
        run(TableDecoder(9), [[5]], lengths, **options)
