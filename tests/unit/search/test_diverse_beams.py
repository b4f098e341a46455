"""Diverse beam search against its definition."""

import pytest
import torch
from fake_decoders import BANNED, BOS, EOS, GruDecoder, TableDecoder, memory_of

from transformer_mt.search.beam_search import beam_search
from transformer_mt.search.diverse_beams import DiverseBeams
from transformer_mt.search.length_penalty import LengthPenalty

SOURCES = [[5, 6], [7], [4, 4, 8, 5], [8, 6, 5], [6]]
LIMITS = [7, 5, 9, 8, 6]


def run(decoder, lines, *, beam_size, select=None):
    options = {} if select is None else {"select": select}
    return beam_search(
        decoder,
        memory_of([SOURCES[i] for i in lines]),
        beam_size=beam_size,
        n_best=beam_size,
        length_penalty=LengthPenalty(),
        max_lengths=torch.tensor([LIMITS[i] for i in lines]),
        **options,
    )


def diverse(decoder, lines, *, beam_size, num_groups, penalty):
    select = DiverseBeams(len(lines), beam_size=beam_size, num_groups=num_groups, penalty=penalty)
    return run(decoder, lines, beam_size=beam_size, select=select)


def plain_diverse_search(decoder, line, *, beam_size, num_groups, penalty):
    """Group by group within each step, as in the paper."""
    start = int(decoder._start(memory_of([SOURCES[line]]))[0])
    groups = [([([], 0.0, start)], beam_size // num_groups) for _ in range(num_groups)]
    finished = []
    for length in range(1, LIMITS[line] + 1):
        taken = []
        for g, (slots, width) in enumerate(groups):
            candidates = []
            for number, (tokens, total, key) in enumerate(slots):
                key = int(decoder._next(key, tokens[-1] if tokens else BOS))
                log_probs = torch.log_softmax(decoder.logits[key], dim=-1).tolist()
                for token, log_prob in enumerate(log_probs):
                    if token in BANNED or (length == LIMITS[line] and token != EOS):
                        continue
                    total_after = total + log_prob
                    augmented = total_after - penalty * taken.count(token)
                    candidates.append((-augmented, number, token, total_after, key))
            candidates.sort()
            kept, new = candidates[:width], []
            for _, number, token, total, key in kept:
                tokens = slots[number][0]
                if token == EOS:
                    finished.append((tokens, total))
                    width -= 1
                else:
                    new.append(([*tokens, token], total, key))
            taken += [token for _, _, token, _, _ in kept]
            groups[g] = (new, width)
    return sorted((tuple(tokens), pytest.approx(total)) for tokens, total in finished)


@pytest.mark.parametrize("penalty", [0.0, 0.5, 3.0])
@pytest.mark.parametrize(("beam_size", "num_groups"), [(4, 2), (6, 3), (3, 3), (4, 1)])
def test_groups_equal_a_plain_definition(beam_size, num_groups, penalty):
    options = {"beam_size": beam_size, "num_groups": num_groups, "penalty": penalty}
    for seed in range(3):
        decoder = TableDecoder(9, seed=seed, spread=2.0)
        found = diverse(decoder, range(5), **options)
        for line, hypotheses in enumerate(found):
            got = sorted((tuple(h.tokens), h.log_prob) for h in hypotheses)
            assert got == plain_diverse_search(decoder, line, **options)


def test_one_group_is_plain_beam_search():
    decoder = TableDecoder(80, spread=2.0)
    found = diverse(decoder, range(5), beam_size=4, num_groups=1, penalty=1.0)
    for here, there in zip(found, run(decoder, range(5), beam_size=4), strict=True):
        assert [h.tokens for h in here] == [h.tokens for h in there]


def test_a_penalty_makes_hypotheses_differ_more():
    decoder = GruDecoder(80)
    alike, different = (
        diverse(decoder, range(5), beam_size=6, num_groups=6, penalty=penalty)
        for penalty in (0.0, 2.0)
    )
    for same, other in zip(alike, different, strict=True):
        assert len({tuple(h.tokens) for h in same}) == 1
        assert len({tuple(h.tokens) for h in other}) > 3


def test_groups_do_not_depend_on_the_batch():
    decoder = GruDecoder(80)
    options = {"beam_size": 6, "num_groups": 3, "penalty": 1.0}
    together = diverse(decoder, range(5), **options)
    shuffled = diverse(decoder, [3, 1, 4, 0, 2], **options)
    for place, line in enumerate([3, 1, 4, 0, 2]):
        assert [h.tokens for h in shuffled[place]] == [h.tokens for h in together[line]]
