"""A device that is not there: tensors that say they are on it and are computed on the CPU.

As on a GPU, an operator that meets tensors of both places is refused, but for single numbers; and
each moment at which the program waits for what the device has computed is recorded. So tests find
a tensor made on the wrong device, or a hidden `.item()`, on a machine without a GPU.

How: torch keeps a free device type, `privateuse1`, for devices that others add; here it is renamed
to "elsewhere" and given a backend in Python that can do nothing. A tensor there (`_There`) is a
wrapper with shape, strides and type, whose numbers are in an ordinary tensor, `here`. Within
`elsewhere()` a dispatch mode gets every operator before torch does: it checks the devices of the
arguments, computes with the ordinary tensors, and wraps the results. Outside, every operator on
such a tensor is an error.

`tests/fake_cuda` is another thing: it makes torch take the paths that it takes on CUDA, without
any numbers.
"""

import copy
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

try:  # young, and none of torch's promises
    from torch.utils.backend_registration import (
        _DummyBackendModule,
        _setup_privateuseone_for_python_backend,
    )
except ImportError:
    pytest.skip("this torch has no devices written in Python", allow_module_level=True)
if torch.cuda.is_available():
    pytest.skip("there is a GPU: what is tested here can be tried on it", allow_module_level=True)

Model = TypeVar("Model", bound=nn.Module)

_NAME = "elsewhere"


class _Module(_DummyBackendModule):  # type: ignore[misc, no-any-unimported]
    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


_setup_privateuseone_for_python_backend(_NAME, backend_module=_Module())
ELSEWHERE = torch.device(_NAME, 0)

_ops = torch.ops.aten
_WAITS = {_ops._local_scalar_dense.default, _ops.nonzero.default, _ops.is_nonzero.default}
_MAY_MIX = {_ops._to_copy.default, _ops.copy_.default, _ops.index.Tensor, _ops.index_put_.default}


class _There(Tensor):
    """A tensor elsewhere; `here` holds its numbers."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> "_There":
        there = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            here.shape,
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=ELSEWHERE,
        )
        there.here = here
        return there

    def tolist(self) -> Any:  # torch refuses it for subclasses
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise AssertionError(f"{function} outside of `elsewhere()`")


class _Elsewhere(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        tensors: list[Tensor] = []
        tree_map_only(Tensor, tensors.append, (args, kwargs))
        are_there = [isinstance(tensor, _There) for tensor in tensors]
        wanted = kwargs.get("device")
        if wanted is not None:
            kwargs["device"] = torch.device("cpu")
        goes_there = any(are_there) if wanted is None else torch.device(wanted).type == _NAME
        if any(are_there):
            strangers = [t for t in tensors if not isinstance(t, _There) and t.dim() > 0]
            if strangers and function not in _MAY_MIX:
                raise RuntimeError(f"{function}: tensors of two devices")
            if function in _WAITS or (wanted is not None and not goes_there):
                self.waits.append(_caller())
        if function is _ops._fused_sdp_choice.default:
            return 0  # by products and softmax
        args, kwargs = tree_map_only(_There, lambda tensor: tensor.here, (args, kwargs))
        results = function(*args, **kwargs)
        if function is _ops._local_scalar_dense.default or not goes_there:
            return results
        return self._there(results, tensors)

    @staticmethod
    def _there(results: Any, tensors: Sequence[Tensor]) -> Any:
        """Send results there; those that are an argument, changed in place, stay that argument."""
        same = {id(tensor.here): tensor for tensor in tensors if isinstance(tensor, _There)}
        return tree_map_only(
            Tensor,
            lambda result: same[id(result)] if id(result) in same else _There(result),
            results,
        )


def _caller() -> str:
    """Return which line of the package waits."""
    for frame in reversed(traceback.extract_stack()):
        if "transformer_mt/" in frame.filename.replace("\\", "/"):
            return f"{frame.filename.rpartition('transformer_mt/')[2]}: {frame.line}"
    return "the test"


@contextmanager
def elsewhere() -> Iterator[list[str]]:
    """Let tensors be on `ELSEWHERE`; yield the lines of the package that waited for it."""
    with _Elsewhere() as mode:
        yield mode.waits


def moved(model: Model) -> Model:
    """Return a model with its weights on `ELSEWHERE`; `to` would part those that are shared."""
    model = copy.deepcopy(model)
    there: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                if id(weight) not in there:
                    there[id(weight)] = nn.Parameter(weight.detach().to(ELSEWHERE))
                module._parameters[name] = there[id(weight)]
    return model
