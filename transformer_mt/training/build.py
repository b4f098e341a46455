"""Builders of a run: the model with its first weights, the optimizer, the updater."""

import logging
from collections.abc import Callable
from functools import partial

import torch

from transformer_mt.config.patterns import patterns_of
from transformer_mt.config.schema import Config
from transformer_mt.config.training import TrainingSettings
from transformer_mt.models.build import build_model
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.nn.low_rank import adapt_layers
from transformer_mt.training.activation_checkpointing import recompute_layers
from transformer_mt.training.attention_kernel import choose_attention
from transformer_mt.training.distributed import World
from transformer_mt.training.freezing import freeze
from transformer_mt.training.gradients import Gradients
from transformer_mt.training.muon import build_muon
from transformer_mt.training.optimizers import build_adam
from transformer_mt.training.prepare_data import Data
from transformer_mt.training.sharding import shard
from transformer_mt.training.state import TrainState
from transformer_mt.training.update import Updater
from transformer_mt.training.update_stats import UpdateStats
from transformer_mt.training.warm_start import WarmStart
from transformer_mt.training.working_weights import WorkingWeights

logger = logging.getLogger(__name__)


def build_first_model(
    config: Config,
    data: Data,
    *,
    start: WarmStart | None = None,
    world: World,
    device: torch.device,
) -> Seq2Seq:
    """Build the model with its first weights, the same on all ranks, and seed what comes after."""
    torch.manual_seed(config.seed)
    model = build_model(
        config.model,
        src_vocab_size=data.tokenizers.src.vocab_size,
        tgt_vocab_size=data.tokenizers.tgt.vocab_size,
    ).to(device)
    if start is not None:
        start.apply(model)
    settings = config.training
    if settings.lora_rank is not None:
        adapt_layers(model, rank=settings.lora_rank, embeddings=settings.lora_embeddings)
    freeze(model, settings.freeze)
    seed_dropout(config, world, step=0)
    return model


def build_updater(
    config: Config,
    model: Seq2Seq,
    *,
    state: TrainState,
    world: World,
    device: torch.device,
    precision: str,
) -> Updater:
    """Build the optimizer of a model, or of its sharded copy, and what makes its updates.

    The attention kernel is that of `state`, or else is chosen by a trial and noted there.
    """
    settings = config.training
    if settings.parallel == "fsdp":
        if world.size > 1:
            model = shard(model, world, device)
        else:
            logger.warning("training.parallel: fsdp has no effect with one process")
    working = WorkingWeights(model) if settings.weights == "bf16" else None
    # Before layers are compiled: what is chosen becomes part of them.
    state.short_attention = choose_attention(
        model, precision=precision, world=world, device=device, chosen=state.short_attention
    )
    # After sharding: a layer is gathered again before it is computed again.
    if settings.activation_checkpointing != "none":
        recompute_layers(
            model if working is None else working.model, settings.activation_checkpointing
        )
    is_compiled = settings.compile == "layers" or (
        settings.compile == "auto"
        and device.type == "cuda"
        and not patterns_of(config.model)
        and not config.data.has_memory
    )
    gradients = Gradients(
        model,
        world=world,
        device=device,
        precision=precision,
        label_smoothing=settings.label_smoothing,
        compiled=is_compiled,
        working=working,
    )
    return Updater(
        gradients,
        build_optimizer(model, settings),
        stats=UpdateStats(world, device),
        clip_norm=settings.clip_norm,
    )


def build_optimizer(model: Seq2Seq, settings: TrainingSettings) -> torch.optim.Optimizer:
    """Return the update rule that the settings name, over the weights of a model."""
    rules: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "adam": partial(build_adam, model.parameters(), "adam"),
        "adamw": partial(build_adam, model.parameters(), "adamw"),
        "muon": partial(build_muon, model),
    }
    return rules[settings.optimizer.type](**settings.optimizer.model_dump(exclude={"type"}))


def seed_dropout(config: Config, world: World, *, step: int) -> None:
    """Give each rank random numbers of its own: the ranks must not drop the same activations."""
    torch.manual_seed((config.seed * 1_000_003 + step) * 4096 + 1 + world.rank)
