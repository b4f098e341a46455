"""The ranks of a run: one process, or several that `torchrun` started.

With one process each function here does nothing, so that the trainer has one text for both.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from transformer_mt.errors import ConfigError

# Others wait for rank 0 while it prepares data or validates.
_PATIENCE = timedelta(hours=12)


@dataclass(frozen=True)
class World:
    """Which of how many processes this one is.

    Attributes:
        rank: Number of this process, from 0.
        size: Number of processes.
        local_rank: Number of this process on its machine; also the number of its CUDA device.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_main(self) -> bool:
        """True for the one process that writes files and messages."""
        return self.rank == 0

    def sum_numbers(self, numbers: Sequence[float]) -> list[float]:
        """Add numbers of all ranks on the processors, without waiting for any accelerator."""
        if self.size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(total)
        return [float(number) for number in total.tolist()]

    def sum_tensor(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over all ranks, on its device."""
        if self.size == 1:
            return tensor
        total = tensor.clone()
        dist.all_reduce(total)
        return total

    def gather_bytes(self, values: Tensor) -> list[Tensor]:
        """Return the uint8 tensors of all ranks in order; all equally long and on the processor."""
        if self.size == 1:
            return [values]
        gathered = [torch.empty_like(values) for _ in range(self.size)]
        dist.all_gather(gathered, values)
        return gathered

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """Let rank 0 run the block before the others do; they do not start if it fails."""
        failed = 0.0
        if not self.is_main:
            (failed,) = self.sum_numbers([0.0])
            if failed:
                raise SystemExit(1)
        try:
            yield
        except BaseException:
            failed = 1.0
            raise
        finally:
            if self.is_main:
                self.sum_numbers([failed])

    def replicate(self, model: nn.Module, device: torch.device) -> nn.Module:
        """Wrap a model so that its gradients become the mean over ranks in the backward pass."""
        if self.size == 1:
            return model
        return DistributedDataParallel(
            model,
            device_ids=[device.index] if device.type == "cuda" else None,
            gradient_as_bucket_view=True,
        )

    def exchange(self, model: nn.Module, *, now: bool) -> AbstractContextManager[None]:
        """Return a context for a backward pass; without `now`, gradients stay on their rank."""
        if isinstance(model, DistributedDataParallel) and not now:
            return model.no_sync()
        return nullcontext()


@contextmanager
def open_world() -> Iterator[World]:
    """Join the processes that `torchrun` started, if it did, and leave them at the end."""
    if "TORCHELASTIC_RUN_ID" not in os.environ and int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield World()
        return
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=_PATIENCE
    )
    try:
        yield World(
            rank=dist.get_rank(),
            size=dist.get_world_size(),
            local_rank=int(os.environ.get("LOCAL_RANK", "0")),
        )
    finally:
        dist.destroy_process_group()


def choose_device(
    wanted: str, *, local_rank: int = 0, setting: str = "training.device"
) -> torch.device:
    """Return the device to compute on.

    Args:
        wanted: `cuda`, `cuda:N`, `mps`, `cpu`, or `auto`: the first that is there.
        local_rank: Number of this process on its machine; each gets its own CUDA device.
        setting: What the user set, for messages.

    Raises:
        ConfigError: When the wanted device is not there.
    """
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
    torch.cuda.set_device(index)
    return torch.device("cuda", index)
