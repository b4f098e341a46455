"""Peers of `peers` as their users train them: plain loops over sorted, padded batches."""

import contextlib

import torch
from comparison import Run
from gpu_peers import build_peer, fastest_attention, padded_batches, peer_updates
from peer_models import plain_transformer

from transformer_mt.benchmarks import machine
from transformer_mt.benchmarks.training import LEAST_UPDATES, WARMUP_SHARE, read_data
from transformer_mt.config.schema import Config
from transformer_mt.devices import choose_device
from transformer_mt.text.special_ids import PAD_ID


def measure_peer(engine: str, config: Config, seconds: float) -> Run:
    """Train a peer in this process for some seconds, and report what `tmt bench train` reports."""
    device = choose_device(config.training.device)
    data = read_data(config)
    (pairs,) = data.mixture.corpora
    torch.manual_seed(config.seed)
    batches = padded_batches(pairs, config.training.max_tokens)
    machine.reset_peak_memory(device)
    precision = config.training.precision
    attention = fastest_attention(device, precision)
    model, logits_of = build_peer(
        engine, plain_transformer(config.model), data.tokenizers.tgt.vocab_size, attention=attention
    )
    updates = peer_updates(model, logits_of, batches, device=device, precision=precision)
    with contextlib.closing(updates):
        machine.run_for(
            updates, seconds=WARMUP_SHARE * seconds, at_least=LEAST_UPDATES, device=device
        )
        done, elapsed = machine.run_for(
            updates, seconds=seconds, at_least=LEAST_UPDATES, device=device
        )
    num_tokens = sum(int((side != PAD_ID).sum()) for batch in batches for side in batch)
    num_positions = sum(side.numel() for batch in batches for side in batch)
    return {
        "tokens_per_second": sum(done) / elapsed,
        "step_seconds": elapsed / len(done),
        "tokens_per_step": sum(done) / len(done),
        "padding_share": 1 - num_tokens / num_positions,
        "peak_memory_bytes": machine.peak_memory_bytes(device),
        "num_parameters": sum(
            weight.numel() for weight in model.parameters() if weight.requires_grad
        ),
        "attention": attention,
        "device": str(device),
        "threads": torch.get_num_threads(),
        "seconds": elapsed,
        "steps": len(done),
    }
