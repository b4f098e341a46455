"""What the program does on a CUDA device that is not there; prints one JSON object.

FAKE_CUDA_GUARD=guard.so python -m tests.fake_cuda.checks steps|compiled|search|sizes ..
"""

import json
import logging
import sys
import warnings
from functools import partial
from typing import Any

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
from transformer_mt.search.candidates import Candidates, Continuations
from transformer_mt.search.length_penalty import LengthPenalty
from transformer_mt.text.special_ids import EOS_ID
from transformer_mt.training.activation_checkpointing import recompute_layers
from transformer_mt.training.distributed import World
from transformer_mt.training.gradients import Gradients
from transformer_mt.training.micro_batches import row_multiple
from transformer_mt.training.optimizers import build_adam
from transformer_mt.training.update import Updater
from transformer_mt.training.update_stats import Tally

POSITIONS = (
    {"type": "sinusoidal"}, {"type": "learned", "max_length": 256}, {"type": "rotary"},
    {"type": "relative"}, {"type": "relative_bias"}, {"type": "alibi"}, {"type": "none"},
)  # fmt: skip
CARDS = (("bf16", (9, 0)), ("fp16", (9, 0)), ("fp32", (9, 0)), ("fp16", (7, 5)), ("fp32", (7, 5)))
SIZES: dict[str, dict[str, Any]] = {
    "small": {
        "d_model": 64, "d_ff": 128, "num_heads": 4, "num_encoder_layers": 1,
        "num_decoder_layers": 1,
    },
    "base": {},
    "big": {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3},
}  # fmt: skip


def batches(
    num: int, *, max_tokens: int, vocab_size: int, static_shape: bool = False
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
        row_multiple=row_multiple(max_tokens, static_shape=static_shape),
    )
    made = iter(stream)
    return [next(made)[0] for _ in range(num)]


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
    return Updater(gradients, optimizer, tally=Tally(World(), CUDA), clip_norm=1.0)


def measured(updater: Updater, given: list[Batch], fake: Any) -> dict[str, Any]:
    """Make an update with each batch; tell what the last one took, and all waits but the first's.

    The first one makes what is kept, such as a table of positions, and waits for that.
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
    in_loss = ledger.launches["nn/loss.py"]
    return {
        "waits": waits, "launches": ledger.launches.total(), "launches_of_loss": in_loss,
        "peak_mib": ledger.peak >> 20, "attention": ledger.operators["_varlen_attn"],
    }  # fmt: skip


def steps() -> dict[str, Any]:
    """Eager updates: all positions and precisions, cards with and without packed attention."""
    found = {}
    given = batches(2, max_tokens=400, vocab_size=100)
    for number, (precision, capability) in enumerate(CARDS):
        with fake_device(capability) as fake:
            # What positions do depends on the kernel alone, packed or padded.
            for positions in POSITIONS if number in (0, 3) else POSITIONS[:1]:
                updater = updater_of("small", precision, vocab_size=100, positions=positions)
                name = f"{positions['type']} {precision} {capability[0]}.{capability[1]}"
                found[name] = measured(updater, given, fake)
    return found


def sizes() -> dict[str, Any]:
    """Updates of base and big with 25,000 target tokens, on a large and a smaller card."""
    found = {}
    given = batches(2, max_tokens=25_000, vocab_size=37_000)
    for size, gigabytes in (("base", 80), ("base", 24), ("big", 80)):
        with fake_device((9, 0), gigabytes=gigabytes) as fake:
            updater = updater_of(size, "bf16", vocab_size=37_000)
            found[f"{size} {gigabytes} GB"] = measured(updater, given, fake)
    return found


def compiled(backend: str, *names: str) -> dict[str, Any]:
    """Whether it compiles, and what is compiled again over batches of other sizes."""
    cases: dict[str, tuple[str, tuple[int, int], dict[str, Any]]] = {
        f"{positions['type']} {precision} {capability[0]}.{capability[1]}": (
            precision, capability, {"positions": positions},
        )
        for precision, capability in CARDS
        for positions in POSITIONS
    }  # fmt: skip
    cases |= {f"recompute {which}": ("bf16", (9, 0), {"recompute": which})
              for which in ("layers", "selective")}  # fmt: skip
    found: dict[str, Any] = {}
    given = batches(4, max_tokens=700, vocab_size=100)
    given += [given[0].halves()[0], *batches(1, max_tokens=900, vocab_size=100, static_shape=True)]
    plain = torch.compile
    for name in names or cases:
        precision, capability, changes = cases[name]
        graphs: list[Any] = []

        def counted(graph: Any, inputs: Any, graphs: list[Any] = graphs) -> Any:
            graphs.append(graph)
            return torch._dynamo.lookup_backend(backend)(graph, inputs)

        torch._dynamo.reset()
        loss._compiled.cache_clear()
        torch.compile = partial(plain, backend=counted)
        with fake_device(capability) as fake:
            updater = updater_of("small", precision, vocab_size=100, compiled=True, **changes)
            at_first = len(graphs)
            # A ledger is a mode under which nothing is compiled; fake tensors refuse what waits.
            for batch in given:
                one = batch.map(fake.from_tensor)
                updater([one], num_tokens=one.num_tgt_tokens, lr=1e-3)
        torch.compile = plain
        found[name] = {
            "compiled": updater.gradients.with_loss.compiled, "graphs": at_first,
            "graphs_later": len(graphs) - at_first,
        }  # fmt: skip
    return found


def search() -> dict[str, Any]:
    """Beam search: what waits besides its looks at the candidates of a step."""
    num_steps, most = [0], 8
    rng = np.random.default_rng(1)

    def fetched(cls: Any, best: Continuations) -> Candidates:
        num_steps[0] += 1
        shape = best.scores.shape
        tokens = rng.integers(4, 90, shape) if num_steps[0] < most else np.full(shape, EOS_ID)
        scores = -np.sort(rng.random(shape).astype(np.float32) * 10, axis=1)
        return Candidates(scores=scores, slots=np.zeros(shape, dtype=np.int64), tokens=tokens)

    Candidates.fetched = classmethod(fetched)  # type: ignore[assignment,method-assign]
    lengths = [9, 7, 5, 5, 3, 2]
    found = {}
    for look_every in (1, 4):
        with fake_device((9, 0)) as fake, torch.no_grad():
            updater = updater_of("small", "bf16", vocab_size=100)
            model = updater.gradients.model.eval()
            on_cpu = Segments.of(lengths)
            segments = type(on_cpu)(
                **{
                    name: fake.from_tensor(x) if isinstance(x, torch.Tensor) else x
                    for name, x in vars(on_cpu).items()
                }
            ).to(CUDA)
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
                        look_every=look_every,
                    )  # fmt: skip
                cache = model.decoder.init_state(memory, max_length=8).pasts[0].keys
        found[f"look every {look_every}"] = {
            "steps": num_steps[0], "waits": dict(ledger.waits), "launches": ledger.launches.total(),
            "cache": str(cache.dtype),
        }  # fmt: skip
    return found


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
    chosen = {"steps": steps, "compiled": compiled, "search": search, "sizes": sizes}
    print(json.dumps(chosen[sys.argv[1]](*sys.argv[2:]), indent=1))
