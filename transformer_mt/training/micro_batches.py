"""Micro-batches: the division of an update into what devices take at once.

The size of an update, and with it the learning rate, never depends on the number of devices: more
of them take fewer or smaller micro-batches each.
"""

import logging
import sys
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice

import torch

from transformer_mt.config.schema import Config
from transformer_mt.config.training import BatchWarmupSettings
from transformer_mt.data.batch_stream import BatchStream, Position
from transformer_mt.data.batches import Batch, check_budget, uniform_batch
from transformer_mt.data.pair_sampler import PairSampler
from transformer_mt.errors import ConfigError
from transformer_mt.training.distributed import World
from transformer_mt.training.prepare_data import Data
from transformer_mt.training.state import TrainState
from transformer_mt.training.update import Updater

# Base in fp32 is as fast with 2,048 tokens on a processor as with 4,096 (docs/log.md); more was not
# measured.
ENOUGH_TOKENS_CPU = 4096

# Of the rows on each side. With any number of rows, bf16 on the CPU takes much more memory. Padding
# is 1.3 % of 1,024 tokens, 0.3 % of 4,096, 0.1 % of 25,000; with 64 it would be 2.1 % of 1,024.
ROW_MULTIPLE = 32

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Split:
    """How an update is divided.

    Attributes:
        accumulation: Micro-batches of each rank.
        tokens: Target tokens of one; no micro-batch has more source tokens either.
    """

    accumulation: int
    tokens: int


def split_update(max_tokens: int, *, micro_batch_tokens: int | None, num_ranks: int) -> Split:
    """Divide an update into equal micro-batches.

    The product of micro-batches, their tokens and ranks is `max_tokens`, whatever the number of
    ranks, but for what the division leaves over.
    """
    largest = micro_batch_tokens or max_tokens
    accumulation = -(-max_tokens // (min(largest, max_tokens) * num_ranks))
    return Split(accumulation, max_tokens // (accumulation * num_ranks))


def update_tokens(step: int, max_tokens: int, warmup: BatchWarmupSettings | None) -> int:
    """Return the target tokens of update number `step`, from 1.

    Source: Merrill et al. 2025, arXiv:2505.23971: the batch that is still efficient grows while the
    loss falls. differs: doubles at equal intervals; the learning rate does not change with it.
    """
    if warmup is None or step > warmup.steps:
        return max_tokens
    num_doublings = max(1, (-(-max_tokens // warmup.start_tokens) - 1).bit_length())
    return min(max_tokens, warmup.start_tokens << ((step - 1) * num_doublings // warmup.steps))


class Updates:
    """The micro-batches of one update after the other, on one rank.

    Attributes:
        micro_batch_tokens: Most target tokens that a device takes at once; None = any number.

    Raises:
        DataError: If a pair is longer than a micro-batch.
    """

    def __init__(
        self,
        config: Config,
        data: Data,
        *,
        micro_batch_tokens: int | None,
        world: World,
        device: torch.device,
    ) -> None:
        self.micro_batch_tokens = micro_batch_tokens
        self._config, self._data = config, data
        self._world, self._device = world, device
        self._sampler: PairSampler | None = None
        if config.tokenizer.sampling > 0 or any(data.noises):
            self._sampler = PairSampler(
                data.mixture,
                data.tokenizers,
                strength=config.tokenizer.sampling,
                noises=data.noises,
                seed=config.seed,
            )
        warmup = config.training.batch_warmup
        steps = [sys.maxsize] if warmup is None else range(1, warmup.steps + 2)
        for num_tokens in {self.split(step).tokens for step in steps}:
            for pairs in data.mixture.corpora:
                check_budget(pairs, num_tokens, num_ranks=world.size)

    def split(self, step: int) -> Split:
        """Return how update number `step`, from 1, is divided."""
        settings = self._config.training
        return split_update(
            update_tokens(step, settings.max_tokens, settings.batch_warmup),
            micro_batch_tokens=self.micro_batch_tokens,
            num_ranks=self._world.size,
        )

    def after(self, step: int, position: Position) -> Generator[tuple[list[Batch], Position]]:
        """Yield the micro-batches of each update after `step`, and the position after them."""
        while True:
            split = self.split(step + 1)
            with closing(self._open(position, split)) as batches:
                while self.split(step + 1) == split:
                    taken = list(islice(batches, split.accumulation))
                    step, position = step + 1, taken[-1][1]
                    yield [batch for batch, _ in taken], position

    def _open(self, position: Position, split: Split) -> Generator[tuple[Batch, Position]]:
        stream = BatchStream(
            self._data.mixture,
            max_tokens=split.tokens,
            rank=self._world.rank,
            world_size=self._world.size,
            start=position,
            sampler=self._sampler,
            reverse_target=self._config.data.reverse_target,
            row_multiple=ROW_MULTIPLE,
            draw=self._data.tokenizers.src.draw,
            chunks=self._data.chunks,
        )
        return stream.ahead(pin_memory=self._device.type == "cuda")


def open_updates(
    config: Config,
    data: Data,
    *,
    state: TrainState,
    updater: Updater,
    world: World,
    device: torch.device,
) -> Updates:
    """Return the updates of a run; for `auto`, find the largest micro-batch that fits.

    What is found is kept in `state`: a resumed run makes the same batches again.

    Raises:
        ConfigError: If it cannot be found.
    """
    settings = config.training
    micro_batch_tokens = settings.micro_batch_tokens
    if micro_batch_tokens == "auto":
        if not state.micro_batch_tokens:
            longest = max(data.mixture.longest())
            fits = partial(
                _fits,
                updater=updater,
                device=device,
                longest=longest,
                usual=data.valid.pairs.num_tgt_tokens // len(data.valid.pairs),
                patch_size=data.tokenizers.src.patch_size,
            )
            state.micro_batch_tokens = largest_micro_batch(
                settings.max_tokens, num_ranks=world.size, least=longest, fits=fits
            )
            logger.info("micro-batches of %s target tokens fit", f"{state.micro_batch_tokens:,}")
        micro_batch_tokens = state.micro_batch_tokens
    return Updates(config, data, micro_batch_tokens=micro_batch_tokens, world=world, device=device)


def _fits(
    num_tokens: int,
    *,
    updater: Updater,
    device: torch.device,
    longest: int,
    usual: int,
    patch_size: int | None,
) -> bool:
    """Try whether a device has room for a micro-batch; on a CPU, up to a fixed size.

    Where attention is padded, one long sentence among many usual ones takes the most.
    """
    if device.type == "cpu":
        return num_tokens <= max(ENOUGH_TOKENS_CPU, longest)
    batch = uniform_batch(
        num_tokens,
        length=min(usual, num_tokens),
        longest=min(longest, num_tokens),
        row_multiple=ROW_MULTIPLE,
        patch_size=patch_size,
    )
    return updater.has_room_for(batch)


def largest_micro_batch(
    max_tokens: int, *, num_ranks: int, least: int, fits: Callable[[int], bool]
) -> int:
    """Return the tokens of a micro-batch where the fewest that fit make up an update.

    Args:
        max_tokens: Target tokens of the update.
        num_ranks: Ranks that share it.
        least: Tokens that a micro-batch must be able to hold: the longest pair.
        fits: Whether a device has room for a number of tokens; if so, it has for fewer.

    Raises:
        ConfigError: If none fits.
    """

    def tokens(accumulation: int) -> int:
        """Return the tokens of a micro-batch for a number of accumulation steps."""
        return -(-max_tokens // (accumulation * num_ranks))

    too_few, enough = 0, 1
    while not fits(tokens(enough)):
        too_few, enough = enough, 2 * enough
        if tokens(enough) < least:
            raise ConfigError(
                f"training.micro_batch_tokens: out of memory with {tokens(too_few)} tokens per "
                f"micro-batch, but the longest pair has {least}: lower data.filters.max_length, "
                "take a smaller model, or set training.activation_checkpointing to layers"
            )
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if fits(tokens(middle)) else (middle, enough)
    return tokens(enough)
