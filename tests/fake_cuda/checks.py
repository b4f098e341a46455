"""Checks of training and search on a fake CUDA device; README.md explains the device.

FAKE_CUDA_GUARD=guard.so python -m tests.fake_cuda.checks CHECK [ARGUMENT ..]

Prints each case as soon as it is done, as a line of JSON: a pair of its name and what was found.
"""

import json
import logging
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

from tests.fake_cuda.device import CUDA, Ledger, fake_device  # before torch

# isort: split
import numpy as np
import torch
import torch._dynamo

from transformer_mt.config.model import TransformerSettings
from transformer_mt.data.batch_stream import BatchStream
from transformer_mt.data.batches import Batch
from transformer_mt.data.mixture import Mixture
from transformer_mt.data.pairs import pack_pairs
from transformer_mt.models.build import build_model
from transformer_mt.nn import loss
from transformer_mt.packing import Segments
from transformer_mt.search.beam_search import beam_search
from transformer_mt.search.continuations import Continuations, DeviceContinuations
from transformer_mt.search.length_penalty import LengthPenalty
from transformer_mt.text.special_ids import EOS_ID
from transformer_mt.training import layer_compilation
from transformer_mt.training.activation_checkpointing import recompute_layers
from transformer_mt.training.distributed import World
from transformer_mt.training.gradients import Gradients
from transformer_mt.training.micro_batches import ROW_MULTIPLE
from transformer_mt.training.optimizers import build_adam
from transformer_mt.training.update import Updater
from transformer_mt.training.update_stats import UpdateStats

POSITIONS = (
    {"type": "sinusoidal"}, {"type": "learned", "max_length": 256}, {"type": "rotary"},
    {"type": "relative"}, {"type": "relative_bias"}, {"type": "alibi"}, {"type": "none"},
)  # fmt: skip
# Precision and compute capability. Attention is packed with 16 bits from 8.0 on, else padded.
CARDS = (("bf16", (9, 0)), ("fp16", (9, 0)), ("fp32", (9, 0)), ("fp16", (7, 5)), ("fp32", (7, 5)))
Found = Iterator[tuple[str, dict[str, Any]]]
SIZES: dict[str, dict[str, Any]] = {
    "small": {
        "d_model": 64, "d_ff": 128, "num_heads": 4, "num_encoder_layers": 1,
        "num_decoder_layers": 1,
    },
    "base": {},
    "big": {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3},
}  # fmt: skip


def batches(
    num: int, *, max_tokens: int, vocab_size: int, row_multiple: int = ROW_MULTIPLE
) -> list[Batch]:
    """Batches of made-up sentences, 27 tokens on average."""
    rng = np.random.default_rng(1)
    lengths = rng.lognormal(3.1, 0.6, 2 * num * max_tokens // 20).astype(int).clip(2, 150)
    sides = [
        [rng.integers(4, vocab_size, max(2, int(n * share))).tolist() for n in lengths]
        for share in (0.9, 1.0)
    ]
    stream = BatchStream(
        Mixture([pack_pairs(*sides)], seed=1),
        max_tokens=max_tokens,
        row_multiple=row_multiple,
    )
    made = iter(stream)
    return [next(made)[0].in_runs() for _ in range(num)]  # as `BatchStream.ahead` for CUDA


def updater_of(
    size: str, precision: str, *, vocab_size: int,
    compiled: bool = False, recompute: str | None = None, **changes: Any,
) -> Updater:  # fmt: skip
    """What makes the updates of a run, with its model on the device."""
    settings = TransformerSettings.model_validate(SIZES[size] | changes)
    with torch.device(CUDA):
        model = build_model(settings, src_vocab_size=vocab_size, tgt_vocab_size=vocab_size)
    if recompute is not None:
        recompute_layers(model, recompute)  # type: ignore[arg-type]
    gradients = Gradients(
        model, world=World(), device=CUDA, precision=precision, label_smoothing=0.1,
        compiled=compiled,
    )  # fmt: skip
    optimizer = build_adam(
        model.parameters(), "adam", beta1=0.9, beta2=0.98, eps=1e-9, weight_decay=0.0
    )
    return Updater(gradients, optimizer, stats=UpdateStats(World(), CUDA), clip_norm=1.0)


def measured(updater: Updater, given: list[Batch], fake: Any) -> dict[str, Any]:
    """Make an update with each batch; return the costs of the last, and all waits but the first's.

    The first update makes what is kept, such as a table of positions, and waits for that.
    """
    ledger = Ledger()
    for weight in updater.gradients.model.parameters():
        ledger.hold(weight)
    waits = {}
    with ledger:
        for number, batch in enumerate(given):
            ledger.start()
            one = batch.map(fake.from_tensor)
            updater([one], num_tokens=one.num_tgt_tokens, lr=1e-3)
            if number:
                waits |= ledger.waits
    return {
        "waits": waits, "launches": ledger.launches.total(),
        "launches_of_loss": ledger.launches["nn/loss.py"], "peak_mib": ledger.peak >> 20,
        "packed_attention": ledger.operators["_varlen_attn"],
        "tflop": round(ledger.flops / 1e12, 2),
    }  # fmt: skip


def steps(*cases: str) -> Found:
    """Eager updates by position scheme, precision and card."""
    given = batches(2, max_tokens=400, vocab_size=100)
    for name, (precision, capability, positions) in _cases(cases).items():
        with fake_device(capability) as fake:
            updater = updater_of("small", precision, vocab_size=100, positions=positions)
            yield name, measured(updater, given, fake)


def quick() -> Found:
    """A few updates, and the search."""
    yield from steps("sinusoidal bf16 9.0", "relative fp16 7.5")
    yield from search()


def sizes() -> Found:
    """Updates of base and big with 25,000 target tokens, on a large and a smaller card."""
    given = batches(2, max_tokens=25_000, vocab_size=37_000)
    for size, gigabytes in (("base", 80), ("base", 24), ("big", 80)):
        with fake_device((9, 0), gigabytes=gigabytes) as fake:
            updater = updater_of(size, "bf16", vocab_size=37_000)
            yield f"{size} {gigabytes} GB", measured(updater, given, fake)


def padded() -> Found:
    """Updates of base whose attention pads, in one block and in runs of similar length."""
    in_runs = batches(2, max_tokens=25_000, vocab_size=37_000)
    for precision, positions in (("fp32", {"type": "sinusoidal"}), ("bf16", {"type": "relative"})):
        for kind, given in (("block", [_without_runs(x) for x in in_runs]), ("runs", in_runs)):
            with fake_device((9, 0)) as fake:
                updater = updater_of("base", precision, vocab_size=37_000, positions=positions)
                yield f"{positions['type']} {precision} {kind}", measured(updater, given, fake)


def _without_runs(batch: Batch) -> Batch:
    sides = (replace(x, runs=None) for x in (batch.src_segments, batch.tgt_segments))
    return replace(batch, **dict(zip(("src_segments", "tgt_segments"), sides, strict=True)))


def compiled(backend: str, *cases: str) -> Found:
    """Whether an update compiles, and what is compiled again over batches of other sizes."""
    for name, (precision, capability, positions) in _cases(cases).items():
        yield name, _compiled(backend, precision, capability, positions=positions)


def recomputed(backend: str) -> Found:
    """The same with activation checkpointing, without dropout.

    A compiled backward pass that draws the same dropout again wants the random generator of the
    device, which cannot be had for one that is not there.
    """
    for which in ("layers", "selective"):
        yield which, _compiled(backend, "bf16", (9, 0), recompute=which, dropout=0.0)


def _cases(names: tuple[str, ...]) -> dict[str, tuple[str, tuple[int, int], dict[str, Any]]]:
    """Return precision, capability and positions of the named cases, of those of a card, or all."""
    cases = {}
    for precision, capability in CARDS:
        card = f"{precision} {capability[0]}.{capability[1]}"
        for positions in POSITIONS:
            name = f"{positions['type']} {card}"
            if not names or name in names or card in names:
                cases[name] = precision, capability, positions
    return cases


def _compiled(
    backend: str, precision: str, capability: tuple[int, int], **changes: Any
) -> dict[str, Any]:
    """Compile the layers of a small model and make updates with batches of unequal sizes."""
    given = batches(4, max_tokens=700, vocab_size=100)
    given += [given[0].halves()[0], *batches(1, max_tokens=900, vocab_size=100, row_multiple=928)]
    graphs: list[Any] = []

    def counted(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    torch._dynamo.reset()
    loss._compiled.cache_clear()
    trial = layer_compilation._trial_batch(torch.nn.Module(), CUDA)  # before fake tensors
    with (
        mock.patch.object(torch, "compile", partial(torch.compile, backend=counted)),
        fake_device(capability) as fake,
        mock.patch.object(layer_compilation, "_trial_batch") as trial_batch,
    ):
        trial_batch.return_value = trial.map(fake.from_tensor)
        updater = updater_of("small", precision, vocab_size=100, compiled=True, **changes)
        at_first = len(graphs)
        # A ledger is a mode under which nothing is compiled; fake tensors refuse what waits.
        for batch in given:
            one = batch.map(fake.from_tensor)
            updater([one], num_tokens=one.num_tgt_tokens, lr=1e-3)
    return {
        "compiled": updater.gradients.with_loss.compiled, "graphs": at_first,
        "graphs_later": len(graphs) - at_first,
    }  # fmt: skip


def search() -> Found:
    """Beam search: what waits for the device, but for the candidates of a step."""
    num_steps, most = [0], 8
    rng = np.random.default_rng(1)

    def fetched(cls: Any, best: DeviceContinuations) -> Continuations:
        num_steps[0] += 1
        shape = best.scores.shape
        tokens = rng.integers(4, 90, shape) if num_steps[0] < most else np.full(shape, EOS_ID)
        scores = -np.sort(rng.random(shape).astype(np.float32) * 10, axis=1)
        return Continuations(scores=scores, slots=np.zeros(shape, dtype=np.int64), tokens=tokens)

    Continuations.fetched = classmethod(fetched)  # type: ignore[assignment,method-assign]
    lengths = [9, 7, 5, 5, 3, 2]
    for sync_every in (1, 4):
        with fake_device((9, 0)) as fake, torch.no_grad():
            updater = updater_of("small", "bf16", vocab_size=100)
            model = updater.gradients.model.eval()
            segments = Segments.of(lengths).map(fake.from_tensor).to(CUDA)
            src = torch.zeros(sum(lengths), dtype=torch.long, device=CUDA)
            ledger = Ledger()
            with torch.autocast("cuda", dtype=torch.bfloat16), ledger:
                memory = model.encode(src, segments)
                # The first search makes a table of positions, and waits for that.
                for _ in range(2):
                    num_steps[0] = 0
                    ledger.start()
                    beam_search.__wrapped__(  # type: ignore[attr-defined]
                        model.decoder, memory, beam_size=4,
                        length_penalty=LengthPenalty("gnmt", 0.6),
                        max_lengths=_HostNumbers([most] * len(lengths)),
                        sync_every=sync_every,
                    )  # fmt: skip
                cache = model.decoder.init_state(memory, max_length=8).pasts[0].keys
        yield f"sync every {sync_every}", {
            "steps": num_steps[0], "waits": dict(ledger.waits), "launches": ledger.launches.total(),
            "cache": str(cache.dtype),
        }  # fmt: skip


class _HostNumbers:
    """Numbers of the host as a tensor that stays real among fake ones."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = np.array(numbers)

    def numel(self) -> int:
        return self.numbers.size

    def max(self) -> int:
        return int(self.numbers.max())

    def numpy(self) -> Any:
        return self.numbers


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.basicConfig(level=logging.WARNING)
    checks = {
        check.__name__: check
        for check in (quick, steps, sizes, padded, compiled, recomputed, search)
    }
    for case in checks[sys.argv[1]](*sys.argv[2:]):
        print(json.dumps(case), flush=True)
