"""Speed of training and translation on a GPU, ours and the peers'."""

import contextlib
import functools
import time
from collections.abc import Generator
from typing import Literal

import torch
from gpu_peers import (
    DTYPES,
    PACKAGES,
    TRANSLATORS,
    build_peer,
    is_installed,
    padded_batches,
    peer_updates,
)
from gpu_workload import (
    Check,
    NotHereError,
    Results,
    Workload,
    made_up_pairs,
    time_translations,
    time_updates,
)

from transformer_mt.benchmarks.machine import reset_peak_memory
from transformer_mt.data.batch_stream import BatchStream
from transformer_mt.data.mixture import Mixture
from transformer_mt.models.build import build_model
from transformer_mt.models.compilation import compile_steps
from transformer_mt.models.costs import count_costs
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels.choice import Way, both_passes, made_up, seconds_of
from transformer_mt.nn.kernels.dispatch import attend
from transformer_mt.nn.kernels.short_attention import CHOICE, attend_one_by_one, has_triton
from transformer_mt.packing import pack_tokens
from transformer_mt.search.beam_search import beam_search
from transformer_mt.search.length_penalty import LengthPenalty
from transformer_mt.text.special_ids import EOS_ID
from transformer_mt.training.attention import choose_attention
from transformer_mt.training.distributed import World
from transformer_mt.training.gradients import Gradients
from transformer_mt.training.micro_batches import ROW_MULTIPLE
from transformer_mt.training.optimizers import build_adam
from transformer_mt.training.update import Updater
from transformer_mt.training.update_stats import UpdateStats
from transformer_mt.training.working_weights import WorkingWeights
from transformer_mt.translation.batch_search import SYNC_EVERY_STEPS

TrainingWay = Literal["default", "bf16 weights"]


def measure_training(
    check: Check, size: str, seconds: float, *, way: TrainingWay = "default"
) -> Results:
    """Measure training of a model: the loader, the packed batches, the whole update."""
    workload, settings = check.workload, check.workload.models[size]
    pairs = made_up_pairs(workload.num_pairs, vocab_size=workload.vocab_size)
    torch.manual_seed(1)
    vocab_sizes = {"src_vocab_size": workload.vocab_size, "tgt_vocab_size": workload.vocab_size}
    model = build_model(settings, **vocab_sizes).to(check.device)
    started = time.perf_counter()
    updater = _updater(model, check, way)
    compile_seconds = time.perf_counter() - started
    stream = BatchStream(
        Mixture([pairs], seed=1),
        max_tokens=workload.max_tokens,
        row_multiple=ROW_MULTIPLE,
    )

    def updates() -> Generator[int]:
        """Make updates; yield the target tokens of each."""
        is_cuda = check.device.type == "cuda"
        with contextlib.closing(stream.ahead(pin_memory=is_cuda)) as batches:
            for batch, _ in batches:
                updater([batch], num_tokens=batch.num_tgt_tokens, lr=1e-4)
                yield batch.num_tgt_tokens

    reset_peak_memory(check.device)
    with contextlib.closing(updates()) as running:
        results: Results = time_updates(
            running, workload, device=check.device, seconds=check.seconds(seconds)
        )
    if check.device.type == "cuda" and not updater.gradients.with_loss.compiled:
        raise RuntimeError("torch.compile failed, so this is not what users get: see the warning")
    with torch.device("meta"):
        costs = count_costs(build_model(settings, **vocab_sizes), length=1)
    # Products with weights, for a target token and its share of the source tokens.
    flops = costs.target + costs.source * pairs.num_src_tokens / pairs.num_tgt_tokens
    rate = flops * results["tokens_per_second"]
    return results | {
        "precision": workload.precision,
        "short_attention": CHOICE.is_taken,
        "compiled": updater.gradients.with_loss.compiled,
        "compile_seconds": round(compile_seconds, 1),
        "parameters": sum(p.numel() for p in model.parameters()),
        "gigaflops_per_target_token": round(flops / 1e9, 3),
        "share_of_matrix_rate": round(rate / check.matrix_flops, 4),
        **updater.facts(),
    }


def measure_short_attention(check: Check) -> Results:
    """Measure self-attention of the models by the kernel for short sentences and by others.

    Milliseconds of a forward and a backward pass, each sentence of the same length.
    """
    if check.device.type != "cuda" or not has_triton():
        raise NotHereError("the kernel for short sentences needs CUDA and Triton")
    no_dropout = Dropout(0.0)
    ways: dict[str, Way] = {
        "varlen": functools.partial(attend, dropout=no_dropout),
        "short": functools.partial(attend_one_by_one, dropout=no_dropout),
    }
    results: Results = {}
    for size in ("base", "big"):
        settings = check.workload.models[size]
        for length in (10, 25, 60, 128):
            projections, mask = made_up(
                [length] * (check.workload.max_tokens // length),
                "causal",
                device=check.device,
                dtype=torch.bfloat16,
                num_heads=settings.num_heads,
                head_dim=settings.d_model // settings.num_heads,
            )
            for name, way in ways.items():
                both = seconds_of(functools.partial(both_passes, way, projections, mask))
                with torch.no_grad():
                    forward = seconds_of(functools.partial(way, projections, mask))
                results[f"{size}, length {length}, {name}"] = {
                    "forward_ms": round(forward * 1e3, 4),
                    "both_ms": round(both * 1e3, 4),
                }
    return results


def _updater(model: Seq2Seq, check: Check, way: TrainingWay) -> Updater:
    choose_attention(model, precision=check.workload.precision, world=World(), device=check.device)
    gradients = Gradients(
        model,
        world=World(),
        device=check.device,
        precision=check.workload.precision,
        label_smoothing=0.1,
        compiled=check.device.type == "cuda",
        working=WorkingWeights(model) if way == "bf16 weights" else None,
    )
    return Updater(
        gradients,
        build_adam(model.parameters(), "adam", beta1=0.9, beta2=0.98, eps=1e-9, weight_decay=0.0),
        stats=UpdateStats(World(), check.device),
        clip_norm=None,
    )


def measure_peer_training(check: Check, peer: str, size: str, seconds: float) -> Results:
    """Measure training of a peer on the same sentences, grouped by length."""
    if not is_installed(PACKAGES[peer]):
        raise NotHereError(f"{PACKAGES[peer]} is not installed")
    workload = check.workload
    pairs = made_up_pairs(workload.num_pairs, vocab_size=workload.vocab_size)
    torch.manual_seed(1)
    model, logits_of = build_peer(peer, workload.models[size], workload.vocab_size)
    running = peer_updates(
        model,
        logits_of,
        padded_batches(pairs, workload.max_tokens),
        device=check.device,
        precision=workload.precision,
    )
    reset_peak_memory(check.device)
    with contextlib.closing(running):
        return time_updates(running, workload, device=check.device, seconds=check.seconds(seconds))


def _sources(workload: Workload) -> list[list[int]]:
    """Return the sentences to translate, without eos, the longest first."""
    pairs = made_up_pairs(workload.num_sources, vocab_size=workload.vocab_size, seed=2)
    sources = [pairs.pair(row)[0][:-1].tolist() for row in range(len(pairs))]
    return sorted(sources, key=len, reverse=True)


def measure_translation(check: Check, *, compiled: bool = False) -> Results:
    """Measure beam search of the base model, every translation of the same length."""
    if compiled and check.device.type != "cuda":
        raise NotHereError("compiled steps are for GPUs")
    model, sources = _base_model(check), _sources(check.workload)
    batches = check.workload.translation_batches
    results: Results = {}
    if compiled:
        started = time.perf_counter()
        if not compile_steps(
            model, lambda: _translate(check, model, sources, batch_size=batches[-1])
        ):
            raise RuntimeError("torch.compile failed: see the warning")
        results["compile_seconds"] = time.perf_counter() - started
    for batch_size in batches[-1:] if compiled else batches:
        reset_peak_memory(check.device)
        results[f"{batch_size} sentences"] = time_translations(
            functools.partial(_translate, check, model, sources, batch_size=batch_size),
            len(sources),
            device=check.device,
            seconds=check.seconds(5),
        )
    return results


def measure_looks(check: Check) -> Results:
    """Measure beam search whose host looks at every step, or at every few.

    All translations end together, so what a late look costs, in sentences that are done and stay,
    is not in it.
    """
    model, sources = _base_model(check), _sources(check.workload)
    results: Results = {}
    for batch_size in check.workload.translation_batches[:2]:
        for sync_every in (1, 2, 4, 8):
            results[f"{batch_size} sentences, a look every {sync_every} steps"] = time_translations(
                functools.partial(
                    _translate,
                    check,
                    model,
                    sources,
                    batch_size=batch_size,
                    sync_every=sync_every,
                ),
                len(sources),
                device=check.device,
                seconds=check.seconds(2),
            )
    return results


def _base_model(check: Check) -> Seq2Seq:
    workload = check.workload
    torch.manual_seed(1)
    model = build_model(
        workload.models["base"],
        src_vocab_size=workload.vocab_size,
        tgt_vocab_size=workload.vocab_size,
    )
    return model.to(check.device, DTYPES[workload.precision]).eval()


@torch.inference_mode()
def _translate(
    check: Check,
    model: Seq2Seq,
    sources: list[list[int]],
    *,
    batch_size: int,
    sync_every: int = SYNC_EVERY_STEPS,
) -> int:
    """Translate all sources; return the number of tokens."""
    workload, num_tokens = check.workload, 0
    for start in range(0, len(sources), batch_size):
        batch = [[*source, EOS_ID] for source in sources[start : start + batch_size]]
        found = beam_search(
            model.decoder,
            model.encode(*pack_tokens(batch, check.device)),
            beam_size=workload.beam_size,
            length_penalty=LengthPenalty("gnmt", 0.6),
            # At the greatest length only eos may follow; a fresh model never says it before.
            max_lengths=torch.full((len(batch),), workload.output_tokens),
            sync_every=sync_every,
        )
        num_tokens += sum(len(hypotheses[0].tokens) + 1 for hypotheses in found)
    return num_tokens


def measure_peer_translation(check: Check, peer: str) -> Results:
    """Measure beam search of a peer of the same size, every translation of the same length."""
    package = PACKAGES[peer]
    if not is_installed(package):
        raise NotHereError(f"{package} is not installed")
    workload, sources = check.workload, _sources(check.workload)
    results: Results = {}
    for batch_size in workload.translation_batches:
        reset_peak_memory(check.device)
        translate = TRANSLATORS[peer](
            workload.models["base"],
            workload,
            sources,
            batch_size=batch_size,
            device=check.device,
            directory=check.out_dir / "peer",
        )
        results[f"{batch_size} sentences"] = time_translations(
            translate, len(sources), device=check.device, seconds=check.seconds(4)
        )
    return results
