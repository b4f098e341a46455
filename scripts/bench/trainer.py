"""MarianMT as a contestant of `peers`, trained with Seq2SeqTrainer of Hugging Face."""

import contextlib
import sys
import tempfile
import time
from typing import Any

import torch
from comparison import Run
from peer_models import fresh_hugging_face, plain_transformer
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, TrainerCallback

from transformer_mt.benchmarks import machine
from transformer_mt.benchmarks.training import LEAST_UPDATES, WARMUP_SHARE, read_data
from transformer_mt.config.schema import Config
from transformer_mt.text.special_ids import BOS_ID, PAD_ID


class Collator:
    """Makes padded batches.

    Attributes:
        seen: Of each batch: target tokens, tokens of both sides, positions of both sides.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, int]] = []

    def __call__(self, rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        """Make a batch, and note how much of it is real."""
        src = _padded([row["input_ids"] for row in rows], PAD_ID)
        labels = _padded([row["labels"] for row in rows], -100)
        num_tokens = int((labels != -100).sum())
        real = num_tokens + int((src != PAD_ID).sum())
        self.seen.append((num_tokens, real, src.numel() + labels.numel()))
        shifted = labels[:, :-1].masked_fill(labels[:, :-1] == -100, PAD_ID)
        return {
            "input_ids": src,
            "attention_mask": (src != PAD_ID).long(),
            "labels": labels,
            "decoder_input_ids": torch.cat([torch.full_like(labels[:, :1], BOS_ID), shifted], 1),
        }


def _padded(rows: list[list[int]], value: int) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(row) for row in rows], batch_first=True, padding_value=value
    )


class Clock(TrainerCallback):
    """Ends the training when the time is over.

    Attributes:
        times: When each update ended.
    """

    def __init__(self, seconds: float) -> None:
        self.times: list[float] = []
        self._seconds = seconds

    def on_step_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        """Note the time; stop the training when it is over."""
        self.times.append(time.perf_counter())
        enough = len(self.times) > 2 * LEAST_UPDATES
        if enough and self.times[-1] - self.times[0] > (1 + WARMUP_SHARE) * self._seconds:
            control.should_training_stop = True


def measure_trainer(config: Config, seconds: float) -> Run:
    """Train in this process for some seconds, and report what `tmt bench train` reports."""
    data = read_data(config)
    (corpus,) = data.mixture.corpora
    pairs = [[side.tolist() for side in corpus.pair(row)] for row in range(len(corpus))]
    num_targets = sum(len(tgt) for _, tgt in pairs)
    torch.manual_seed(config.seed)
    model = fresh_hugging_face(plain_transformer(config.model), data.tokenizers.tgt.vocab_size)
    collator, clock = Collator(), Clock(seconds)
    with (
        tempfile.TemporaryDirectory(prefix="tmt-bench-") as folder,
        contextlib.redirect_stdout(sys.stderr),  # it prints a summary
    ):
        Seq2SeqTrainer(
            model=model,
            args=_arguments(config, folder, sentences_per_token=len(pairs) / num_targets),
            train_dataset=[{"input_ids": src, "labels": tgt} for src, tgt in pairs],
            data_collator=collator,
            callbacks=[clock],
        ).train()
    times = clock.times
    warm = sum(t - times[0] <= WARMUP_SHARE * seconds for t in times)
    warm = min(max(warm, LEAST_UPDATES), len(times) - 1)
    done = collator.seen[warm : len(times)]  # the loader may be a batch ahead
    elapsed = times[-1] - times[warm - 1]
    num_tokens, real, positions = (sum(counts) for counts in zip(*done, strict=True))
    return {
        "tokens_per_second": num_tokens / elapsed,
        "step_seconds": elapsed / len(done),
        "tokens_per_step": num_tokens / len(done),
        "padding_share": 1 - real / positions,
        "peak_memory_bytes": machine.peak_memory_bytes(torch.device("cpu")),
        "num_parameters": model.num_parameters(only_trainable=True),
        "seconds": elapsed,
        "steps": len(done),
    }


def _arguments(
    config: Config, folder: str, *, sentences_per_token: float
) -> Seq2SeqTrainingArguments:
    """Give a batch as many sentences as the budget of the config holds on average."""
    return Seq2SeqTrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=max(1, round(config.training.max_tokens * sentences_per_token)),
        max_steps=1_000_000,
        learning_rate=1e-4,
        label_smoothing_factor=0.1,
        train_sampling_strategy="group_by_length",
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        remove_unused_columns=False,
        bf16=config.training.precision == "bf16",
        use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True,
        seed=config.seed,
    )
