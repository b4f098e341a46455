"""Noise on token ids, and the training batches that hold it."""

from itertools import islice

import numpy as np
import pytest

from transformer_mt.config.noise import NoiseSettings
from transformer_mt.data.batch_stream import BatchStream, Position
from transformer_mt.data.mixture import Mixture
from transformer_mt.data.noise import Noise
from transformer_mt.data.pair_sampler import PairSampler
from transformer_mt.data.pairs import tokenize_pairs
from transformer_mt.text.tokenizer_training import train_tokenizers

MASK = 7
CLEAN = {"mask_id": MASK, "mask": 0.0, "span": 1.0, "masks": "one", "delete": 0.0, "shuffle": 0}
SENTENCE = list(range(100, 140))


def noisy(ids=SENTENCE, seed=1, **changes):
    return Noise(**CLEAN | changes)(ids, np.random.default_rng(seed))


def test_masks_for_each_token_stand_where_the_tokens_stood():
    found = np.array([noisy(mask=0.25, masks="each", seed=seed) for seed in range(200)])
    is_masked = found == MASK
    assert (is_masked.sum(axis=1) == 10).all()
    assert (found[~is_masked] == np.tile(SENTENCE, (200, 1))[~is_masked]).all()
    assert 0.1 < is_masked.mean(axis=0).min() < is_masked.mean(axis=0).max() < 0.42


def test_spans_have_the_mean_length_and_one_mask_hides_their_length():
    lengths = []
    for seed in range(300):
        each = noisy(mask=0.4, span=3.0, masks="each", seed=seed)
        one = noisy(mask=0.4, span=3.0, seed=seed)
        assert [t for t in one if t != MASK] == [t for t in each if t != MASK]
        assert each.count(MASK) == 16
        lengths.append(16 / one.count(MASK))
    assert 2.5 < np.mean(lengths) < 3.2, "the last span of a line is cut"


def test_shuffling_moves_no_token_far_and_deletion_keeps_the_order():
    shuffled = noisy(shuffle=3)
    assert sorted(shuffled) == SENTENCE != shuffled
    assert max(abs(place - (token - 100)) for place, token in enumerate(shuffled)) <= 3
    left = noisy(delete=0.5)
    assert left == sorted(left)
    assert 10 < len(left) < 30


@pytest.mark.parametrize("ids", [[], [100], [100, 101]])
def test_one_token_stays_and_the_tag_is_left_alone(ids):
    tagged = [5, 6, *ids]
    for seed in range(30):
        found = noisy(tagged, seed, mask=0.45, delete=0.45, shuffle=2, num_fixed=2)
        assert found[:2] == [5, 6]
        assert len(set(found[2:]) & set(ids)) >= min(len(ids), 1)


def test_noise_without_anything_left_is_refused():
    with pytest.raises(ValueError, match="would be lost"):
        NoiseSettings(mask=0.8, delete=0.2)


def test_noise_is_a_function_of_seed_epoch_and_place_and_leaves_other_sources_alone():
    lines = ["a dog runs near the old house and a cat sees it"] * 40
    tokenizers = train_tokenizers(
        lines, lines, joint=True, type="bpe", vocab_size=290, user_symbols=["<mask>"]
    )
    pairs = tokenize_pairs(lines, lines, tokenizers=tokenizers)
    mixture = Mixture([pairs, pairs], seed=1)
    mask_id = tokenizers.src.ids["<mask>"]
    noise = Noise(**CLEAN | {"mask_id": mask_id, "mask": 0.5})

    def batches(seed=1, start=None):
        sampler = PairSampler(mixture, tokenizers, strength=0.0, noises=[None, noise], seed=seed)
        stream = BatchStream(mixture, max_tokens=200, sampler=sampler, start=start or Position())
        return [(b.src.tolist(), b.tgt_out.tolist(), after) for b, after in islice(stream, 30)]

    first = batches()
    assert first[4:] == batches(start=first[3][2])[: len(first) - 4]
    assert [src for src, _, _ in batches(seed=2)] != [src for src, _, _ in first]
    half = [part for part in first if part[2].epoch == 0]
    masked = sum(src.count(mask_id) > 0 for src, _, _ in half)
    assert masked == len(half)
    epoch = next(i for i, part in enumerate(first) if part[2].epoch == 1) + 1
    assert [src for src, _, _ in first[:5]] != [src for src, _, _ in first[epoch : epoch + 5]]
    assert not any(mask_id in tgt for _, tgt, _ in first)
