"""Training speed: updates as a run makes them, on its own data, and the phases of an update.

A run from the first weights, of which nothing is kept: no folder, no checkpoints, no validation.
Everything else is what `tmt train` uses.
"""

import logging
import sys
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from transformer_mt.benchmarks.machine import (
    peak_memory_bytes,
    product_seconds,
    reset_peak_memory,
    run_for,
)
from transformer_mt.benchmarks.phases import PhaseClock, forward_passes
from transformer_mt.config.schema import Config
from transformer_mt.data.batch_stream import Position
from transformer_mt.data.batches import Batch
from transformer_mt.devices import (
    check_precision,
    choose_device,
    choose_precision,
    keep_freed_memory,
    multiply_fast,
)
from transformer_mt.models.build import build_model
from transformer_mt.models.costs import FORWARD_AND_BACKWARD, count_costs
from transformer_mt.training.build import build_first_model, build_updater
from transformer_mt.training.distributed import World
from transformer_mt.training.gradients import DTYPES
from transformer_mt.training.micro_batches import open_updates
from transformer_mt.training.prepare_data import Data, open_sources, prepare_data
from transformer_mt.training.run_directory import RunDirectory
from transformer_mt.training.schedules import build_schedule
from transformer_mt.training.state import TrainState
from transformer_mt.training.update import MAX_UNUSABLE_IN_A_ROW

logger = logging.getLogger(__name__)

WARMUP_SHARE = 0.1
"""Of the time to measure; kernels are chosen, memory is taken and caches fill before it."""
LEAST_UPDATES = 2
PHASES_SHARE = 0.15
"""Of the time to measure, for the pass that looks inside the updates."""
PRODUCTS_SHARE = 0.003
"""Of the time to measure, for each product of a weight matrix."""
PHASES = ("data", "forward", "backward", "optimizer")

_LARGEST_PRODUCT = 1 << 28


@dataclass(frozen=True)
class Work:
    """What updates computed, end of sentence counted.

    Attributes:
        src_tokens: Source tokens.
        tgt_tokens: Target tokens.
        positions: Rows that went through the layers, of both sides, padding included.
    """

    src_tokens: int = 0
    tgt_tokens: int = 0
    positions: int = 0

    def __add__(self, other: "Work") -> "Work":
        """Add up."""
        return Work(
            self.src_tokens + other.src_tokens,
            self.tgt_tokens + other.tgt_tokens,
            self.positions + other.positions,
        )

    @property
    def padding_share(self) -> float:
        """Share of the positions that are no tokens."""
        return 1 - (self.src_tokens + self.tgt_tokens) / max(1, self.positions)


@dataclass(frozen=True)
class TrainingSpeed:
    """Speed of training; the names are those of the JSON output.

    Attributes:
        tokens_per_second: Target tokens, padding not counted.
        src_tokens_per_second: Source tokens, the same way.
        step_seconds: Of an update, undisturbed.
        data_seconds: Of these, waiting for batches. This and the next three are measured in a pass
            of its own, in which the device is waited for between them, and add up to more.
        forward_seconds: Forward pass and loss; the gradient of the output layer is computed with
            its loss.
        backward_seconds: Backward pass.
        optimizer_seconds: Norm of the gradient, clipping, update of the weights.
        padding_share: Share of the positions in all layers that are no tokens. On the CPU
            attention has some of its own: see `nn.kernels.cpu_attention`.
        peak_memory_bytes: On a GPU what tensors took, else all memory of the process.
        mfu: Model FLOPs utilisation: operations of the products with weights, per second, as a
            share of the rate that was measured for matrices of their shapes on this machine.
            Attention's own products are not counted, and no layer is left out: with
            `model.layer_dropout` it may be more than one.
        flops_per_second: Operations of these products in the time of the updates.
        matrix_flops_per_second: The measured rate of these products alone.
        precision: Of matrix products.
        weights: Type of the weights that the layers compute with.
        device: Where.
        threads: Of torch on the processor.
        num_parameters: Of the model.
        tokens_per_step: Target tokens of an update.
        seconds: Duration of the measurement.
        steps: Updates in this time.
    """

    tokens_per_second: float
    src_tokens_per_second: float
    step_seconds: float
    data_seconds: float
    forward_seconds: float
    backward_seconds: float
    optimizer_seconds: float
    padding_share: float
    peak_memory_bytes: int
    mfu: float
    flops_per_second: float
    matrix_flops_per_second: float
    precision: str
    weights: str
    device: str
    threads: int
    num_parameters: int
    tokens_per_step: float
    seconds: float
    steps: int


def measure_training(config: Config, *, seconds: float) -> TrainingSpeed:
    """Train for some seconds after a warm-up, and report the speed.

    Args:
        config: All settings; limits, validation and checkpoints have no effect.
        seconds: For how long to measure; the other passes take about a third of it on top.

    Raises:
        ConfigError: If settings do not fit this machine.
        DataError: If the data cannot be read or used.
        DivergedError: If the gradients are no numbers any more.
    """
    keep_freed_memory()
    device = choose_device(config.training.device)
    precision = choose_precision(config.training, device)
    check_precision(precision, device)
    multiply_fast(device)
    data = read_data(config)
    reset_peak_memory(device)
    bench = TrainingBench(config, data, device=device)
    with closing(bench.updates()) as updates:
        logger.info("warming up")
        run_for(updates, seconds=WARMUP_SHARE * seconds, at_least=LEAST_UPDATES, device=device)
        logger.info("measuring updates for %.0f s", seconds)
        done, elapsed = run_for(updates, seconds=seconds, at_least=LEAST_UPDATES, device=device)
    peak = peak_memory_bytes(device)
    logger.info("measuring the phases of updates")
    phases = bench.phase_seconds(seconds=PHASES_SHARE * seconds)
    logger.info("measuring matrix products")
    work, steps = sum(done, Work()), len(done)
    matrix_rate = rate_of_products(
        bench.model,
        num_rows=max(1, work.tgt_tokens // (steps * bench.accumulation)),
        dtype=DTYPES[precision],
        device=device,
        seconds=PRODUCTS_SHARE * seconds,
    )
    flops_rate = num_flops(config, data, work) / elapsed
    return TrainingSpeed(
        tokens_per_second=work.tgt_tokens / elapsed,
        src_tokens_per_second=work.src_tokens / elapsed,
        step_seconds=elapsed / steps,
        **{f"{phase}_seconds": phases[phase] for phase in PHASES},
        padding_share=work.padding_share,
        peak_memory_bytes=peak,
        mfu=flops_rate / matrix_rate,
        flops_per_second=flops_rate,
        matrix_flops_per_second=matrix_rate,
        precision=precision,
        weights=config.training.weights,
        device=str(device),
        threads=torch.get_num_threads(),
        num_parameters=sum(weight.numel() for weight in bench.model.parameters()),
        tokens_per_step=work.tgt_tokens / steps,
        seconds=elapsed,
        steps=steps,
    )


def read_data(config: Config) -> Data:
    """Prepare the data as a run does, with a folder of the run that does not stay.

    Raises:
        DataError: If the data cannot be read or used.
    """
    with TemporaryDirectory(prefix="tmt-bench-") as folder:
        return prepare_data(config, open_sources(config), RunDirectory(Path(folder)), is_main=True)


class TrainingBench:
    """Updates of a fresh model on one device, and a look inside them.

    Attributes:
        model: What is trained.
        accumulation: Micro-batches of an update, those of `batch_warmup` left out.
    """

    def __init__(self, config: Config, data: Data, *, device: torch.device) -> None:
        world = World()
        self.model = build_first_model(config, data, world=world, device=device)
        state = TrainState()
        self.updater = build_updater(
            config,
            self.model,
            state=state,
            world=world,
            device=device,
            precision=choose_precision(config.training, device),
        )
        self.schedule = build_schedule(config.training, d_model=config.model.d_model)
        updates = open_updates(
            config, data, state=state, updater=self.updater, world=world, device=device
        )
        self.accumulation = updates.split(sys.maxsize).accumulation
        self.batches = partial(updates.after, sys.maxsize, Position())
        self.device = device
        self.step = 0

    def updates(self) -> Generator[Work]:
        """Make updates as a run does; yield what each of them computed."""
        with closing(self.batches()) as updates:
            for micro_batches, _ in updates:
                self.updater(
                    micro_batches, num_tokens=num_tgt_tokens(micro_batches), lr=self.next_lr()
                )
                if self.step % MAX_UNUSABLE_IN_A_ROW == 0:
                    self.updater.check()
                yield work_of(micro_batches)

    def phase_seconds(self, *, seconds: float) -> dict[str, float]:
        """Make updates for some time and return the mean seconds of each of their `PHASES`."""
        clock = PhaseClock(self.device)
        num_updates = 0
        with (
            closing(self.batches()) as updates,
            forward_passes(self.updater.gradients.replicated, clock),
        ):
            next(updates)  # waits until the prefetch thread runs
            clock.start()
            while num_updates < LEAST_UPDATES or clock.total() < seconds:
                micro_batches, _ = next(updates)
                clock.end("data")
                num_tokens, lr = num_tgt_tokens(micro_batches), self.next_lr()
                losses = self.updater.gradients.accumulate(micro_batches, num_tokens=num_tokens)
                clock.end("backward")
                self.updater.apply(losses, num_tokens=num_tokens, lr=lr)
                clock.end("optimizer")
                num_updates += 1
        return {phase: clock.seconds[phase] / num_updates for phase in PHASES}

    def next_lr(self) -> float:
        """Return the learning rate of the next update of a run that has just begun."""
        self.step += 1
        return self.schedule(self.step, 0.0)


def num_tgt_tokens(micro_batches: Iterable[Batch]) -> int:
    """Count the target tokens of an update."""
    return sum(batch.num_tgt_tokens for batch in micro_batches)


def work_of(micro_batches: Iterable[Batch]) -> Work:
    """Count what an update computes."""
    return sum(
        (
            Work(
                src_tokens=batch.src_segments.num_tokens,
                tgt_tokens=batch.num_tgt_tokens,
                positions=len(batch.src) + len(batch.tgt_in),
            )
            for batch in micro_batches
        ),
        Work(),
    )


def num_flops(config: Config, data: Data, work: Work) -> int:
    """Count the operations of the products with weights, forward and backward."""
    with torch.device("meta"):
        model = build_model(
            config.model,
            src_vocab_size=data.tokenizers.src.vocab_size,
            tgt_vocab_size=data.tokenizers.tgt.vocab_size,
        )
    costs = count_costs(model, length=1)
    return costs.source * work.src_tokens + costs.target * work.tgt_tokens


def rate_of_products(
    model: nn.Module,
    *,
    num_rows: int,
    dtype: torch.dtype,
    device: torch.device,
    seconds: float,
) -> float:
    """Measure the rate, in FLOP/s, of the products of each weight matrix with as many tokens.

    Args:
        model: The shapes of its matrices count.
        num_rows: Tokens of a micro-batch; fewer where a product would take more than a gigabyte.
        dtype: Of the products.
        device: Where to compute.
        seconds: For how long to measure each product of each shape.
    """
    shapes = Counter(tuple(weight.shape) for weight in model.parameters() if weight.dim() == 2)
    flops = taken = 0.0
    for (num_out, num_in), number in shapes.items():
        num_at_once = max(1, min(num_rows, _LARGEST_PRODUCT // max(num_out, num_in)))
        measured = product_seconds(
            num_out, num_in, num_rows=num_at_once, dtype=dtype, device=device, seconds=seconds
        )
        flops += 2 * FORWARD_AND_BACKWARD * num_out * num_in * number
        taken += measured * number / num_at_once
    return flops / taken
