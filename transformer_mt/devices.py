"""Devices, their precision (mixed precision), and the memory of processors."""

import ctypes
import logging
import os
import sys
from functools import cache, partial

import torch

from transformer_mt.config.training import TrainingSettings
from transformer_mt.errors import ConfigError
from transformer_mt.nn.kernels.capability import multiplies_fast

logger = logging.getLogger(__name__)

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def choose_device(
    wanted: str, *, local_rank: int = 0, setting: str = "training.device"
) -> torch.device:
    """Return the device to compute on.

    Args:
        wanted: `cuda`, `cuda:N`, `mps`, `cpu`, or `auto`: the first that is there.
        local_rank: Number of this process on its machine; each gets its own CUDA device.
        setting: What the user set, for messages.

    Raises:
        ConfigError: If the wanted device is not there.
    """
    device = _found(wanted, local_rank, setting)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def choose_devices(wanted: str, *, setting: str) -> list[torch.device]:
    """Return several devices, for a process each; touches none of them.

    Args:
        wanted: Names with commas between them; a bare number is that of a CUDA device; `all`: all
            CUDA devices.
        setting: What the user set, for messages.

    Raises:
        ConfigError: If one is not there, or they are of several kinds: the text of a sentence
            would depend on which of them took it.
    """
    names = [name.strip() for name in wanted.split(",")]
    if names == ["all"]:
        names = [f"cuda:{i}" for i in range(max(1, torch.cuda.device_count()))]
    devices = [_found(f"cuda:{name}" if name.isdecimal() else name, 0, setting) for name in names]
    if len(kinds := sorted({device.type for device in devices})) > 1:
        raise ConfigError(
            f"{setting} {wanted}: expected devices of one kind, got {' and '.join(kinds)}: they "
            "round differently, and the text would depend on which one took a sentence"
        )
    return devices


def _found(wanted: str, local_rank: int, setting: str) -> torch.device:
    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if wanted == "auto":
        wanted = next(name for name in there if there[name])
    kind, _, number = wanted.partition(":")
    if not there.get(kind) or (number and (kind != "cuda" or not number.isdecimal())):
        found = ", ".join(name for name in there if there[name])
        raise ConfigError(
            f"{setting}: '{wanted}' is not there; this machine and this build of torch "
            f"({torch.__version__}) have: {found}. Set {setting} to one of these or to auto"
        )
    if kind != "cuda":
        return torch.device(kind)
    index = int(number) if number else local_rank
    if index >= torch.cuda.device_count():
        raise ConfigError(
            f"{setting}: CUDA device {index} is not there: this machine has "
            f"{torch.cuda.device_count()}, and each process on it needs its own"
        )
    return torch.device("cuda", index)


def choose_precision(settings: TrainingSettings, device: torch.device) -> str:
    """Return the precision of a run on a device, fp32, bf16 or fp16; see `training.precision`.

    Raises:
        ConfigError: If weights in bf16 are wanted, and the precision is another.
    """
    precision = (
        _best_precision(settings, device) if settings.precision == "auto" else (settings.precision)
    )
    if settings.weights == "bf16" and precision != "bf16":
        raise ConfigError(
            f"training.weights: bf16 goes with precision bf16, and training.precision "
            f"{settings.precision} is {precision} on {device}: set training.precision to bf16, or "
            "training.weights to fp32"
        )
    return precision


def _best_precision(settings: TrainingSettings, device: torch.device) -> str:
    if device.type != "cuda":
        return "fp32"
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return "bf16"
    has_scaling = settings.parallel != "fsdp"
    return "fp16" if has_scaling and multiplies_fast(torch.float16, device) else "fp32"


def multiply_fast(device: torch.device) -> None:
    """Let fp32 products on CUDA take tensor cores, by TF32: 10 bits of each factor, as in fp16."""
    if device.type == "cuda":
        # torch has two interfaces for it, and refuses programs that use both.
        torch.set_float32_matmul_precision("high")


def check_precision(precision: str, device: torch.device) -> None:
    """Make sure that a device can multiply in a precision; warn if it does so slowly.

    Raises:
        ConfigError: If it cannot.
    """
    warn_of_slow_precision(precision, device, setting="training.precision")
    if precision == "bf16" and device.type == "cuda":
        has_it = torch.cuda.is_bf16_supported(including_emulation=False)
    elif precision == "bf16" and device.type == "mps":
        has_it = torch.backends.mps.is_macos_or_newer(14, 0)
    else:
        return
    if not has_it:
        raise ConfigError(
            f"training.precision: {device} has no bf16: set training.precision to fp16 or fp32"
        )


def warn_of_slow_precision(precision: str, device: torch.device, *, setting: str) -> None:
    """Warn of a precision for which a processor or a CUDA GPU has no instructions.

    Args:
        precision: `fp32`, `bf16`, `fp16` or `int8`.
        device: Where products are computed.
        setting: What the user set, for the message.
    """
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    if dtype is None or device.type not in ("cpu", "cuda") or multiplies_fast(dtype, device):
        return
    kind = "processor" if device.type == "cpu" else "GPU"
    logger.warning(
        "%s %s: this %s has no %s instructions, which makes it several times slower than fp32: use "
        "fp32",
        setting,
        precision,
        kind,
        precision,
    )


def prepare_threads(number: int | None) -> None:
    """Set the number of threads, and let processes that are forked from this one compute, too."""
    if number is not None:
        torch.set_num_threads(number)
    _keep_forks_alive()


@cache
def _keep_forks_alive() -> None:
    # The threads of OpenMP do not survive a fork; a child that waited for them would hang.
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))


def keep_freed_memory() -> bool:
    """Let the C library use freed blocks of up to 32 MiB again instead of returning them.

    An update on the CPU allocates and frees hundreds of tensors of a few megabytes; the system
    clears every page of a block that it hands out again. Without this, system time is 2 % of the
    processor time of updates of a tiny model instead of 0.2 % (docs/log.md).

    Returns:
        True where this had an effect: with glibc on Linux.
    """
    # 32 MiB is the greatest threshold that every version of glibc accepts.
    return _set_thresholds(mmap=32 << 20, trim=2**31 - 1)


def give_freed_memory_back() -> bool:
    """Let the C library return blocks of more than 64 KiB to the system as soon as they are freed.

    Slower, but the memory of the process is then what is in use: for measurements.

    Returns:
        True where this had an effect: with glibc on Linux.
    """
    return _set_thresholds(mmap=1 << 16, trim=1 << 16) and bool(ctypes.CDLL(None).malloc_trim(0))


def _set_thresholds(*, mmap: int, trim: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, mmap) and mallopt(_M_TRIM_THRESHOLD, trim))
