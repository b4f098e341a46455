"""Settings of training: optimizer, learning-rate schedule, limits, validation, checkpoints."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from transformer_mt.config.base import PathText, PositiveInt, Settings, Share


class AdamSettings(Settings):
    """Adam (Kingma and Ba 2015), or AdamW when weight_decay is decoupled (Loshchilov 2019)."""

    type: Literal["adam", "adamw"] = "adam"
    beta1: Share = 0.9
    """Decay rate of the mean of gradients."""
    beta2: Share = 0.98
    """Decay rate of the mean of squared gradients."""
    eps: Annotated[float, Field(gt=0)] = 1e-9
    """Added to the denominator."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Weight decay of matrices: L2 regularization with `adam`, decoupled with `adamw`."""


class MuonSettings(Settings):
    """Muon (Jordan et al. 2024) for the matrices of the layers, AdamW for all other weights.

    Updates of matrices are scaled to the RMS of AdamW's (Liu et al. 2025), so that both use
    learning rates of the same order.
    """

    type: Literal["muon"]
    momentum: Share = 0.95
    """Momentum of the gradients of matrices."""
    adamw_lr_ratio: Annotated[float, Field(gt=0)] = 1.0
    """Ratio of the learning rate of embeddings, norms and biases to that of the matrices."""
    beta1: Share = 0.9
    """AdamW: decay rate of the mean of gradients."""
    beta2: Share = 0.98
    """AdamW: decay rate of the mean of squared gradients."""
    eps: Annotated[float, Field(gt=0)] = 1e-9
    """AdamW: added to the denominator."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled weight decay of all matrices, incl. those of AdamW."""


Optimizer = Annotated[AdamSettings | MuonSettings, Field(discriminator="type")]


class NoamSchedule(Settings):
    """Equation 3 of Vaswani et al. 2017.

    lr = scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)
    """

    type: Literal["noam"]
    warmup_steps: PositiveInt = 4000
    """Linear warmup, in updates."""
    scale: Annotated[float, Field(gt=0)] = 1.0
    """Factor on the formula."""


class InverseSqrtSchedule(Settings):
    """Linear warmup to `training.lr`, then lr * sqrt(warmup_steps / step)."""

    type: Literal["inverse_sqrt"]
    warmup_steps: PositiveInt = 4000
    """Linear warmup, in updates."""


class LinearSchedule(Settings):
    """Linear warmup to `training.lr`, then linear decay to `final_share` of it."""

    type: Literal["linear"]
    warmup_steps: Annotated[int, Field(ge=0)] = 1000
    """Linear warmup, in updates."""
    warmup_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the run after which the warm-up ends at the latest. Default: none."""
    final_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Final learning rate as a share of `training.lr`."""


class CosineSchedule(Settings):
    """Linear warmup to `training.lr`, then cosine decay to `final_share` of it."""

    type: Literal["cosine"]
    warmup_steps: Annotated[int, Field(ge=0)] = 1000
    """Linear warmup, in updates."""
    warmup_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the run after which the warm-up ends at the latest. Default: none."""
    final_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Final learning rate as a share of `training.lr`."""


class ConstantSchedule(Settings):
    """Linear warmup to `training.lr`, then constant."""

    type: Literal["constant"]
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Linear warmup, in updates."""


class WsdSchedule(Settings):
    """Warmup, stable, decay: linear warmup, constant, then linear decay to zero."""

    type: Literal["wsd"]
    warmup_steps: Annotated[int, Field(ge=0)] = 1000
    """Linear warmup, in updates."""
    warmup_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the run after which the warm-up ends at the latest. Default: none."""
    decay_share: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Share of the run that the decay takes."""


Schedule = Annotated[
    NoamSchedule
    | InverseSqrtSchedule
    | LinearSchedule
    | CosineSchedule
    | ConstantSchedule
    | WsdSchedule,
    Field(discriminator="type"),
]


class BatchWarmupSettings(Settings):
    """Batch-size warmup: small updates at first, doubled until they have `training.max_tokens`.

    The learning rate follows its schedule unchanged.
    """

    start_tokens: PositiveInt
    """Target tokens of the first updates."""
    steps: PositiveInt
    """Updates until the full size; it doubles at equal intervals."""


MetricName = Literal["bleu", "chrf", "chrfpp", "ter", "cer", "wer", "exact"]
METRIC_LABELS: Mapping[MetricName, str] = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "chrfpp": "chrF++",
    "ter": "TER",
    "cer": "CER",
    "wer": "WER",
    "exact": "exact",
}
"""How metrics are written."""


class ValidationSettings(Settings):
    """Validation during training, model selection and early stopping."""

    every_steps: PositiveInt = 1000
    """Validate and save a checkpoint every N updates, and at the end."""
    min_validations: Annotated[int, Field(ge=0)] = 5
    """Least number of validations in a run limited by time, unless they need over a sixth of it."""
    metrics: list[MetricName] = Field(default=["bleu", "chrf"])
    """Metrics of the translated validation set; empty: only the loss is computed."""
    beam_size: PositiveInt | None = None
    """Beam width for these translations. Default: `decoding.beam_size`."""
    select_by: Literal["loss"] | MetricName = "bleu"
    """Metric that selects the best checkpoint, and that `patience` refers to."""
    max_guard_drop: Annotated[float, Field(ge=0)] = 1.0
    """Greatest loss of `select_by` on `data.guard` against the model that the run begins with, in
    points, or in nats for `loss`: weights that lose more are not selected."""
    patience: PositiveInt | None = None
    """Early stopping: stop after N validations without improvement. Default: off."""
    num_samples: Annotated[int, Field(ge=0)] = 3
    """Number of sample translations to log at each validation."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse selection by a metric that is not computed."""
        if self.select_by != "loss" and self.select_by not in self.metrics:
            yield (
                "select_by",
                f"{self.select_by} is not in metrics: add it there, or set select_by to "
                + " or ".join(["loss", *self.metrics]),
            )
        if len(set(self.metrics)) < len(self.metrics):
            yield "metrics", "names a metric twice"


class CheckpointSettings(Settings):
    """Retention and averaging of checkpoints."""

    keep_last: PositiveInt = 5
    """Number of newest checkpoints to keep."""
    keep_best: PositiveInt = 1
    """Number of best checkpoints to keep, besides the newest."""
    average: Literal["last", "best", "none"] = "last"
    """Checkpoint averaging at the end: average the last or the best kept checkpoints, and use the
    average as the final model if its validation score is better (if its loss is worse, by at least
    0.2 points)."""


def _size_of_update(value: object) -> object:
    if value == "auto":
        raise ValueError(
            "the size of an update decides what is learned, so it is not found by trying: set "
            "micro_batch_tokens to auto, and max_tokens to the target tokens of an update"
        )
    return value


LIMITS = ("max_steps", "max_epochs", "max_total_tokens", "max_minutes", "budget_minutes")
"""Settings that end a run."""


class TrainingSettings(Settings):
    """Training: optimizer, schedule, limits, validation, checkpoints, hardware."""

    retired: ClassVar[dict[str, str]] = {
        "cuda_graph": "training.compile",
        "static_shape": "padding of each micro-batch to a multiple of 32 rows",
    }

    max_tokens: Annotated[PositiveInt, BeforeValidator(_size_of_update)] = 25_000
    """Batch size: target tokens of an update over all devices, and maximum source tokens."""
    micro_batch_tokens: PositiveInt | Literal["auto"] | None = None
    """Gradient accumulation: target tokens of a micro-batch, the batch that a device computes at
    once. `auto`: the largest that fits in memory. Default: the whole update, divided among the
    devices."""
    batch_warmup: BatchWarmupSettings | None = None
    """Batch-size warmup. Default: none."""
    lr: Annotated[float, Field(gt=0)] | None = None
    """Peak learning rate; required by every schedule except `noam`."""
    schedule: Schedule = NoamSchedule(type="noam")
    """Learning-rate schedule."""
    optimizer: Optimizer = AdamSettings()
    """Optimizer."""
    label_smoothing: Share = 0.1
    """Label smoothing: probability spread evenly over the vocabulary (Szegedy et al. 2016)."""
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    """Gradient clipping: maximum global norm. Default: none."""
    activation_checkpointing: Literal["none", "layers", "selective"] = "none"
    """Activation (gradient) checkpointing: recompute activations in the backward pass to save
    memory: whole layers, or only what is cheap (`selective`: norms, activations, dropout). The
    result is the same."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """Data parallelism of several processes: replicated weights (`ddp`), or sharded weights,
    gradients and optimizer state (`fsdp`)."""
    rank_timeout_minutes: Annotated[float, Field(gt=0)] = 10.0
    """Timeout of a process that does not respond; all processes then stop."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
    """Mixed precision: type of matrix products; weights and optimizer state stay in fp32. `auto`:
    bf16 on CUDA GPUs that support it, fp16 on older ones, fp32 elsewhere, also on processors with
    bf16 instructions, where `bf16` is faster. On CUDA, fp32 products use TF32."""
    weights: Literal["fp32", "bf16"] = "fp32"
    """Type of the weights that layers compute with. `bf16`, for precision bf16 (or auto where that
    is bf16): layers use a bf16 copy, made for each update, and activations are bf16; the master
    weights and the optimizer state stay in fp32."""
    compile: Literal["auto", "layers", "none"] = "auto"
    """Compile each layer and the loss with torch.compile. `auto`: on CUDA only, and never with
    attention patterns; on the CPU attention is faster without."""
    deterministic: bool = False
    """Use only deterministic operators, also on CUDA, where they are slower. On the CPU all are,
    with the same versions, processor and number of threads; this setting fixes the number of
    threads even if other programs use the machine."""
    device: Literal["auto", "cuda", "mps", "cpu"] = "auto"
    """Device; auto: the first of cuda, mps, cpu that exists."""
    init_from: PathText | None = None
    """Warm start: directory of a model or run whose weights the run begins with; its tokenizer is
    taken over, and its `model` settings where the config has none. Default: random weights."""
    init_parts: Literal["all", "encoder", "decoder", "embeddings"] = "all"
    """Which weights are taken from `init_from`; the others are random."""
    freeze: list[str] = Field(default=[])
    """Weights that are not trained: names or patterns such as `encoder` or `*.embedding`."""
    lora_rank: PositiveInt | None = None
    """Low-rank adaptation (Hu et al. 2022): train products of this rank, added to the matrices of
    the layers, and nothing else; the model has ordinary weights. Default: train all weights."""
    lora_embeddings: bool = False
    """Whether the embeddings, too, learn by products of `lora_rank`."""
    max_steps: PositiveInt | None = None
    """Maximum number of updates."""
    max_epochs: Annotated[float, Field(gt=0)] | None = None
    """Maximum number of epochs."""
    max_total_tokens: PositiveInt | None = None
    """Maximum number of target tokens."""
    max_minutes: Annotated[float, Field(gt=0)] | None = None
    """Maximum training time in minutes, incl. validation."""
    budget_minutes: Annotated[float, Field(gt=0)] | None = None
    """Minutes for the whole run, from preparing data to the average; set by `--budget`."""
    validation: ValidationSettings = ValidationSettings()
    """Validation, model selection and early stopping."""
    checkpoints: CheckpointSettings = CheckpointSettings()
    """Retention and averaging of checkpoints."""
    log_every_steps: PositiveInt = 50
    """Log metrics every N updates."""
    max_rollbacks: Annotated[int, Field(ge=0)] = 2
    """Number of times that a diverging run returns to its last good checkpoint with half the
    learning rate; after that it stops with exit code 5."""
    tensorboard: bool = False
    """Write TensorBoard files (needs the `tensorboard` extra)."""
    trackio: str | None = None
    """Project of trackio, in its local database, to log metrics to (needs the `trackio` extra)."""
    runs_dir: PathText = "runs"
    """Directory of all runs; this one is `runs_dir/name`."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse schedules without their rate, runs without an end, parts beyond the whole."""
        if self.lora_rank is not None and self.init_from is None:
            yield "lora_rank", "adapts a finished model, but there is none: set init_from"
        if self.lora_embeddings and self.lora_rank is None:
            yield "lora_embeddings", "has no effect without lora_rank: set that, too"
        schedule = self.schedule.type
        if schedule == "noam" and self.lr is not None:
            yield (
                "lr",
                "has no effect with schedule noam, which follows the paper's formula: set "
                "schedule.scale, or take schedule inverse_sqrt",
            )
        if schedule != "noam" and self.lr is None:
            yield "lr", f"missing: schedule {schedule} needs its peak learning rate"
        if all(getattr(self, limit) is None for limit in LIMITS):
            yield "", f"set at least one of {', '.join(LIMITS[:4])}"
        if self.parallel == "fsdp" and self.precision == "fp16":
            yield "parallel", "fsdp has no loss scaling for precision fp16: take bf16, or ddp"
        # What auto is depends on the device: `choose_precision` checks it there.
        if self.weights == "bf16" and self.precision not in ("bf16", "auto"):
            yield "weights", f"bf16 goes with precision bf16, not with {self.precision}: set both"
        if self.parallel == "fsdp" and self.weights == "bf16":
            yield "parallel", "fsdp has no weights bf16: set weights to fp32, or take ddp"
        if self.parallel == "fsdp" and self.optimizer.type == "muon":
            yield "parallel", "fsdp has no whole matrices for optimizer muon: take adamw, or ddp"
        if self.largest_batch > self.max_tokens:
            yield (
                "micro_batch_tokens",
                f"{self.micro_batch_tokens} is more than max_tokens {self.max_tokens}, the whole "
                "update",
            )
        if self.batch_warmup is not None and self.batch_warmup.start_tokens >= self.max_tokens:
            yield (
                "batch_warmup.start_tokens",
                f"{self.batch_warmup.start_tokens} is not less than max_tokens {self.max_tokens}",
            )

    @property
    def least_batch(self) -> int:
        """Minimum target tokens of a micro-batch, with one device."""
        warmup = self.batch_warmup
        return (
            self.largest_batch if warmup is None else min(self.largest_batch, warmup.start_tokens)
        )

    @property
    def largest_batch(self) -> int:
        """Maximum target tokens of a micro-batch, as far as the settings say."""
        given = self.micro_batch_tokens
        return given if isinstance(given, int) else self.max_tokens
