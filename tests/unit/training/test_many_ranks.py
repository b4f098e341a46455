"""One rank of a large world, without the others.

torch's fake process group gives a rank what it gave itself: sums over ranks are its own numbers,
and what is gathered are copies of its own.
"""

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.updates import fresh_model, some_pairs, updater_for
from transformer_mt.config.model import TransformerSettings
from transformer_mt.data.batch_stream import BatchStream
from transformer_mt.data.batches import check_budget, eval_batches
from transformer_mt.data.mixture import Mixture
from transformer_mt.errors import DataError
from transformer_mt.models.batch_loss import batch_loss
from transformer_mt.training.distributed import World
from transformer_mt.training.micro_batches import Split, split_update
from transformer_mt.training.sharding import shard

SIZES = (8, 64, 1024)
CPU = torch.device("cpu")
NAMES = ("layers.0.feed_forward.input.weight", "layers.0.feed_forward.output.weight")  # 24, 16 rows
SETTINGS = TransformerSettings(
    d_model=16, d_ff=24, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0
)


@pytest.fixture
def world_of() -> Iterator[Callable[..., World]]:
    worlds = []

    def join(size: int, rank: int = 0) -> World:
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
        worlds.append(World(rank=rank, size=size))
        return worlds[-1]

    yield join
    for world in worlds:
        for replica in world.replicas:
            del replica.reducer, replica.logger
    dist.destroy_process_group()


@pytest.mark.parametrize("size", SIZES)
def test_a_sharded_weight_is_cut_into_runs_of_rows(world_of, size):
    model = fresh_model(SETTINGS)
    for rank in (0, size // 2, size - 1):
        sharded = shard(model, world_of(size, rank), CPU)
        for name, weight in sharded.named_parameters():
            whole = model.get_parameter(name)
            shares = whole.chunk(size)  # there may be fewer
            share = shares[rank] if rank < len(shares) else whole[:0]
            assert isinstance(weight, DTensor)
            assert torch.equal(weight.to_local(), share)


@pytest.mark.parametrize("size", SIZES)
def test_the_gradient_of_a_rank_is_divided_by_the_tokens_of_all(world_of, size):
    model, expected = fresh_model(SETTINGS), fresh_model(SETTINGS)
    parts = list(eval_batches(some_pairs(), max_tokens=200))
    num_tokens = 100.0 * size
    updater = updater_for(model, world=world_of(size, 3))

    def mean(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Take the mean over ranks of which the others have no gradient."""
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer() / size)
        return done

    updater.gradients.replicated.register_comm_hook(None, mean)
    losses = updater.gradients.accumulate(parts, num_tokens=num_tokens)
    sums = [batch_loss(expected, part, label_smoothing=0.1)[0] for part in parts]
    (sum(sums) / num_tokens).backward()
    assert losses[0].item() == pytest.approx(sum(sums).item())
    for weight, right in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(weight.grad, right.grad)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_last", [False, True])
def test_a_sharded_rank_makes_updates_even_of_no_rows(world_of, size, is_last):
    world = world_of(size, size - 1 if is_last else 0)
    model = shard(fresh_model(SETTINGS), world, CPU)
    updater = updater_for(model, world=world, clip_norm=1.0)
    parts = list(eval_batches(some_pairs(), max_tokens=200))
    updater(parts, num_tokens=100.0 * size, lr=1e-3)
    rows = [model.get_parameter(f"encoder.{name}").to_local().shape[0] for name in NAMES]
    assert rows == ([3, 2] if size == 8 else [0, 0] if is_last else [1, 1])
    assert all(torch.isfinite(x.to_local()).all() for x in model.parameters())


@pytest.mark.parametrize("size", SIZES)
def test_every_rank_has_a_batch_also_where_an_epoch_has_fewer_batches_than_ranks(size):
    split = split_update(512 * size, micro_batch_tokens=256, num_ranks=size)
    assert split == Split(2, 256)
    mixture = Mixture([some_pairs(200)], seed=1)
    single = iter(BatchStream(mixture, max_tokens=split.tokens))
    in_order = [next(single) for _ in range(size)]
    assert in_order[-1][1].epoch > 0 or size == 8
    for rank in (0, size // 2, size - 1):
        stream = BatchStream(mixture, max_tokens=split.tokens, rank=rank, world_size=size)
        batch, after = next(iter(stream))
        assert torch.equal(batch.tgt_out, in_order[rank][0].tgt_out)
        assert batch.num_pairs > 0
        assert after == in_order[-1][1]


def test_an_update_too_small_for_the_number_of_ranks_is_an_error():
    with pytest.raises(DataError, match="to 20 for each of 1024 ranks"):
        check_budget(some_pairs(), 10, num_ranks=1024)
