"""A trial of training: real updates in a temporary folder, and the forecast that they allow."""

import math
import shutil
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from transformer_mt.benchmarks.machine import (
    peak_memory_bytes,
    run_for,
    synchronize,
)
from transformer_mt.bundle import Bundle, save_bundle, weights_of
from transformer_mt.config.schema import Config
from transformer_mt.data.batch_stream import Position
from transformer_mt.data.batches import uniform_batch
from transformer_mt.doctor.environment import existing
from transformer_mt.doctor.findings import Finding
from transformer_mt.doctor.forecast import Forecast, Speed, forecast
from transformer_mt.doctor.memory import memory_limit
from transformer_mt.evaluation import translate_and_score
from transformer_mt.training.micro_batches import ROW_MULTIPLE, largest_micro_batch
from transformer_mt.training.prepare_data import ValidationText
from transformer_mt.training.reporting import NoReporter
from transformer_mt.training.run import open_session
from transformer_mt.training.trainer import Trainer
from transformer_mt.training.validation import Validator, validation_search
from transformer_mt.translation.directions import directed
from transformer_mt.translation.translator import Translator

LEAST_UPDATES, LEAST_FOR_LOSS = 3, 12
NUM_PARTS = 4
"""Of the measured time, each with its mean loss."""
NUM_TRANSLATED = 200
"""Sentences of the validation set that are translated to measure its time."""
_IMPORT_SECONDS = 3.0
"""From the start of the program until torch is there."""
_END_SECONDS = 2.0
"""Of the picture and the result at the end of a run."""
_HIGH_LOSS = 1.2
"""Times the loss of guessing."""


def check_training(config: Config, *, seconds: float) -> Iterator[Finding]:
    """Make updates as a run does, and tell what the whole run will take.

    Args:
        config: All settings.
        seconds: For how long to make updates.

    Raises:
        TmtError: As training does.
    """
    with TemporaryDirectory(prefix="tmt-doctor-") as folder:
        training = config.training.model_copy(update={"runs_dir": folder, "tensorboard": False})
        own = config.model_copy(update={"training": training})
        opened_at = time.monotonic()
        with open_session(own, fresh=False) as session, closing(Trainer(session)) as trainer:
            start_seconds = time.monotonic() - opened_at
            trainer.close()
            trainer.reporter = NoReporter()
            with memory_limit():
                room = _room(trainer)
                found = None if room.status == "problem" else _updates(trainer, seconds=seconds)
            yield room
            if found is None:
                return
            speed, loss = found
            yield loss
            if loss.status == "problem":
                return
            yield _memory(trainer)
            measured = replace(speed, start_seconds=start_seconds + _IMPORT_SECONDS)
            measured = _pauses(trainer, Path(folder), measured)
        yield from _in_words(config, measured, forecast(config.training, measured))


def _room(trainer: Trainer) -> Finding:
    """Try the largest batch that a run can have, and smaller ones if it does not fit."""
    data, settings = trainer.session.data, trainer.settings
    split = trainer.updates.split(1 << 30)
    longest = min(max(data.mixture.longest()), split.tokens)
    usual = max(1, data.valid.pairs.num_tgt_tokens // len(data.valid.pairs))

    def fits(num_tokens: int) -> bool:
        """Try a batch of many usual sentences and a long one."""
        batch = uniform_batch(
            num_tokens,
            length=min(usual, num_tokens),
            longest=min(longest, num_tokens),
            row_multiple=ROW_MULTIPLE,
            patch_size=data.tokenizers.src.patch_size,
        )
        return trainer.updater.has_room_for(batch)

    facts = {"micro_batch_tokens": split.tokens}
    if fits(split.tokens):
        return Finding(
            "training", "memory", "ok", f"batches of {split.tokens:,} target tokens fit in memory",
            facts=facts,
        )  # fmt: skip
    largest = largest_micro_batch(settings.max_tokens, num_ranks=1, least=longest, fits=fits)
    return Finding(
        "training", "memory", "problem",
        f"out of memory with {split.tokens:,} target tokens at once; {largest:,} fit",
        f"set training.micro_batch_tokens to {largest}: the updates, and so the model, stay the "
        "same", facts={**facts, "largest_micro_batch_tokens": largest},
    )  # fmt: skip


def _updates(trainer: Trainer, *, seconds: float) -> tuple[Speed, Finding]:
    """Make updates for some time; return their speed, and whether the loss falls."""
    device, state = trainer.session.device, trainer.state

    def made() -> Generator[None]:
        """Make updates."""
        with closing(trainer.updates.after(state.step, Position())) as updates:
            for micro_batches, position in updates:
                trainer.update(micro_batches, position)
                if trainer.must_stop:  # a run would save now
                    raise KeyboardInterrupt
                yield

    losses, num_updates, elapsed = [], 0, 0.0
    with closing(made()) as updates:
        run_for(updates, seconds=0.1 * seconds, at_least=LEAST_UPDATES, device=device)
        before = state.num_tokens
        for _ in range(NUM_PARTS):
            trainer.updater.stats.reset()
            done, part = run_for(updates, seconds=seconds / NUM_PARTS, device=device)
            num_updates, elapsed = num_updates + len(done), elapsed + part
            facts = trainer.updater.facts()
            losses.append(math.nan if facts["num_unusable"] else facts["loss_nats"])
    num_tokens = state.num_tokens - before
    speed = Speed(
        start_seconds=0.0,
        step_seconds=elapsed / num_updates,
        step_tokens=num_tokens / num_updates,
        epoch_tokens=trainer.session.data.tokens_per_epoch,
        validation_seconds=0.0,
        checkpoint_seconds=0.0,
        bundle_seconds=0.0,
        end_seconds=_END_SECONDS,
        checkpoint_bytes=0,
        bundle_bytes=0,
    )
    vocab_size = trainer.session.data.tokenizers.tgt.vocab_size
    return speed, _loss(losses, num_updates, chance=math.log(vocab_size))


def _loss(losses: list[float], num_updates: int, *, chance: float) -> Finding:
    """Judge the mean losses of consecutive parts of the first updates, in nats."""
    first, last = losses[0], losses[-1]
    facts = {"updates": num_updates, "first_loss_nats": first, "last_loss_nats": last}
    text = f"loss {first:.2f} at the beginning, {last:.2f} at the end of {num_updates} updates"
    if not all(map(math.isfinite, losses)):
        return Finding(
            "training", "loss", "problem", "the loss is not finite within the first updates",
            "lower training.lr, lengthen the warm-up, or set training.clip_norm",
            exit_code=5, facts={"updates": num_updates},
        )  # fmt: skip
    if last > _HIGH_LOSS * chance and last > first:
        return Finding(
            "training", "loss", "problem", f"{text}: more than guessing ({chance:.2f})",
            "lower training.lr, or lengthen the warm-up", exit_code=5, facts=facts,
        )  # fmt: skip
    if num_updates < LEAST_FOR_LOSS:
        return Finding(
            "training", "loss", "ok", f"{text}: too few to judge; --seconds makes more",
            facts=facts,
        )  # fmt: skip
    if last >= first:
        return Finding(
            "training", "loss", "warning", f"{text}: it does not fall",
            "more updates (--seconds) may show it; else change training.lr or the warm-up",
            facts=facts,
        )  # fmt: skip
    return Finding("training", "loss", "ok", f"{text}: it falls", facts=facts)


def _memory(trainer: Trainer) -> Finding:
    device = trainer.session.device
    peak = peak_memory_bytes(device)
    return Finding(
        "training", "peak memory", "ok", f"{peak / 1e9:.1f} GB at most so far, on {device}",
        facts={"bytes": peak},
    )  # fmt: skip


def _pauses(trainer: Trainer, folder: Path, speed: Speed) -> Speed:
    """Measure what a run does between updates: checkpoints, models, validation."""
    device = trainer.session.device
    synchronize(device)
    started = time.monotonic()
    trainer.save()
    saved = time.monotonic()
    bundle = folder / "bundle"
    save_bundle(
        bundle,
        config=trainer.session.config,
        tokenizers=trainer.session.data.tokenizers,
        state_dict=weights_of(trainer.model),
        scores={},
    )
    written = time.monotonic()
    checkpoints = trainer.session.directory.checkpoints_dir
    return replace(
        speed,
        checkpoint_seconds=saved - started,
        bundle_seconds=written - saved,
        validation_seconds=_validation_seconds(trainer),
        checkpoint_bytes=_size(checkpoints),
        bundle_bytes=_size(bundle),
    )


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _validation_seconds(trainer: Trainer) -> float:
    """Measure a validation: its loss on all pairs, its translations on some of them.

    The model knows nothing yet and would write any number of tokens; so that the search takes its
    usual time, it must write as many as the references have.
    """
    session = trainer.session
    config, data = session.config, session.data
    autocast = trainer.updater.gradients.autocast
    started = time.monotonic()
    validation = config.training.validation.model_copy(update={"metrics": [], "num_samples": 0})
    training = config.training.model_copy(update={"validation": validation})
    alone = config.model_copy(update={"training": training})
    sets = [one for one in (data.valid, data.guard) if one is not None]
    for one in sets:
        own = replace(data, valid=one, guard=None)
        Validator(alone, own, device=session.device)(trainer.model, autocast())
    seconds = time.monotonic() - started
    if not config.training.validation.metrics:
        return seconds
    with autocast():
        return seconds + sum(
            _translation_seconds(trainer, text) for one in sets for text in one.texts
        )


def _translation_seconds(trainer: Trainer, text: ValidationText) -> float:
    """Estimate the seconds in which a set is translated and scored."""
    config, tokenizers = trainer.session.config, trainer.session.data.tokenizers
    source, target = text.direction
    bundle = Bundle(config=config, tokenizers=tokenizers, model=trainer.model)
    every = 1 if config.data.document else max(1, len(text.src) // NUM_TRANSLATED)
    src, tgt = text.src[::every][:NUM_TRANSLATED], text.tgt[::every][:NUM_TRANSLATED]
    lengths = [
        sum(len(ids) + 1 for ids in tokenizer.encode_batch(lines))
        for tokenizer, lines in ((tokenizers.src, src), (tokenizers.tgt, tgt))
    ]
    ratio = lengths[1] / max(1, lengths[0])
    options = replace(
        validation_search(config),
        min_length_ratio=ratio,
        max_length_factor=ratio,
        max_length_offset=2,
    )
    translator = Translator(directed(bundle, source=source, target=target), options)
    started = time.monotonic()
    translate_and_score(
        translator, src, tgt, metrics=config.training.validation.metrics, tgt_lang=target
    )
    return (time.monotonic() - started) * len(text.src) / len(src)


def _in_words(config: Config, speed: Speed, found: Forecast) -> Iterator[Finding]:
    """Report speed, time and disk."""
    tokens = speed.step_tokens / speed.step_seconds
    yield Finding(
        "training", "speed", "ok",
        f"{tokens:,.0f} target tokens/s, {speed.step_seconds:.3g} s an update; a validation takes "
        f"{speed.validation_seconds:.3g} s, a checkpoint {speed.checkpoint_seconds:.2g} s",
        facts={
            "tokens_per_second": tokens,
            "step_seconds": speed.step_seconds,
            "validation_seconds": speed.validation_seconds,
        },
    )  # fmt: skip
    early = " or early stopping" if config.training.validation.patience else ""
    yield Finding(
        "training", "time", "ok",
        f"{_duration(found.seconds)} until training.{found.limit}{early}: about {found.steps:,} "
        f"updates, {found.epochs:.3g} epochs, {found.validations:,} validations",
        facts={
            "hours": found.seconds / 3600, "seconds": found.seconds, "updates": found.steps,
            "epochs": found.epochs, "validations": found.validations, "limit": found.limit,
        },
    )  # fmt: skip
    warmup = config.training.schedule.warmup_steps
    if found.limit != "max_steps" and found.steps < 2 * warmup:
        yield Finding(
            "training", "warm-up", "warning",
            f"{warmup} of about {found.steps:,} updates are warm-up",
            f"set training.schedule.warmup_steps to {max(1, found.steps // 10)}, or train longer",
        )  # fmt: skip
    yield _disk(config, found)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def _disk(config: Config, found: Forecast) -> Finding:
    """Compare what the run will write with what is free."""
    folder = Path(config.training.runs_dir)
    free = shutil.disk_usage(existing(folder)).free
    text = (
        f"{found.disk_bytes / 1e6:,.0f} MB at the end, up to {found.peak_bytes / 1e6:,.0f} MB "
        f"before; {free / 1e6:,.0f} MB are free"
    )
    facts = {"bytes": found.disk_bytes, "peak_bytes": found.peak_bytes, "free_bytes": free}
    if found.peak_bytes > free:
        return Finding(
            "training", "disk", "problem", text,
            "make room, lower training.checkpoints.keep_last, or choose another training.runs_dir",
            facts=facts,
        )  # fmt: skip
    return Finding("training", "disk", "ok", text, facts=facts)
