"""Speed of training and translation on a GPU, ours and the peers'."""

import contextlib
import functools
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from gpu_workload import (
    Check,
    NotHereError,
    Results,
    Workload,
    config_of,
    made_up_pairs,
    require,
    time_translations,
    time_updates,
)
from peer_models import fresh_hugging_face
from peer_training import Peer, padded_batches

from transformer_mt.benchmarks.machine import reset_peak_memory
from transformer_mt.benchmarks.training import TrainingBench, Work, num_flops
from transformer_mt.config.decoding import DecodingSettings
from transformer_mt.data.mixture import Mixture
from transformer_mt.exchange.ctranslate2 import weights_of_model, write_ctranslate2
from transformer_mt.models.build import build_model
from transformer_mt.models.compilation import compile_steps
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels.choice import Way, both_passes, made_up, seconds_of
from transformer_mt.nn.kernels.dispatch import attend
from transformer_mt.nn.kernels.short_attention import CHOICE, attend_one_by_one, has_triton
from transformer_mt.packing import pack_tokens
from transformer_mt.search.beam_search import beam_search
from transformer_mt.search.length_penalty import LengthPenalty
from transformer_mt.text.special_ids import EOS_ID
from transformer_mt.training.gradients import DTYPES
from transformer_mt.training.prepare_data import Data
from transformer_mt.translation.batch_search import SYNC_EVERY_STEPS

sys.path.insert(0, str(Path(__file__).parent / "bench"))

import decode_engines

SYNC_INTERVALS = (1, 2, 4, 8)


def measure_training(check: Check, size: str, seconds: float, **settings: str) -> Results:
    """Measure training as `tmt bench train` does, on made-up sentences.

    Args:
        check: Sizes, device and time.
        size: Name of the model.
        seconds: About how long to measure.
        **settings: Of `training`, where they are not those of the recipe `base`.
    """
    workload = check.workload
    pairs = made_up_pairs(workload.num_pairs, vocab_size=workload.vocab_size)
    config = config_of(
        workload.models[size],
        max_tokens=workload.max_tokens,
        precision=workload.precision,
        **settings,
    )
    vocabulary = SimpleNamespace(vocab_size=workload.vocab_size)
    tokenizers = SimpleNamespace(src=vocabulary, tgt=vocabulary)
    data = cast(Data, SimpleNamespace(mixture=Mixture([pairs], seed=1), tokenizers=tokenizers))
    started = time.perf_counter()
    bench = TrainingBench(config, data, device=check.device)
    build_seconds = time.perf_counter() - started
    reset_peak_memory(check.device)
    with contextlib.closing(bench.updates()) as updates:
        results: Results = time_updates(
            (work.tgt_tokens for work in updates),
            workload,
            device=check.device,
            seconds=check.seconds(seconds),
        )
    is_compiled = bench.updater.gradients.with_loss.compiled
    if check.device.type == "cuda" and not is_compiled:
        raise RuntimeError("torch.compile failed, so this is not what users get: see the warning")
    all_pairs = Work(src_tokens=pairs.num_src_tokens, tgt_tokens=pairs.num_tgt_tokens)
    # Products with weights, for a target token and its share of the source tokens.
    flops = num_flops(config, data, all_pairs) / pairs.num_tgt_tokens
    return results | {
        "precision": workload.precision,
        "short_attention": CHOICE.is_taken,
        "compiled": is_compiled,
        "compile_seconds": round(build_seconds, 1),
        "parameters": sum(p.numel() for p in bench.model.parameters()),
        "gigaflops_per_target_token": round(flops / 1e9, 3),
        "share_of_matrix_rate": round(flops * results["tokens_per_second"] / check.matrix_flops, 4),
        **bench.updater.facts(),
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


def measure_peer_training(check: Check, peer: str, size: str, seconds: float) -> Results:
    """Measure training of a peer on the same sentences, grouped by length."""
    require({"MarianMT": "transformers", "nn.Transformer": "torch"}[peer])
    workload = check.workload
    pairs = made_up_pairs(workload.num_pairs, vocab_size=workload.vocab_size)
    torch.manual_seed(1)
    model = Peer(
        peer,
        workload.models[size],
        workload.vocab_size,
        device=check.device,
        precision=workload.precision,
    )
    reset_peak_memory(check.device)
    with contextlib.closing(model.updates(padded_batches(pairs, workload.max_tokens))) as updates:
        return time_updates(updates, workload, device=check.device, seconds=check.seconds(seconds))


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


def measure_sync_intervals(check: Check) -> Results:
    """Measure beam search that waits for the GPU after every step, or after every few.

    All translations end together, so the steps that a finished sentence still makes until the host
    sees that it has ended are not in it.
    """
    model, sources = _base_model(check), _sources(check.workload)
    results: Results = {}
    for batch_size in check.workload.translation_batches[:2]:
        for steps in SYNC_INTERVALS:
            results[f"{batch_size} sentences, sync every {steps} steps"] = time_translations(
                functools.partial(
                    _translate, check, model, sources, batch_size=batch_size, sync_every=steps
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


def measure_peer_translation(check: Check, engine: str) -> Results:
    """Measure beam search of a peer of the same size, every translation of the same length."""
    require(decode_engines.PACKAGES[engine])
    sources = _sources(check.workload)
    setup, ready = _peer_engine(check, engine)
    results: Results = {}
    for batch_size in check.workload.translation_batches:
        reset_peak_memory(check.device)
        translate = ready({**setup, "batch": batch_size}, check.workload.beam_size)
        results[f"{batch_size} sentences"] = time_translations(
            functools.partial(_num_tokens, translate, sources),
            len(sources),
            device=check.device,
            seconds=check.seconds(4),
        )
    return results


def _num_tokens(translate: decode_engines.Translate, sources: list[list[int]]) -> int:
    return sum(map(len, translate(sources)))


def _peer_engine(check: Check, engine: str) -> tuple[dict[str, Any], Any]:
    """Return an engine with fresh weights, which never end a sentence by themselves."""
    workload, settings = check.workload, check.workload.models["base"]
    decoding = DecodingSettings(max_length_factor=0, max_length_offset=workload.output_tokens)
    if engine == "Hugging Face":
        model = fresh_hugging_face(settings, workload.vocab_size).eval()
        model.to(check.device, DTYPES[workload.precision])
        _, ready = decode_engines.hugging_face(
            model, decoding, batches=(), precision=workload.precision
        )
        return {"attention": "sdpa"}, ready
    names = [str(i) for i in range(workload.vocab_size)]
    vocabulary = SimpleNamespace(
        ids={name: i for i, name in enumerate(names)}, pieces=lambda ids: [names[i] for i in ids]
    )
    directory = check.out_dir / "peer"
    directory.mkdir(parents=True, exist_ok=True)
    weights = weights_of_model(_base_model(check))
    write_ctranslate2(weights, settings, directory, src_pieces=names, tgt_pieces=names)
    _, ready = decode_engines.ctranslate2(
        directory,
        decoding,
        src=vocabulary,
        tgt=vocabulary,
        batches=(),
        precision=workload.precision if check.device.type == "cuda" else "fp32",
        device=check.device.type,
        threads=torch.get_num_threads(),
    )
    return {"workers": 1}, ready
