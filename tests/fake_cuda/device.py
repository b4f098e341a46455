"""The fake CUDA device of README.md, and a ledger of what it is asked for.

To be imported before torch, in a process of its own: the device cannot be unloaded.
"""

import contextlib
import ctypes
import os
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

ctypes.CDLL(os.environ["FAKE_CUDA_GUARD"], mode=ctypes.RTLD_GLOBAL)

import torch  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.nn.attention.varlen import varlen_attn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from transformer_mt.nn.kernels import varlen  # noqa: E402

CUDA = torch.device("cuda", 0)


@contextlib.contextmanager
def fake_device(capability: tuple[int, int], *, gigabytes: int = 80) -> Iterator[FakeTensorMode]:
    """Let torch report a CUDA device, and make tensors fake."""
    properties = mock.Mock(total_memory=gigabytes * 10**9, multi_processor_count=132)
    properties.configure_mock(major=capability[0], minor=capability[1], name="a fake device")
    argument = varlen.varlen_argument(varlen_attn)
    answers = {
        "torch.cuda.get_device_capability": capability,
        "torch.cuda.get_device_properties": properties,
        "torch.cuda.is_bf16_supported": capability >= (8, 0),
        "torch.cuda.amp.common.amp_definitely_not_available": False,
        "torch.random.fork_rng": contextlib.nullcontext(),
        # There are no numbers to compare.
        "transformer_mt.nn.kernels.varlen._tried_varlen": argument,
    }
    with contextlib.ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(mock.patch(name, lambda *_, answer=answer, **__: answer))
        # The threads of autograd would ask the driver.
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        yield stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))


# Operators whose result depends on numbers of the device, or is one.
_WAITS = {
    "_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "unique_consecutive",
    "_unique2",
}  # fmt: skip
_NO_LAUNCH = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach"}
_PER_LAUNCH = 60  # tensors of a list that one kernel takes


class Ledger(TorchDispatchMode):
    """Counts what a device would be asked for.

    Attributes:
        waits: Where the host would wait for the device, and how often.
        launches: Kernels by the file that asks for them; an operator counts as one.
        operators: Calls of each operator.
        flops: Of matrix products, a multiplication and an addition each.
        peak: Most bytes held at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self.launches: Counter[str] = Counter()
        self.operators: Counter[str] = Counter()
        self.live = self.peak = self.flops = 0
        self._sizes: dict[int, int] = {}

    def start(self) -> None:
        """Forget all but what is held."""
        for counter in (self.waits, self.launches, self.operators):
            counter.clear()
        self.peak, self.flops = self.live, 0

    def hold(self, tensor: torch.Tensor) -> None:
        """Count the memory of a tensor until it is freed."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if tensor.device.type == "cuda" and key not in self._sizes:
            self._sizes[key] = -(-storage.nbytes() // 512) * 512
            self.live += self._sizes[key]
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self._free, key)

    def _free(self, key: int) -> None:
        self.live -= self._sizes.pop(key, 0)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        name = function.overloadpacket.__name__
        if any(x.device.type == "cuda" for x in given) and _waits(name, args, kwargs):
            self.waits[f"{name} {_caller()}"] += 1
        result = function(*args, **kwargs)
        made = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        for tensor in made:
            self.hold(tensor)
        if name in ("_to_copy", "copy_") and _blocks(name, args, kwargs, made):
            self.waits[f"{name} {_caller()}"] += 1
        self._count(name, function, args, given, made)
        return result

    def _count(
        self, name: str, function: Any, args: Any, given: list[Any], made: list[Any]
    ) -> None:
        if function.namespace == "prim" or name in _NO_LAUNCH:
            return  # a question about a tensor, or memory alone
        if not any(x.device.type == "cuda" for x in [*given, *made]):
            return
        held = {x.untyped_storage()._cdata for x in given}
        writes = any(a.alias_info is not None and a.alias_info.is_write
                     for a in function._schema.arguments)  # fmt: skip
        is_view = made and all(x.untyped_storage()._cdata in held for x in made)
        if is_view and not writes and name != "_to_copy":
            return
        lists = [len(x) for x in args if isinstance(x, list | tuple) and len(x) > 1]
        is_grouped = name.startswith(("_foreach", "_fused"))
        self.operators[name] += 1
        if name in ("mm", "bmm", "addmm", "baddbmm"):
            left = args[name.startswith(("add", "badd"))]
            self.flops += 2 * made[0].numel() * left.shape[-1]
        self.launches[_caller().partition(":")[0]] += (
            -(-max(lists, default=1) // _PER_LAUNCH) if is_grouped else 1
        )


def _waits(name: str, args: Any, kwargs: dict[str, Any]) -> bool:
    if name in _WAITS:
        return True
    if name == "repeat_interleave":
        return kwargs.get("output_size") is None
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        by_mask = any(x is not None and x.dtype == torch.bool for x in args[1])
        return by_mask or (name != "index" and args[2].device.type == "cpu")
    return False


def _blocks(name: str, args: Any, kwargs: dict[str, Any], made: list[Any]) -> bool:
    """Return whether a copy between host and device waits until it is done."""
    source, target = (args[1], args[0]) if name == "copy_" else (args[0], *made)
    is_async = kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2])
    kinds = {source.device.type, target.device.type}
    # A number () goes along with the launch.
    return kinds == {"cpu", "cuda"} and not is_async and source.dim() > 0


def _caller() -> str:
    frame = sys._getframe(2)
    while frame is not None:
        before, here, name = frame.f_code.co_filename.rpartition("transformer_mt/")
        if here and "tests" not in before.rsplit("/", 2)[-2:]:
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "autograd:0"
