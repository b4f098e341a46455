"""Settings of training: update rule, schedule, limits, validation and checkpoints."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from transformer_mt.config.base import PathText, PositiveInt, Settings, Share


class AdamSettings(Settings):
    """Adam (Kingma and Ba 2015), or AdamW when weight_decay is decoupled (Loshchilov 2019)."""

    type: Literal["adam", "adamw"] = "adam"
    beta1: Share = 0.9
    """Decay of the mean of gradients."""
    beta2: Share = 0.98
    """Decay of the mean of squared gradients."""
    eps: Annotated[float, Field(gt=0)] = 1e-9
    """Added to the root of the mean square."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """On matrices only; `adam` adds it to the gradient, `adamw` shrinks the weights."""


class MuonSettings(Settings):
    """Muon (Jordan et al. 2024) for the matrices of the layers, AdamW for all other weights.

    The matrices' updates are scaled to the size of AdamW's (Liu et al. 2025), so that both use
    learning rates of the same order.
    """

    type: Literal["muon"]
    momentum: Share = 0.95
    """Decay of the mean of gradients of the matrices."""
    adamw_lr_ratio: Annotated[float, Field(gt=0)] = 1.0
    """Learning rate of embeddings, norms and biases, as a share of that of the matrices."""
    beta1: Share = 0.9
    """AdamW: decay of the mean of gradients."""
    beta2: Share = 0.98
    """AdamW: decay of the mean of squared gradients."""
    eps: Annotated[float, Field(gt=0)] = 1e-9
    """AdamW: added to the root of the mean square."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Shrinks all matrices, those of AdamW included."""


Optimizer = Annotated[AdamSettings | MuonSettings, Field(discriminator="type")]


class NoamSchedule(Settings):
    """Equation 3 of Vaswani et al. 2017.

    lr = scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)
    """

    type: Literal["noam"]
    warmup_steps: PositiveInt = 4000
    """Steps of linear rise."""
    scale: Annotated[float, Field(gt=0)] = 1.0
    """Factor on the paper's formula."""


class InverseSqrtSchedule(Settings):
    """Linear rise to `training.lr`, then lr * sqrt(warmup / step)."""

    type: Literal["inverse_sqrt"]
    warmup_steps: PositiveInt = 4000
    """Steps of linear rise."""


class LinearSchedule(Settings):
    """Linear rise to `training.lr`, then a straight line to `final_share` of it at the end."""

    type: Literal["linear"]
    warmup_steps: Annotated[int, Field(ge=0)] = 1000
    """Steps of linear rise."""
    final_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of `training.lr` at the end of the run."""


class CosineSchedule(Settings):
    """Linear rise to `training.lr`, then half a cosine to `final_share` of it at the end."""

    type: Literal["cosine"]
    warmup_steps: Annotated[int, Field(ge=0)] = 1000
    """Steps of linear rise."""
    final_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of `training.lr` at the end of the run."""


class ConstantSchedule(Settings):
    """Linear rise to `training.lr`, then no change."""

    type: Literal["constant"]
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Steps of linear rise."""


class WsdSchedule(Settings):
    """Warm-up, stable, decay: linear rise, constant, then a straight line to zero at the end."""

    type: Literal["wsd"]
    warmup_steps: Annotated[int, Field(ge=0)] = 1000
    """Steps of linear rise."""
    decay_share: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Share of the whole run that the fall takes."""


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
    """Small updates at first, doubled until they have `training.max_tokens`.

    The learning rate follows its schedule all the same.
    """

    start_tokens: PositiveInt
    """Target tokens of the first updates."""
    steps: PositiveInt
    """Updates until all have `training.max_tokens`; they double at equal intervals before."""


MetricName = Literal["bleu", "chrf", "ter"]


class ValidationSettings(Settings):
    """How the model is watched during training."""

    every_steps: PositiveInt = 1000
    """Validate and save a checkpoint after so many updates, and at the end."""
    min_validations: Annotated[int, Field(ge=0)] = 5
    """Validate at least this many times, at equal shares of `max_minutes`, however slow the
    machine, as long as that takes no more than a sixth of the time."""
    metrics: list[MetricName] = Field(default=["bleu", "chrf"])
    """Scores of the translated validation set; an empty list validates by loss alone."""
    beam_size: PositiveInt | None = None
    """Beam of these translations; default `decoding.beam_size`."""
    select_by: Literal["loss", "bleu", "chrf", "ter"] = "bleu"
    """What decides which checkpoint is best; also what `patience` watches."""
    patience: PositiveInt | None = None
    """Stop after so many validations without a new best; default never."""
    num_samples: Annotated[int, Field(ge=0)] = 3
    """Translations to show and keep at each validation."""

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
    """Which checkpoints are kept, and which are averaged at the end."""

    keep_last: PositiveInt = 5
    """Newest checkpoints to keep."""
    keep_best: PositiveInt = 1
    """Best checkpoints to keep, besides the newest."""
    average: Literal["last", "best", "none"] = "last"
    """At the end, score the average of the kept last or best weights on the validation set; it
    becomes the final model if it is better: if its loss is worse, by at least 0.2 points."""


def _size_of_update(value: object) -> object:
    if value == "auto":
        raise ValueError(
            "the size of an update decides what is learned, so it is not found by trying: set "
            "micro_batch_tokens to auto, and max_tokens to the target tokens of an update"
        )
    return value


class TrainingSettings(Settings):
    """How the model is trained."""

    retired: ClassVar[dict[str, str]] = {"cuda_graph": "training.compile"}

    max_tokens: Annotated[PositiveInt, BeforeValidator(_size_of_update)] = 25_000
    """Target tokens of one update over all devices; no batch has more source tokens either."""
    micro_batch_tokens: PositiveInt | Literal["auto"] | None = None
    """Target tokens one device takes at once; an update accumulates as many of them as fill
    `max_tokens`. `auto` finds the most that fit the memory of the device. Default: the whole
    update, shared among the devices."""
    batch_warmup: BatchWarmupSettings | None = None
    """Begin with smaller updates; default none."""
    static_shape: bool = False
    """Pad every micro-batch to the same number of rows on both sides, the smallest multiple of 32
    above its budget of tokens: all matrix products then have one shape, and all ranks equal work.
    Without it, to the next multiple of 32."""
    lr: Annotated[float, Field(gt=0)] | None = None
    """Peak learning rate; every schedule but `noam` needs it."""
    schedule: Schedule = NoamSchedule(type="noam")
    """Learning rate over the run."""
    optimizer: Optimizer = AdamSettings()
    """Update rule."""
    label_smoothing: Share = 0.1
    """Share of the target probability spread evenly over the vocabulary (Szegedy et al. 2016)."""
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    """Greatest global norm of the gradient; default no clipping."""
    activation_checkpointing: Literal["none", "layers", "selective"] = "none"
    """Saves memory by computing parts of the forward pass twice: whole layers, or (`selective`)
    only what is cheap: norms, activations, dropout. The result is the same."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """How several processes share the work: each has all weights (`ddp`), or each has a share of
    weights, gradients and optimizer state (`fsdp`)."""
    rank_timeout_minutes: Annotated[float, Field(gt=0)] = 10.0
    """A process that does not answer the others for so long is given up, and all stop."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
    """Arithmetic of matrix products; weights and optimizer stay in fp32. `auto` takes bf16 on a GPU
    (CUDA) that has it, fp16 on an older one, and else fp32, also on processors with instructions
    for bf16, where `bf16` is faster. On CUDA products of fp32 are TF32."""
    weights: Literal["fp32", "bf16"] = "fp32"
    """Type of the weights that the layers compute with. `bf16`, for precision bf16 (or auto,
    where that is bf16): they and all activations are in bf16, as a copy that is made anew for each
    update; the weights that are updated and kept, and the optimizer, stay in fp32 all the same."""
    compile: Literal["auto", "layers", "none"] = "auto"
    """Put each layer and the loss through torch.compile: fewer, larger operators, after some
    seconds to make them. auto does so on CUDA alone, and never with attention patterns; on the CPU
    attention is faster without."""
    deterministic: bool = False
    """Take only operators that give the same result each time, also on CUDA, where that is slower.
    On the CPU all do, with the same versions, processor and number of threads; this setting keeps
    that number also while other programs use the machine."""
    device: Literal["auto", "cuda", "mps", "cpu"] = "auto"
    """Where to compute; auto takes the first that is there, in this order."""
    max_steps: PositiveInt | None = None
    """Stop after so many updates."""
    max_epochs: Annotated[float, Field(gt=0)] | None = None
    """Stop after so many passes over the data."""
    max_total_tokens: PositiveInt | None = None
    """Stop after so many target tokens."""
    max_minutes: Annotated[float, Field(gt=0)] | None = None
    """Stop after so many minutes of training, validation included."""
    validation: ValidationSettings = ValidationSettings()
    """How the model is watched."""
    checkpoints: CheckpointSettings = CheckpointSettings()
    """What is kept."""
    log_every_steps: PositiveInt = 50
    """Write a line of metrics after so many updates."""
    max_rollbacks: Annotated[int, Field(ge=0)] = 2
    """How often a run that diverges may go back to its last sound checkpoint, with half the
    learning rate; then it stops with exit code 5."""
    tensorboard: bool = False
    """Also write TensorBoard files (needs the `tensorboard` extra)."""
    runs_dir: PathText = "runs"
    """Folder of all runs; this one is in `runs_dir/name`."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse schedules without their rate, runs without an end, parts beyond the whole."""
        schedule = self.schedule.type
        if schedule == "noam" and self.lr is not None:
            yield (
                "lr",
                "has no effect with schedule noam, which follows the paper's formula: set "
                "schedule.scale, or take schedule inverse_sqrt",
            )
        if schedule != "noam" and self.lr is None:
            yield "lr", f"missing: schedule {schedule} needs its peak learning rate"
        limits = (self.max_steps, self.max_epochs, self.max_total_tokens, self.max_minutes)
        if all(limit is None for limit in limits):
            yield "", "set at least one of max_steps, max_epochs, max_total_tokens, max_minutes"
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
        """Target tokens that each device takes at once at least, if it is alone."""
        warmup = self.batch_warmup
        return (
            self.largest_batch if warmup is None else min(self.largest_batch, warmup.start_tokens)
        )

    @property
    def largest_batch(self) -> int:
        """Bound on the target tokens that a device takes at once, as far as the settings say."""
        given = self.micro_batch_tokens
        return given if isinstance(given, int) else self.max_tokens
