"""Workload of the GPU check: made-up sentences of real lengths, timed blocks, peak memory.

Made-up tokens cost what real ones cost, and every peer gets the very same sentences. Nothing here
waits for data that must be fetched first.
"""

import dataclasses
import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from transformer_mt.benchmarks.machine import fastest_seconds, peak_memory_bytes, synchronize
from transformer_mt.config.loading import find_config, load_config
from transformer_mt.config.model import RelativePositions, TransformerSettings
from transformer_mt.config.schema import Config
from transformer_mt.data.pairs import BLOCK_SIZE, TokenPairs
from transformer_mt.text.special_ids import EOS_ID

FIRST_ORDINARY_ID = EOS_ID + 1

Results = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Workload:
    """Sizes of all measurements."""

    vocab_size: int
    max_tokens: int
    """Target tokens, and most source tokens, of one update."""
    num_pairs: int
    models: dict[str, TransformerSettings]
    precision: str
    num_sources: int
    """Sentences to translate."""
    output_tokens: int
    """Tokens of every translation, forced, so that all engines do the same work."""
    translation_batches: tuple[int, ...]
    """Sentences translated at once."""
    beam_size: int = 4
    warmup_steps: int = 5
    block_steps: int = 10
    """Updates of a timed block."""


class NotHereError(Exception):
    """A section that cannot run here; the message says why."""


def require(package: str) -> None:
    """Raise NotHereError if a package is not installed."""
    if importlib.util.find_spec(package) is None:
        raise NotHereError(f"{package} is not installed")


@dataclasses.dataclass
class Check:
    """What all sections need."""

    device: torch.device
    workload: Workload
    out_dir: Path
    dry_run: bool
    matrix_flops: float = 0.0
    """Rate of bf16 matrix products of this machine, FLOP/s."""

    def seconds(self, wanted: float) -> float:
        """Return for how long to measure."""
        return 0.0 if self.dry_run else wanted


BASE = TransformerSettings()
_RELATIVE = {"positions": RelativePositions(type="relative")}
FULL = Workload(
    vocab_size=37_000,
    max_tokens=25_000,
    num_pairs=40_000,
    models={
        "base": BASE,
        "big": BASE.model_copy(
            update={"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3}
        ),
        "base, relative": BASE.model_copy(update=_RELATIVE),
    },
    precision="bf16",
    num_sources=1024,
    output_tokens=27,
    translation_batches=(64, 256, 1024),
)
_TINY = BASE.model_copy(
    update={
        "d_model": 32,
        "d_ff": 64,
        "num_heads": 2,
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
    }
)
DRY = Workload(
    vocab_size=300,
    max_tokens=600,
    num_pairs=200,
    models={
        "base": _TINY,
        "big": _TINY.model_copy(update={"d_ff": 96}),
        "base, relative": _TINY.model_copy(update=_RELATIVE),
    },
    precision="bf16",
    num_sources=16,
    output_tokens=6,
    translation_batches=(8,),
    warmup_steps=1,
    block_steps=2,
)


def config_of(model: TransformerSettings, **training: object) -> Config:
    """Return the recipe `base` with another model and other settings of training."""
    config = load_config(find_config("base"))
    changed = config.training.model_copy(update=training)
    return config.model_copy(update={"model": model, "training": changed})


def made_up_pairs(num_pairs: int, *, vocab_size: int, seed: int = 1) -> TokenPairs:
    """Draw sentence pairs with the lengths of WMT 2014 in subwords: 27 tokens on average.

    Lengths are log-normal, and those of a pair differ by some 15 percent, as in real text.
    """
    rng = np.random.default_rng(seed)
    src_lengths = rng.lognormal(3.1, 0.6, num_pairs)
    tgt_lengths = src_lengths * rng.lognormal(0.0, 0.15, num_pairs)
    lengths = np.stack([src_lengths, tgt_lengths], axis=1).round().astype(np.int64).clip(2, 200)
    ends = lengths.cumsum(axis=0)
    sides = []
    for side in (0, 1):
        tokens = rng.integers(FIRST_ORDINARY_ID, vocab_size, int(ends[-1, side]))
        tokens[ends[:, side] - 1] = EOS_ID
        sides.append(tokens)
    return TokenPairs(
        src=sides[0],
        tgt=sides[1],
        lengths=lengths,
        block_offsets=(ends - lengths)[::BLOCK_SIZE],
        name="made-up pairs",
    )


def time_updates(
    updates: Iterator[int], workload: Workload, *, device: torch.device, seconds: float
) -> dict[str, object]:
    """Run updates for some seconds and report how fast they are.

    Args:
        updates: Does an update when asked for the next value: its target tokens, not padding.
        workload: How many updates to leave out at the start, and how many make a block.
        device: Waited for at the end of each block.
        seconds: About how long to measure; at least three blocks.

    Returns:
        `tokens_per_second` (target tokens, median of the blocks), `blocks` (the rates), `steps`,
        `step_seconds` and `peak_memory_bytes`.
    """
    for _ in range(workload.warmup_steps):
        next(updates)
    synchronize(device)
    rates: list[float] = []
    started = time.perf_counter()
    while len(rates) < 3 or time.perf_counter() - started < seconds:
        block_started = time.perf_counter()
        tokens = sum(next(updates) for _ in range(workload.block_steps))
        synchronize(device)
        rates.append(tokens / (time.perf_counter() - block_started))
    steps = len(rates) * workload.block_steps
    return {
        "tokens_per_second": round(statistics.median(rates)),
        "blocks": [round(rate) for rate in rates],
        "steps": steps,
        "step_seconds": round((time.perf_counter() - started) / steps, 5),
        "peak_memory_bytes": peak_memory_bytes(device),
    }


def time_translations(
    translate: Callable[[], int], num_sources: int, *, device: torch.device, seconds: float
) -> dict[str, object]:
    """Translate the same sentences again and again for some seconds and report how fast it is.

    Args:
        translate: Translates all sentences and returns the tokens of the translations.
        num_sources: Number of sentences.
        device: Waited for at the end of each pass.
        seconds: About how long; at least two passes after one that is not counted.
    """
    translate()
    rates: list[float] = []
    num_tokens = 0
    started = time.perf_counter()
    while len(rates) < 2 or time.perf_counter() - started < seconds:
        pass_started = time.perf_counter()
        num_tokens = translate()
        synchronize(device)
        rates.append(num_sources / (time.perf_counter() - pass_started))
    rate = statistics.median(rates)
    return {
        "sentences_per_second": round(rate, 1),
        "output_tokens_per_second": round(rate * num_tokens / num_sources),
        "mean_output_tokens": round(num_tokens / num_sources, 2),
        "passes": [round(rate, 1) for rate in rates],
        "peak_memory_bytes": peak_memory_bytes(device),
    }


def matrix_rate(device: torch.device, *, size: int, dtype: torch.dtype, seconds: float) -> float:
    """Measure this machine's rate of square matrix products, in FLOP/s: the best of the passes."""
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / fastest_seconds(lambda: a @ b, seconds=seconds, device=device)
