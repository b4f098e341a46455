"""Logits processors against a plain beam search with the same rule."""

import numpy as np
import pytest
import torch
from fake_decoders import BANNED, BOS, EOS, GruDecoder, TableDecoder, memory_of

from transformer_mt.search.beam_search import beam_search
from transformer_mt.search.length_penalty import LengthPenalty
from transformer_mt.search.logit_processors import (
    ForcedPrefix,
    MinLength,
    NoRepeatedNgrams,
    RepetitionPenalty,
    Suppressed,
)

SOURCES = [[5, 6], [7], [4, 4, 8, 5], [8, 6, 5], [6]]
LIMITS = [7, 5, 9, 8, 6]
PENALTY = LengthPenalty()


def run(decoder, lines, rules, *, beam_size):
    return beam_search(
        decoder,
        memory_of([SOURCES[i] for i in lines]),
        beam_size=beam_size,
        n_best=beam_size,
        length_penalty=PENALTY,
        max_lengths=torch.tensor([LIMITS[i] for i in lines]),
        processors=rules,
    )


def plain_search(decoder, line, edit, *, beam_size):
    """Beam search without early stop; `edit(line, tokens, log_probs)` is the rule."""
    start = int(decoder._start(memory_of([SOURCES[line]]))[0])
    slots, finished = [([], 0.0, start)], []
    for length in range(1, LIMITS[line] + 1):
        candidates = []
        for number, (tokens, total, key) in enumerate(slots):
            key = int(decoder._next(key, tokens[-1] if tokens else BOS))
            log_probs = torch.log_softmax(decoder.logits[key], dim=-1).tolist()
            edit(line, tokens, log_probs)
            for token, log_prob in enumerate(log_probs):
                if token in BANNED or log_prob == -np.inf:
                    continue
                if length < LIMITS[line] or token == EOS:
                    candidates.append((-(total + log_prob), number, token, key))
        candidates.sort()
        old, slots = slots, []
        for negated, number, token, key in candidates[: beam_size - len(finished)]:
            tokens = old[number][0]
            if token == EOS:
                score = float(PENALTY.scores(np.array(-negated), length))
                finished.append((tokens, -negated, score))
            else:
                slots.append(([*tokens, token], -negated, key))
    return sorted(finished, key=lambda f: -f[2])


def min_length(line, tokens, log_probs):
    if len(tokens) + 1 < [4, 3, 9, 1, 5][line]:
        log_probs[EOS] = -np.inf


STARTS = [[6, 4], [], [5], [8, 8, 8], [7]]


def forced_start(line, tokens, log_probs):
    if len(tokens) < len(STARTS[line]):
        for token in range(len(log_probs)):
            if token != STARTS[line][len(tokens)]:
                log_probs[token] = -np.inf


def no_repeats(order):
    def edit(line, tokens, log_probs):
        for token in range(len(log_probs)):
            after = [*tokens, token]
            ngrams = [tuple(after[i : i + order]) for i in range(len(after) - order + 1)]
            if ngrams and ngrams[-1] in ngrams[:-1]:
                log_probs[token] = -np.inf

    return edit


def repetition_penalty(line, tokens, log_probs):
    for token in set(tokens):
        log_probs[token] *= 1.3


WORDS = [[5], [6, 7], [4, 8, 4]]


def suppressed(line, tokens, log_probs):
    for token in range(len(log_probs)):
        after = [*tokens, token]
        if any(after[-len(word) :] == word for word in WORDS):
            log_probs[token] = -np.inf


FORBIDDEN_STARTS = [[5], [], [8, 8, 8], [6, 7], [4, 4]]


def forced_over_others(line, tokens, log_probs):
    start = FORBIDDEN_STARTS[line]
    if len(tokens) < len(start):
        log_probs[:] = [x if t == start[len(tokens)] else -np.inf for t, x in enumerate(log_probs)]
    else:
        suppressed(line, tokens, log_probs)
        no_repeats(1)(line, tokens, log_probs)


RULES = {
    "min length": (
        lambda lines: MinLength(np.array([4, 3, 9, 1, 5])[lines]),
        min_length,
    ),
    "start": (lambda lines: ForcedPrefix([STARTS[i] for i in lines]), forced_start),
    "unigrams": (lambda lines: NoRepeatedNgrams(1), no_repeats(1)),
    "bigrams": (lambda lines: NoRepeatedNgrams(2), no_repeats(2)),
    "repetition": (lambda lines: RepetitionPenalty(1.3), repetition_penalty),
    "words": (lambda lines: Suppressed(WORDS), suppressed),
    "a start that other rules forbid": (
        lambda lines: ForcedPrefix(
            [FORBIDDEN_STARTS[i] for i in lines], [Suppressed(WORDS), NoRepeatedNgrams(1)]
        ),
        forced_over_others,
    ),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_search_with_a_rule_equals_a_plain_search_with_it(name, beam_size):
    make, edit = RULES[name]
    lines = list(range(5))
    without = 0
    for seed in range(5):
        decoder = TableDecoder(9, seed=seed, spread=2.0)
        found = run(decoder, lines, [make(lines)], beam_size=beam_size)
        for line in lines:
            expected = plain_search(decoder, line, edit, beam_size=beam_size)
            assert [h.tokens for h in found[line]] == [tokens for tokens, _, _ in expected]
            assert [h.log_prob for h in found[line]] == pytest.approx([e[1] for e in expected])
            free = plain_search(decoder, line, lambda *_: None, beam_size=beam_size)
            without += expected != free
    assert without > 0, "the rule never changed a thing"


@pytest.mark.parametrize("name", RULES)
def test_a_rule_does_not_depend_on_the_batch(name):
    make, _ = RULES[name]
    decoder = GruDecoder(9)
    together = run(decoder, list(range(5)), [make(list(range(5)))], beam_size=3)
    shuffled = run(decoder, [3, 1, 4, 0, 2], [make([3, 1, 4, 0, 2])], beam_size=3)
    for place, line in enumerate([3, 1, 4, 0, 2]):
        assert [h.tokens for h in shuffled[place]] == [h.tokens for h in together[line]]


def test_several_rules_hold_together():
    rules = [
        MinLength(np.array([4, 3, 6, 1, 5])),
        ForcedPrefix(STARTS),
        Suppressed([[5, 6]]),
    ]
    for line, hypotheses in enumerate(run(TableDecoder(9), list(range(5)), rules, beam_size=4)):
        assert hypotheses
        for hypothesis in hypotheses:
            tokens = hypothesis.tokens
            assert len(tokens) + 1 >= [4, 3, 6, 1, 5][line]
            assert tokens[: len(STARTS[line])] == STARTS[line]
            assert [5, 6] not in [tokens[i : i + 2] for i in range(len(tokens))]
