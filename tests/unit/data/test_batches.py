import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import islice

import numpy as np
import pytest
import torch

from transformer_mt.data import mixture as mixture_module
from transformer_mt.data.batch_stream import BatchStream, Position, prefetch
from transformer_mt.data.batches import Batch, eval_batches
from transformer_mt.data.mixture import Mixture, temperature_weights
from transformer_mt.data.pair_sampler import PairSampler
from transformer_mt.data.pairs import TokenPairs, pack_pairs, tokenize_pairs
from transformer_mt.errors import DataError
from transformer_mt.text.special_ids import BOS_ID, EOS_ID, PAD_ID
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.text.tokenizer_training import train_tokenizers

Sentence = tuple[int, ...]
Step = tuple[Batch, Position]


def made_up(count: int, *, first: int = 10, longest: int = 12, seed: int = 1) -> TokenPairs:
    """Pairs whose first source token is their number plus `first`."""
    rng = np.random.default_rng(seed)
    src = [[first + i, *rng.integers(4, 9, rng.integers(0, longest))] for i in range(count)]
    tgt = [[first + i, *rng.integers(4, 9, rng.integers(0, longest))] for i in range(count)]
    return pack_pairs(src, tgt)


def take(stream: BatchStream, count: int) -> list[Step]:
    return list(islice(stream, count))


def epochs(stream: BatchStream, count: int = 1) -> list[Step]:
    """All batches until N epochs are complete."""
    steps = []
    for batch, position in stream:
        steps.append((batch, position))
        if position.epoch == count:
            return steps
    raise AssertionError


def sentences(packed: torch.Tensor, lengths: torch.Tensor) -> list[Sentence]:
    return [tuple(part.tolist()) for part in packed.split(lengths.tolist())]


def pairs_of(batch: Batch) -> list[tuple[Sentence, Sentence]]:
    return list(
        zip(
            sentences(batch.src, batch.src_segments.lengths),
            sentences(batch.tgt_out, batch.tgt_segments.lengths),
            strict=True,
        )
    )


def all_pairs(pairs: TokenPairs) -> list[tuple[Sentence, Sentence]]:
    return [
        (tuple(src.tolist()), tuple(tgt.tolist()))
        for src, tgt in (pairs.pair(i) for i in range(len(pairs)))
    ]


def equal(first: list[Step], second: list[Step]) -> bool:
    return len(first) == len(second) and all(
        p == q and pairs_of(a) == pairs_of(b) for (a, p), (b, q) in zip(first, second, strict=True)
    )


# --- the batch ------------------------------------------------------------------------------------


def test_a_batch_is_what_its_docstring_says() -> None:
    stream = BatchStream(Mixture([made_up(200)], seed=1), max_tokens=64)
    for batch, _ in epochs(stream):
        assert batch.num_pairs == len(batch.src_segments.lengths) == len(batch.tgt_segments.lengths)
        assert batch.num_tgt_tokens == len(batch.tgt_out) == len(batch.tgt_in)
        assert batch.tgt_segments.lengths.sum() == len(batch.tgt_out)
        assert batch.src_segments.lengths.sum() == len(batch.src)
        assert batch.src_segments.max_length == batch.src_segments.lengths.max()
        assert batch.tgt_segments.max_length == batch.tgt_segments.lengths.max()
        assert batch.tgt_segments.lengths.tolist() == sorted(batch.tgt_segments.lengths.tolist())
        assert {t.dtype for t in (batch.src, batch.tgt_in, batch.tgt_out)} == {torch.int64}
        assert {t.dtype for t in (batch.src_segments.lengths, batch.tgt_segments.lengths)} == {
            torch.int64
        }
        read = sentences(batch.tgt_in, batch.tgt_segments.lengths)
        said = sentences(batch.tgt_out, batch.tgt_segments.lengths)
        assert read == [(BOS_ID, *sentence[:-1]) for sentence in said]
        assert all(sentence[-1] == EOS_ID for sentence in said)
        assert all(s[-1] == EOS_ID for s in sentences(batch.src, batch.src_segments.lengths))


def test_targets_can_be_turned_around_and_end_as_before() -> None:
    pairs = made_up(200)
    turned = {(src, (*tgt[-2::-1], EOS_ID)) for src, tgt in all_pairs(pairs)}
    stream = BatchStream(Mixture([pairs], seed=1), max_tokens=64, reverse_target=True)
    streamed = [batch for batch, _ in epochs(stream)]
    for batches in (streamed, list(eval_batches(pairs, max_tokens=64, reverse_target=True))):
        assert {pair for batch in batches for pair in pairs_of(batch)} == turned
        for batch in batches:
            read = sentences(batch.tgt_in, batch.tgt_segments.lengths)
            said = sentences(batch.tgt_out, batch.tgt_segments.lengths)
            assert read == [(BOS_ID, *sentence[:-1]) for sentence in said]


def test_a_batch_moves_whole() -> None:
    (batch, _), *_ = take(BatchStream(Mixture([made_up(9)], seed=1), max_tokens=64), 1)
    moved = batch.to("meta")
    parts = [vars(part) for part in (moved, moved.src_segments, moved.tgt_segments)]
    tensors = [t for part in parts for t in part.values() if isinstance(t, torch.Tensor)]
    assert len(tensors) == 11
    assert all(t.is_meta for t in tensors)
    assert moved.num_tgt_tokens == batch.num_tgt_tokens


def test_batches_keep_to_the_budget_and_are_as_full_as_can_be() -> None:
    stream = BatchStream(Mixture([made_up(3000)], seed=1), max_tokens=100)
    steps = epochs(stream)
    firsts = [(len(batch.src), batch.num_tgt_tokens) for batch, _ in steps]
    assert max(max(sizes) for sizes in firsts) <= 100
    # Only one more pair, of at most 13 tokens a side, did not fit.
    assert min(max(sizes) for sizes in firsts[:-1]) > 100 - 13


def test_a_tail_of_padding_makes_the_number_of_rows_a_multiple() -> None:
    mixture = Mixture([made_up(300)], seed=1)
    stream = BatchStream(mixture, max_tokens=64, row_multiple=16)
    plain = BatchStream(mixture, max_tokens=63)
    steps, expected = epochs(stream), epochs(plain)
    assert [place for _, place in steps] == [place for _, place in expected]
    for (batch, _), (same, _) in zip(steps, expected, strict=True):
        assert batch.src_segments.num_tokens == len(same.src)
        assert batch.num_tgt_tokens == len(same.tgt_in)
        for name in ("src", "tgt_in", "tgt_out"):
            rows, tokens = getattr(batch, name), getattr(same, name)
            assert rows[: len(tokens)].equal(tokens)
            assert (rows[len(tokens) :] == PAD_ID).all()
            assert len(rows) in (16, 32, 48, 64)
            assert 1 <= len(rows) - len(tokens) <= 16
        assert batch.src_segments.lengths.equal(same.src_segments.lengths)
        assert batch.tgt_segments.lengths.equal(same.tgt_segments.lengths)


def test_a_pair_as_long_as_the_budget_has_a_tail_beyond_it() -> None:
    stream = BatchStream(
        Mixture([pack_pairs([[5] * 31], [[5]])], seed=1), max_tokens=32, row_multiple=16
    )
    ((batch, _),) = epochs(stream)
    assert (batch.src_segments.num_tokens, len(batch.src), len(batch.tgt_in)) == (32, 48, 16)


def test_budget_counts_the_longer_side() -> None:
    pairs = pack_pairs([[5] * 9] * 10, [[5]] * 10)
    stream = BatchStream(Mixture([pairs], seed=1), max_tokens=20)
    assert [batch.num_pairs for batch, _ in epochs(stream)] == [2] * 5


def test_a_pair_longer_than_the_budget_is_named_at_the_start() -> None:
    pairs = pack_pairs([[5], [5] * 30, [5]], [[5], [5] * 7, [5] * 2])
    with pytest.raises(DataError) as caught:
        BatchStream(Mixture([made_up(5), pairs], seed=1), max_tokens=30)
    assert str(caught.value) == (
        "pairs: pair 1 of those that are kept has 31 source and 8 target tokens, more than a batch "
        "may hold (30): raise "
        "training.max_tokens (or micro_batch_tokens, batch_warmup.start_tokens) to 31, or lower "
        "data.filters.max_length to 30"
    )
    BatchStream(Mixture([pairs], seed=1), max_tokens=31)


# --- the order ------------------------------------------------------------------------------------


def test_every_pair_comes_exactly_once_an_epoch_and_in_another_order() -> None:
    pairs = made_up(6000, longest=4)
    stream = BatchStream(Mixture([pairs], seed=1), max_tokens=300)
    steps = epochs(stream, 2)
    split = 1 + next(i for i, (_, position) in enumerate(steps) if position.epoch == 1)
    first = [pair for batch, _ in steps[:split] for pair in pairs_of(batch)]
    second = [pair for batch, _ in steps[split:] for pair in pairs_of(batch)]
    assert sorted(first) == sorted(second) == sorted(all_pairs(pairs))
    assert first != second
    assert steps[split - 1][1] == Position(1, 0, 0)
    assert all(position.batch == i + 1 for i, (_, position) in enumerate(steps[: split - 1]))


def test_seed_alone_decides_the_order() -> None:
    def some(seed: int) -> list[Step]:
        return take(BatchStream(Mixture([made_up(500)], seed=seed), max_tokens=90), 30)

    assert equal(some(3), some(3))
    assert not equal(some(3), some(4))


def test_resume_at_any_batch_gives_the_same_rest() -> None:
    mixture = Mixture([made_up(90), made_up(35, first=100)], [1.0, 0.4], seed=5)
    whole = take(BatchStream(mixture, max_tokens=70), 40)
    assert whole[-1][1].epoch >= 2
    for i, (_, position) in enumerate(whole[:-1]):
        saved = Position.from_dict(position.as_dict())
        rest = BatchStream(mixture, max_tokens=70, start=saved)
        assert equal(take(rest, len(whole) - i - 1), whole[i + 1 :])


@pytest.mark.parametrize("world_size", [2, 3, 7])
def test_ranks_together_see_what_one_rank_sees(world_size: int) -> None:
    mixture = Mixture([made_up(150)], seed=5)
    rounds = 15
    alone = take(BatchStream(mixture, max_tokens=70), rounds * world_size)
    assert alone[-1][1].epoch >= 1, "rounds go on over the end of an epoch"
    for rank in range(world_size):
        stream = BatchStream(mixture, max_tokens=70, rank=rank, world_size=world_size)
        steps = take(stream, rounds)
        ends = [position for _, position in alone[world_size - 1 :: world_size]]
        mine = [batch for batch, _ in alone[rank::world_size]]
        assert equal(steps, list(zip(mine, ends, strict=True)))


def test_another_number_of_ranks_resumes_the_same_order() -> None:
    mixture = Mixture([made_up(150)], seed=5)
    alone = take(BatchStream(mixture, max_tokens=70), 30)
    start = take(BatchStream(mixture, max_tokens=70, rank=1, world_size=3), 4)[-1][1]
    steps = [
        take(BatchStream(mixture, max_tokens=70, rank=rank, world_size=2, start=start), 9)
        for rank in range(2)
    ]
    together = [batch for pair in zip(*steps, strict=True) for batch, _ in pair]
    assert list(map(pairs_of, together)) == [pairs_of(batch) for batch, _ in alone[12:]]


def test_rank_outside_the_world_is_refused() -> None:
    with pytest.raises(ValueError, match="rank 2 of 2"):
        BatchStream(Mixture([made_up(5)], seed=1), max_tokens=64, rank=2, world_size=2)


def test_positions_count_epochs() -> None:
    assert Mixture([made_up(200)], seed=1).num_epochs(epoch=3, pair=50) == 3.25


# --- mixtures -------------------------------------------------------------------------------------


def counts(mixture: Mixture, first_epoch: int, num_epochs: int) -> Counter[tuple[int, int]]:
    counter: Counter[tuple[int, int]] = Counter()
    for epoch in range(first_epoch, first_epoch + num_epochs):
        rows = mixture.rows(epoch, np.arange(mixture.num_pairs(epoch)))
        counter.update(zip(rows.corpus.tolist(), rows.pair.tolist(), strict=True))
    return counter


def test_weights_say_how_often_an_epoch_sees_each_pair() -> None:
    corpora = [made_up(11), made_up(30), made_up(7)]
    mixture = Mixture(corpora, [2.0, 0.5, 1.0], seed=1)
    assert mixture.num_pairs(0) == 22 + 15 + 7
    assert set(counts(mixture, 4, 1).values()) == {1, 2}
    twice = counts(mixture, 4, 2)
    assert all(twice[0, i] == 4 for i in range(11))
    assert all(twice[1, i] == 1 for i in range(30))
    assert all(twice[2, i] == 2 for i in range(7))


@pytest.mark.parametrize("weight", [0.3, 0.1, 1.7, 3.3])
def test_over_many_epochs_no_pair_is_favoured(weight: float) -> None:
    mixture = Mixture([made_up(7), made_up(13)], [weight, 1.0], seed=1)
    ten = counts(mixture, 0, 10)
    assert {ten[0, i] for i in range(7)} == {round(10 * weight)}
    assert {ten[1, i] for i in range(13)} == {10}


def test_halves_of_a_corpus_are_drawn_at_random() -> None:
    mixture = Mixture([made_up(100)], [0.5], seed=1)
    first, second = (set(counts(mixture, epoch, 1)) for epoch in (0, 1))
    third = set(counts(mixture, 2, 1))
    assert not first & second
    assert 10 < len(first & third) < 40


def test_corpora_are_mixed_evenly_over_an_epoch() -> None:
    mixture = Mixture([made_up(1000), made_up(3000)], seed=1)
    rows = mixture.rows(0, np.arange(4000))
    shares = rows.corpus.reshape(10, 400).mean(axis=1)
    assert np.abs(shares - 0.75).max() < 5 * np.sqrt(0.75 * 0.25 / 400)


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixture_module, "_WINDOW_PAIRS", 100)
    monkeypatch.setattr(mixture_module, "_BLOCK_PAIRS", 8)


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [0.3, 2.0, 1.7]])
def test_a_large_corpus_is_given_whole_in_every_epoch(weights: list[float]) -> None:
    mixture = Mixture([made_up(1003), made_up(57), made_up(320)], weights, seed=1)
    ten = counts(mixture, 0, 10)
    for number, (size, weight) in enumerate(zip([1003, 57, 320], weights, strict=True)):
        assert {ten[number, i] for i in range(size)} == {round(10 * weight)}


@pytest.mark.usefixtures("small_windows")
def test_an_order_is_the_same_whatever_part_of_it_is_asked_for() -> None:
    mixture = Mixture([made_up(1003), made_up(57)], seed=1)
    whole = mixture.rows(3, np.arange(1060))
    for start, end in [(0, 1), (95, 130), (530, 531), (400, 1060)]:
        part = mixture.rows(3, np.arange(start, end))
        assert part.pair.tolist() == whole.pair[start:end].tolist()
        assert part.corpus.tolist() == whole.corpus[start:end].tolist()


@pytest.mark.usefixtures("small_windows")
def test_a_window_of_a_large_corpus_reads_few_blocks_and_mixes_them() -> None:
    mixture = Mixture([made_up(5000)], seed=1)
    pairs = mixture.rows(0, np.arange(5000)).pair
    windows = pairs.reshape(50, 100)
    assert max(len(np.unique(window // 8)) for window in windows) <= 100 // 8 + 2
    near = (np.abs(np.diff(pairs)) == 1).mean()
    assert near < 2 * 2 / 100 * 2  # neighbours come together hardly more often than by chance
    assert len(np.unique(windows[0] // 500)) >= 5  # from all over the corpus


@pytest.mark.usefixtures("small_windows")
def test_windows_mix_the_corpora_evenly() -> None:
    mixture = Mixture([made_up(1000), made_up(3000)], seed=1)
    shares = mixture.rows(0, np.arange(4000)).corpus.reshape(40, 100).mean(axis=1)
    assert set(shares.tolist()) == {0.75}


def test_batches_of_a_mixture_hold_the_tokens_of_its_corpora() -> None:
    corpora = [made_up(40), made_up(30, first=100), made_up(20, first=200)]
    stream = BatchStream(Mixture(corpora, seed=2), max_tokens=64)
    seen = [pair for batch, _ in epochs(stream) for pair in pairs_of(batch)]
    assert sorted(seen) == sorted(pair for pairs in corpora for pair in all_pairs(pairs))


def test_an_epoch_without_pairs_is_passed_over() -> None:
    stream = BatchStream(Mixture([made_up(2)], [0.1], seed=1), max_tokens=64)
    steps = take(stream, 3)
    assert [batch.num_pairs for batch, _ in steps] == [1, 1, 1]
    assert [position.epoch for _, position in steps] == [5, 10, 15]


def test_temperature_raises_small_corpora_and_keeps_the_size_of_an_epoch() -> None:
    sizes = [100, 10_000]
    assert temperature_weights(sizes, 1.0) == pytest.approx([1.0, 1.0])
    drawn = [n * w for n, w in zip(sizes, temperature_weights(sizes, 2.0), strict=True)]
    assert sum(drawn) == pytest.approx(10_100)
    assert drawn[1] / drawn[0] == pytest.approx(10)


def test_empty_corpora_and_zero_weights_are_refused() -> None:
    for corpora, weights in [([], None), ([made_up(0)], None), ([made_up(1)], [0.0])]:
        with pytest.raises(ValueError, match="not empty"):
            Mixture(corpora, weights, seed=1)


# --- subword sampling -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sampled_data() -> tuple[Tokenizers, Mixture]:
    rng = np.random.default_rng(1)
    words = ["dog", "house", "running", "under", "the", "old", "redder", "caterpillar"]
    lines = [" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(400)]
    src, tgt = lines[::2], lines[1::2]
    tokenizers = train_tokenizers(src, tgt, joint=True, type="bpe", vocab_size=310)
    return tokenizers, Mixture([tokenize_pairs(src, tgt, tokenizers=tokenizers)], seed=1)


def sampling_stream(data: tuple[Tokenizers, Mixture], **changes: object) -> BatchStream:
    tokenizers, mixture = data
    sampler = PairSampler(mixture, tokenizers, strength=0.3, noises=[None], seed=1)
    return BatchStream(mixture, max_tokens=80, sampler=sampler, **changes)  # type: ignore[arg-type]


def texts(batch: Batch, tokenizers: Tokenizers) -> list[tuple[str, str]]:
    return [
        (tokenizers.src.decode(src), tokenizers.tgt.decode(tgt)) for src, tgt in pairs_of(batch)
    ]


def test_sampling_keeps_the_texts_and_the_budget(sampled_data: tuple[Tokenizers, Mixture]) -> None:
    tokenizers, mixture = sampled_data
    usual = epochs(BatchStream(mixture, max_tokens=80))
    sampled = epochs(sampling_stream(sampled_data))
    assert sorted(t for batch, _ in sampled for t in texts(batch, tokenizers)) == sorted(
        t for batch, _ in usual for t in texts(batch, tokenizers)
    )
    assert max(max(len(b.src), b.num_tgt_tokens) for b, _ in sampled) <= 80
    tokens = [sum(b.num_tgt_tokens for b, _ in steps) for steps in (usual, sampled)]
    assert tokens[1] > 1.1 * tokens[0]
    for batch, _ in sampled:
        assert batch.tgt_segments.lengths.tolist() == sorted(batch.tgt_segments.lengths.tolist())


def test_sampling_is_new_each_epoch(sampled_data: tuple[Tokenizers, Mixture]) -> None:
    tokenizers, _ = sampled_data
    steps = epochs(sampling_stream(sampled_data), 2)
    cuts: dict[str, set[Sentence]] = {}
    for batch, _ in steps:
        for _, tgt in pairs_of(batch):
            cuts.setdefault(tokenizers.tgt.decode(tgt), set()).add(tgt)
    long = [several for text, several in cuts.items() if len(text) > 40]
    assert len(long) > 20
    assert np.mean([len(several) > 1 for several in long]) > 0.9


def test_sampling_resumes_and_is_the_same_on_any_rank(
    sampled_data: tuple[Tokenizers, Mixture],
) -> None:
    whole = take(sampling_stream(sampled_data), 60)
    assert whole[-1][1].epoch >= 1
    start = whole[17][1]
    assert equal(take(sampling_stream(sampled_data, start=start), 42), whole[18:])
    second = take(sampling_stream(sampled_data, rank=1, world_size=2), 30)
    assert [pairs_of(batch) for batch, _ in second] == [pairs_of(b) for b, _ in whole[1::2]]


# --- validation -----------------------------------------------------------------------------------


def test_eval_batches_hold_everything_once_in_order_of_length() -> None:
    pairs = made_up(300)
    batches = list(eval_batches(pairs, max_tokens=100))
    assert sorted(p for b in batches for p in pairs_of(b)) == sorted(all_pairs(pairs))
    lengths = [length for batch in batches for length in batch.tgt_segments.lengths.tolist()]
    assert lengths == sorted(lengths)
    assert max(max(len(b.src), len(b.tgt_out)) for b in batches) <= 100


def test_eval_batches_drop_neither_empty_nor_very_long_lines() -> None:
    pairs = pack_pairs([[], [5] * 50, [5]], [[5], [], [5] * 70])
    batches = list(eval_batches(pairs, max_tokens=20))
    assert [
        (b.src_segments.lengths.tolist(), b.tgt_segments.lengths.tolist()) for b in batches
    ] == [
        ([51], [1]),
        ([1], [2]),
        ([2], [71]),
    ]


# --- prefetching ----------------------------------------------------------------------------------


def prefetch_threads() -> int:
    return sum(thread.name == "prefetch" for thread in threading.enumerate())


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_prefetch_changes_nothing(depth: int) -> None:
    assert list(prefetch(range(100), depth)) == list(range(100))
    assert prefetch_threads() == 0


def test_prefetch_passes_exceptions_on_after_what_came_before() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise DataError("broken")

    items = prefetch(failing(), 2)
    assert next(items) == 1
    with pytest.raises(DataError, match="broken"):
        next(items)
    assert prefetch_threads() == 0


def test_prefetch_ends_its_thread_when_closed() -> None:
    made: list[int] = []

    def endless() -> Iterator[int]:
        while True:
            made.append(len(made))
            yield made[-1]

    items = prefetch(endless(), 2)
    assert next(items) == 0
    items.close()
    assert prefetch_threads() == 0
    assert len(made) <= 4


def test_batches_made_ahead_are_the_same() -> None:
    stream = BatchStream(Mixture([made_up(100)], seed=1), max_tokens=64)
    with closing(stream.ahead()) as steps:
        assert equal(list(islice(steps, 30)), take(stream, 30))
    assert prefetch_threads() == 0


@pytest.mark.parametrize("lengths", [[1] * 8, [1] * 7 + [90], [50] * 9, [*range(2, 40)]])
def test_runs_have_several_neighbouring_sentences_and_there_are_always_four(lengths):
    (batch,) = eval_batches(
        pack_pairs([[5]] * len(lengths), [[5] * (n - 1) for n in lengths]), max_tokens=999
    )
    assert batch.tgt_segments.runs is None
    runs = batch.in_runs().tgt_segments.runs
    sizes = [size for size, _ in runs.shapes]
    assert len(sizes) == 4
    assert min(sizes) >= 2
    parts = torch.tensor(lengths).split(sizes)
    assert [longest for _, longest in runs.shapes] == [int(part.max()) for part in parts]
    assert len(set(runs.index.tolist())) == sum(lengths)


def test_halves_have_runs_where_the_whole_has_and_few_sentences_none():
    pairs = pack_pairs([[5]] * 16, [[5] * n for n in range(2, 18)])
    (batch,) = eval_batches(pairs, max_tokens=999)
    assert all(half.tgt_segments.runs is None for half in batch.halves())
    halves = batch.in_runs().halves()
    assert all(half.src_segments.runs and half.tgt_segments.runs for half in halves)
    assert halves[0].halves()[0].tgt_segments.runs is None
