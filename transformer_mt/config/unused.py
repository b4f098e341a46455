"""Warnings about settings that have no effect in a run, given the others."""

from collections.abc import Iterator
from typing import Any

from transformer_mt.config.base import Settings
from transformer_mt.config.model import ADDS_TO_SCORES
from transformer_mt.config.patterns import patterns_of
from transformer_mt.config.schema import Config


def unused_settings(config: Config) -> list[str]:
    """Find settings that differ from their default but have no effect in this run.

    Returns:
        One line for each, such as `tokenizer.vocab_size has no effect: tokenizer.path is set`.
    """
    return [
        *_unused_data(config),
        *_unused_tokenizer(config),
        *_unused_model(config),
        *_unused_training(config),
        *_unused_validation(config),
        *_unused_decoding(config),
    ]


def _changed(group: Settings, *names: str) -> list[str]:
    """Name the settings of a group that were given and differ from their default."""
    fields = type(group).model_fields
    return [
        name
        for name in names
        if name in group.model_fields_set and getattr(group, name) != fields[name].default
    ]


def _unused_data(config: Config) -> Iterator[str]:
    data = config.data
    if data.temperature is not None and len(data.train) == 1:
        yield "data.temperature has no effect: there is only one training source"
    if data.document and not data.has_memory and _changed(data.document, "chunk_sentences"):
        yield "data.document.chunk_sentences has no effect: memory is none"
    held_out = data.valid_sets | {f"test.{name}": source for name, source in data.test.items()}
    for path, source in held_out.items():
        if _changed(source, "weight"):
            yield f"data.{path}.weight has no effect: only training sources are mixed"


def _unused_tokenizer(config: Config) -> Iterator[str]:
    tokenizer = config.tokenizer
    if tokenizer.path is None:
        return
    names = ("type", "vocab_size", "character_coverage", "byte_fallback")
    for name in _changed(tokenizer, *names, "num_sample_lines"):
        yield f"tokenizer.{name} has no effect: the tokenizer in tokenizer.path is trained already"


def _unused_model(config: Config) -> Iterator[str]:
    checkpointing = config.training.activation_checkpointing
    if checkpointing != "none" and getattr(config.model, "input_feeding", False):
        yield (
            f"training.activation_checkpointing {checkpointing} acts on the encoder alone: with "
            "model.input_feeding the decoder goes step by step"
        )
    positions: Any = getattr(config.model, "positions", None)
    if positions is None:
        return
    if positions.type in ADDS_TO_SCORES:
        for name, pattern in patterns_of(config.model).items():
            yield (
                f"model.{name} {pattern.type} saves no time and no memory with model.positions "
                f"{positions.type}, which adds to the scores: take rotary to have both"
            )
    longest = getattr(config.model, "num_sides_joined", 1) * config.data.filters.max_length
    if _changed(positions, "max_distance") and positions.max_distance >= longest:
        yield (
            f"model.positions.max_distance {positions.max_distance} is more than the distance of "
            f"any two of data.filters.max_length {longest} tokens: the farthest are never trained"
        )


def _unused_training(config: Config) -> Iterator[str]:
    training = config.training
    if training.init_from is None and _changed(training, "init_parts"):
        yield "training.init_parts has no effect: there is no training.init_from"
    warmup, steps = training.schedule.warmup_steps, training.max_steps
    is_whole = getattr(training.schedule, "warmup_share", None) is None  # else cut to a share
    if is_whole and steps is not None and warmup > steps:
        yield (
            f"training.schedule.warmup_steps {warmup} is more than training.max_steps {steps}: "
            "the learning rate never reaches its peak"
        )
    if training.checkpoints.average == "last" and training.checkpoints.keep_last == 1:
        yield (
            "training.checkpoints.average has no effect: only 1 checkpoint is kept; "
            "raise keep_last or set average to none"
        )
    if training.checkpoints.average == "best" and training.checkpoints.keep_best == 1:
        yield (
            "training.checkpoints.average has no effect: only 1 best checkpoint is kept; "
            "raise keep_best or set average to none"
        )


def _unused_validation(config: Config) -> Iterator[str]:
    validation = config.training.validation
    if config.data.guard is None and _changed(validation, "max_guard_drop"):
        yield "training.validation.max_guard_drop has no effect: there is no data.guard"
    if not validation.metrics:
        for name in _changed(validation, "beam_size", "num_samples"):
            yield (
                f"training.validation.{name} has no effect: metrics is empty, so nothing is "
                "translated during training"
            )


def _unused_decoding(config: Config) -> Iterator[str]:
    decoding = config.decoding
    if decoding.beam_size == 1:
        for name in _changed(decoding, "length_penalty", "length_penalty_kind"):
            yield f"decoding.{name} has no effect: beam_size 1 compares no hypotheses"
    elif decoding.length_penalty == 0 and _changed(decoding, "length_penalty_kind"):
        yield "decoding.length_penalty_kind has no effect: length_penalty is 0"
