"""Samples against plain definitions that are given the same random numbers."""

import numpy as np
import pytest
import torch
from fake_decoders import BANNED, BOS, EOS, GruDecoder, TableDecoder, memory_of

from transformer_mt.search.beam_search import beam_search
from transformer_mt.search.length_penalty import LengthPenalty
from transformer_mt.search.sampling import Sampling, draw, keep_top_k, keep_top_p, num_draws

SOURCES = [[5, 6], [7], [4, 4, 8, 5], [8, 6, 5]]
LIMITS = [7, 5, 9, 8]


def run(decoder, lines, *, num_samples=5, seed=3, **options):
    return beam_search(
        decoder,
        memory_of([SOURCES[i] for i in lines]),
        beam_size=num_samples,
        n_best=num_samples,
        length_penalty=LengthPenalty(),
        max_lengths=torch.tensor([LIMITS[i] for i in lines]),
        select=Sampling([SOURCES[i] for i in lines], num_samples=num_samples, seed=seed, **options),
    )


def plain_draw(log_probs: np.ndarray, noise: np.ndarray) -> int:
    """The block with the best sum of mass and noise, then the token in it."""
    blocks = [
        range(start, min(start + 64, len(log_probs))) for start in range(0, len(log_probs), 64)
    ]
    with np.errstate(divide="ignore"):
        masses = [np.log(sum(np.exp(log_probs[i]) for i in block)) for block in blocks]
    best = max(range(len(blocks)), key=lambda b: masses[b] + noise[b])
    inside = noise[len(blocks) :]
    return max(blocks[best], key=lambda i: log_probs[i] + inside[i - blocks[best][0]])


@pytest.mark.parametrize("vocab_size", [5, 64, 65, 300])
def test_draws_equal_a_plain_definition_with_the_same_random_numbers(vocab_size):
    rng = np.random.default_rng(vocab_size)
    log_probs = np.log(rng.dirichlet(np.full(vocab_size, 0.3), size=200)).astype(np.float32)
    log_probs[:, 1] = -np.inf
    noise = rng.gumbel(size=(200, num_draws(vocab_size))).astype(np.float32)
    found = draw(torch.from_numpy(log_probs), torch.from_numpy(noise))
    rows = zip(log_probs.astype(float), noise.astype(float), strict=True)
    assert found.tolist() == [plain_draw(*row) for row in rows]


def test_tokens_are_drawn_as_often_as_they_are_probable():
    rng = np.random.default_rng(1)
    probs = rng.dirichlet(np.full(150, 0.5))
    noise = torch.from_numpy(rng.gumbel(size=(100_000, num_draws(150))))
    found = draw(torch.from_numpy(np.log(probs)).expand(100_000, -1), noise)
    shares = np.bincount(found.numpy(), minlength=150) / 100_000
    # Half the sum of differences: about 0.014 for a sample of this size.
    assert np.abs(shares - probs).sum() / 2 < 0.02


def test_top_k_and_top_p_keep_the_tokens_they_are_defined_by():
    rng = np.random.default_rng(2)
    log_probs = torch.from_numpy(np.log(rng.dirichlet(np.full(40, 0.4), size=50))).float()
    for k in (1, 3, 40, 99):
        for row, kept in zip(log_probs, keep_top_k(log_probs, k), strict=True):
            expected = set(row.argsort(descending=True)[:k].tolist())
            assert set((kept > -torch.inf).nonzero()[:, 0].tolist()) == expected
            assert (kept[list(expected)] == row[list(expected)]).all()
    for mass in (0.0, 0.0001, 0.3, 0.9, 0.999):
        for row, kept in zip(log_probs, keep_top_p(log_probs, mass), strict=True):
            expected, total = set(), 0.0
            for token in row.argsort(descending=True).tolist():
                if expected and total >= mass:
                    break
                expected.add(token)
                total += float(row[token].exp())
            assert set((kept > -torch.inf).nonzero()[:, 0].tolist()) == expected


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.6}, {"top_k": 6, "top_p": 0.8}]
)
def test_samples_equal_a_plain_loop_with_the_same_random_numbers(options):
    decoder = TableDecoder(70, spread=2.0)
    found = run(decoder, range(4), num_samples=3, seed=9, **options)
    for line, source in enumerate(SOURCES):
        rng = np.random.default_rng([9, *source])
        noise = [rng.standard_exponential((3, num_draws(70)), dtype=np.float32) for _ in range(9)]
        expected = []
        for sample in range(3):
            tokens, log_prob = [], 0.0
            key = int(decoder._start(memory_of([source]))[0])
            while not tokens or tokens[-1] != EOS:
                key = int(decoder._next(key, tokens[-1] if tokens else BOS))
                log_probs = torch.log_softmax(decoder.logits[key], dim=-1)
                log_probs[list(BANNED)] = -torch.inf
                if len(tokens) == LIMITS[line] - 1:
                    log_probs = log_probs.where(torch.arange(70) == EOS, -torch.inf)
                allowed = log_probs / options.get("temperature", 1.0)
                allowed = keep_top_k(allowed, options.get("top_k", 70))
                allowed = keep_top_p(allowed, options.get("top_p", 1.1))
                gumbel = -np.log(noise[len(tokens)][sample].astype(float))
                tokens.append(plain_draw(allowed.double().numpy(), gumbel))
                log_prob += float(log_probs[tokens[-1]])
            expected.append((tokens[:-1], pytest.approx(log_prob, abs=1e-4)))
        assert len(found[line]) == 3
        for hypothesis in found[line]:
            assert (hypothesis.tokens, hypothesis.log_prob) in expected


@pytest.mark.parametrize("decoder", [TableDecoder(70, spread=2.0), GruDecoder(70)])
def test_samples_do_not_depend_on_the_batch(decoder):
    together = run(decoder, range(4))
    shuffled = run(decoder, [2, 0, 3, 1])
    for place, line in enumerate([2, 0, 3, 1]):
        (alone,) = run(decoder, [line])
        for found in (shuffled[place], alone):
            assert [h.tokens for h in found] == [h.tokens for h in together[line]]


def test_another_seed_gives_other_samples_and_samples_differ():
    decoder = TableDecoder(70)
    (first,), (second,) = run(decoder, [2], seed=1), run(decoder, [2], seed=2)
    assert [h.tokens for h in first] != [h.tokens for h in second]
    assert len({tuple(h.tokens) for h in first}) > 3


def test_top_1_is_greedy_search():
    decoder = GruDecoder(70)
    greedy = beam_search(
        decoder,
        memory_of(SOURCES),
        beam_size=1,
        length_penalty=LengthPenalty(),
        max_lengths=torch.tensor(LIMITS),
    )
    for line, found in enumerate(run(decoder, range(4), top_k=1)):
        assert [h.tokens for h in found] == [greedy[line][0].tokens] * 5
