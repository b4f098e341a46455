"""Data parallelism: the ranks of a run, one process or several that `torchrun` started.

With one process each function here does nothing, so that the trainer has one code path.
"""

import logging
import os
import threading
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.fsdp import FSDPModule
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from transformer_mt.errors import TmtError, brief
from transformer_mt.training.signals import Interrupted, StopRequest

logger = logging.getLogger(__name__)

# Others wait for rank 0 while it prepares data, validates or saves.
_PATIENCE = timedelta(hours=12)

# How long the remaining ranks wait for those that are lost.
_ROLL_CALL = timedelta(seconds=5)

# Greatest difference between the times at which ranks learn that all have met.
_MOMENT_SECONDS = 1.0


@dataclass(frozen=True)
class World:
    """Which of how many processes this one is.

    Attributes:
        rank: Number of this process, from 0.
        size: Number of processes.
        local_rank: Number of this process on its machine; also the number of its CUDA device.
        waiting: The same processes, for exchanges that may have to wait for hours.
        replicas: Models whose gradients are exchanged.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    waiting: dist.ProcessGroup | None = None
    replicas: list[DistributedDataParallel] = field(default_factory=list, compare=False)

    @property
    def is_main(self) -> bool:
        """True for the one process that writes files and messages."""
        return self.rank == 0

    def sum_numbers(self, numbers: Sequence[float], *, patiently: bool = False) -> list[float]:
        """Add numbers of all ranks on the processors, without waiting for any accelerator.

        Args:
            numbers: As many on each rank.
            patiently: The others may be long in coming: rank 0 does something alone.
        """
        if self.size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(total, group=self.waiting if patiently else None)
        return [float(number) for number in total.tolist()]

    def wait_for_main(self) -> None:
        """Wait until rank 0 has done what it does alone, and is here, too."""
        self.sum_numbers([0.0], patiently=True)

    def check_equal(self, value: int, what: str) -> None:
        """Make sure that all ranks have the same number, such as a hash or a checksum.

        Raises:
            TmtError: On all ranks, if one has another than rank 0; names the ranks.
        """
        mine = torch.tensor([value], dtype=torch.int64).view(torch.uint8)
        values = [int(part.view(torch.int64)) for part in self.gather_bytes(mine)]
        others = [str(rank) for rank in range(self.size) if values[rank] != values[0]]
        if others:
            raise TmtError(
                f"rank {', '.join(others)} of {self.size}: {what}: not the same as on rank 0. "
                "Ranks that differ do not train one model: start all with the same config, data, "
                "versions and kind of processor; if they have all that, suspect a machine"
            )

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
        """Let rank 0 run the block before the others do; if it fails, they end with its code."""
        failed = 0.0
        if not self.is_main:
            (failed,) = self.sum_numbers([0.0], patiently=True)
            if failed:
                raise SystemExit(int(failed))
        try:
            yield
        except BaseException as error:
            failed = float(getattr(error, "exit_code", 1))
            raise
        finally:
            if self.is_main:
                self.sum_numbers([failed], patiently=True)

    def replicate(
        self, model: nn.Module, device: torch.device, *, some_unused: bool = False
    ) -> nn.Module:
        """Wrap a model so that its gradients become the mean over ranks in the backward pass.

        A sharded model does so by itself.

        Args:
            model: The same on all ranks.
            device: Where it is.
            some_unused: Whether a pass may leave out weights, the same on all ranks.
        """
        if self.size == 1 or _shards(model):
            return model
        replica = DistributedDataParallel(
            model,
            device_ids=[device.index] if device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            find_unused_parameters=some_unused,
        )
        self.replicas.append(replica)
        return replica

    def exchange(self, model: nn.Module, *, now: bool) -> AbstractContextManager[None]:
        """Return a context for a backward pass; without `now`, gradients stay on their rank."""
        if self.size == 1:
            return nullcontext()
        if isinstance(model, DistributedDataParallel) and not now:
            return model.no_sync()
        for part in _shards(model):
            part.set_requires_gradient_sync(now, recurse=False)
        return nullcontext()

    def roll_call(self) -> str:
        """Find out which ranks do not answer any more; return a line that names them.

        A rank that was not connected to the lost one learns of it only when its own neighbours end,
        and so may miss their roll call; the last one to end knows all.
        """
        keys = [f"here/{rank}" for rank in range(self.size)]
        lost = []
        try:
            _store().set(keys[self.rank], "")
            with suppress(dist.DistError):
                _store().wait(keys, _ROLL_CALL)
            lost = [str(rank) for rank, key in enumerate(keys) if not _store().check([key])]
        except dist.DistError:  # rank 0 keeps the store, where no launcher does
            lost = ["0"]
        if not lost:
            return "the connection between the ranks was lost"
        if len(lost) == 1:
            return f"rank {lost[0]} of {self.size} does not answer any more"
        return (
            f"ranks {', '.join(lost)} of {self.size} do not answer, or do not know yet that one of "
            "them is lost (the last rank that stops names the lost ones alone)"
        )


@contextmanager
def open_world(stop: StopRequest, *, timeout_minutes: float) -> Iterator[World]:
    """Join the processes that `torchrun` or SLURM started, if any, and leave them at the end.

    Args:
        stop: Ends the wait for the others.
        timeout_minutes: A rank that does not answer for so long is lost.

    Raises:
        Interrupted: If a stop is requested before the ranks have met.
        TmtError: If they do not meet, or if one is lost; names it where that can be found out, and
            prints where this one stood.
    """
    timeout = timedelta(minutes=timeout_minutes)
    if "TORCHELASTIC_RUN_ID" not in os.environ and os.environ.get("WORLD_SIZE", "1") == "1":
        yield World()
        return
    try:
        world = _meet(timeout, stop)
    except (ValueError, RuntimeError) as error:
        raise TmtError(
            f"the ranks have not met ({brief(error)}): start each with its RANK of WORLD_SIZE, "
            "MASTER_ADDR and MASTER_PORT, as torchrun does, all within "
            "training.rank_timeout_minutes"
        ) from error
    try:
        yield world
    except RuntimeError as error:
        # gloo has no error type of its own.
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        if "imeout" in str(error) or "imed out" in str(error):
            traceback.print_exception(error)  # of a rank that hangs nobody knows more than this
        raise TmtError(
            f"{world.roll_call()}: this one, rank {world.rank}, stops; repeat the command to "
            "resume from the last checkpoint"
        ) from error
    finally:
        # An error keeps its frames, and they the replicas. Were a reducer the last to hold the
        # group, it would end gloo's threads while it has Python's lock, which they may wait for.
        for replica in world.replicas:
            del replica.reducer, replica.logger
        dist.destroy_process_group()


def _meet(timeout: timedelta, stop: StopRequest) -> World:
    """Wait for the other ranks in a thread, as a signal cannot be answered in torch's own wait."""
    met: Future[World] = Future()

    def wait() -> None:
        """Leave the ranks, or why they have not met, in `met`."""
        try:
            met.set_result(_joined(timeout))
        except BaseException as error:
            met.set_exception(error)

    if os.environ.get("RANK") == "0":
        logger.info("waiting for the other ranks of %s", os.environ.get("WORLD_SIZE"))
    threading.Thread(target=wait, daemon=True).start()
    try:
        with stop.leaves_at_once():
            return met.result()
    except Interrupted:
        # Where the others have met already, they count on this one, which will in a moment.
        with suppress(TimeoutError):
            return met.result(timeout=_MOMENT_SECONDS)
        raise


def _joined(timeout: timedelta) -> World:
    store, rank, size = next(rendezvous("env://", timeout=timeout))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        # On a single machine, torchrun's restarts find the addresses of the processes before them
        # in the same store, and may try to connect to those.
        store = PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
        timeout=timeout,
        store=store,
        rank=rank,
        world_size=size,
    )
    return World(
        rank=rank,
        size=size,
        local_rank=int(os.environ.get("LOCAL_RANK", "0")),
        waiting=dist.new_group(backend="gloo", timeout=_PATIENCE),
    )


def _store() -> Store:
    return dist.distributed_c10d._get_default_store()


def _shards(model: nn.Module) -> list[FSDPModule]:
    return [module for module in model.modules() if isinstance(module, FSDPModule)]
