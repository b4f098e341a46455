"""The attention kernel for short sentences: numbers in Triton's interpreter, code for GPUs."""

import os
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
import torch

from transformer_mt.nn.attention import SelfAttention
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels import dispatch
from transformer_mt.nn.kernels.dispatch import attend
from transformer_mt.nn.kernels.short_attention import CHOICE, attend_short, launches
from transformer_mt.nn.masks import AttentionMask
from transformer_mt.nn.positional_encoding import PositionalEncoding
from transformer_mt.packing import Segments
from transformer_mt.training import attention_kernel
from transformer_mt.training.attention_kernel import choose_attention
from transformer_mt.training.distributed import World

HERE = Path(__file__).parent
CPU = torch.device("cpu")
needs_triton = pytest.mark.skipif(sys.platform != "linux", reason="Triton is made for Linux")


def triton_release() -> str | None:
    try:
        return version("triton")
    except PackageNotFoundError:
        return None


def in_own_process(program: str, *arguments: str) -> str:
    command = [sys.executable, str(HERE / program), *arguments]
    with tempfile.TemporaryDirectory() as cache:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"TRITON_CACHE_DIR": cache},
        )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


@needs_triton
@pytest.mark.skipif(
    (triton_release(), version("numpy")) == ("3.6.0", "2.4.6"),
    reason="the interpreter of triton 3.6.0 calls int() on an array, which numpy 2.4.6 refuses",
)
@pytest.mark.parametrize("which", ["few", pytest.param("all", marks=pytest.mark.slow)])
def test_values_and_gradients_are_those_of_equation_1(which: str) -> None:
    pytest.importorskip("triton")
    assert in_own_process("short_attention_cases.py", which) == ""


@needs_triton
@pytest.mark.parametrize("which", ["few", pytest.param("all", marks=pytest.mark.slow)])
def test_kernels_compile_to_ptx_without_a_gpu(which: str) -> None:
    pytest.importorskip("triton")
    lines = in_own_process("short_attention_ptx.py", which).splitlines()
    assert len(lines) >= 4
    # Of 99 KiB that a program may have on every card since capability 8.0.
    assert all(int(line.split()[-1]) <= 99 * 1024 for line in lines)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("head_dim", [16, 64, 128])
def test_every_length_belongs_to_one_launch(dtype: torch.dtype, head_dim: int) -> None:
    for longest in (1, 32, 33, 64, 100, 128, 129, 256):
        found = list(launches(longest, head_dim=head_dim, dtype=dtype))
        assert [launch.is_last for launch in found] == [False] * (len(found) - 1) + [True]
        for length in range(1, longest + 1):
            (own,) = [x for x in found if x.least < length <= x.most]
            assert length <= own.block * own.num_tiles


def test_fake_tensors_have_the_shapes_of_real_ones() -> None:
    with torch._subclasses.FakeTensorMode():
        offsets = torch.empty(4, dtype=torch.int32)
        q = torch.empty(9, 1, 2, 8, dtype=torch.bfloat16, requires_grad=True)
        kv = torch.empty(7, 2, 2, 8, dtype=torch.bfloat16, requires_grad=True)
        mixed = attend_short(q, kv, offsets, offsets, longest=5, causal=False, dropout=0.1)
        mixed.sum().backward()
        assert (mixed.shape, mixed.dtype) == ((9, 2, 8), torch.bfloat16)
        assert [x.grad.shape for x in (q, kv)] == [q.shape, kv.shape]


@pytest.mark.parametrize(("longest", "taken"), [(200, True), (300, False)])
def test_sentences_too_long_go_another_way(
    longest: int, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CHOICE, "dtype", torch.float32)
    monkeypatch.setattr(CHOICE, "is_taken", True)
    for name, result in (("attend_one_by_one", 1), ("attend_padded", 0)):
        monkeypatch.setattr(dispatch, name, lambda *_, result=result, **__: result)
    segments = Segments.of([longest]).to("meta")
    qkv = torch.empty(longest, 3, 1, 8, device="meta")
    assert attend((qkv,), AttentionMask(segments, segments), dropout=Dropout(0.0)) == taken


@pytest.mark.parametrize("chosen", [True, False])
def test_a_resumed_run_keeps_its_kernel_whatever_is_faster_now(
    chosen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CHOICE, "dtype", None)
    monkeypatch.setattr(CHOICE, "is_taken", False)
    monkeypatch.setattr(attention_kernel, "_can_be_tried", lambda *_: True)
    monkeypatch.setattr(attention_kernel, "_tried", lambda *_: 0.5 if chosen else 2.0)
    model = torch.nn.Sequential(SelfAttention(8, 2, positions=PositionalEncoding()))
    found = choose_attention(model, precision="bf16", world=World(), device=CPU, chosen=chosen)
    assert found is CHOICE.is_taken is chosen


def test_nothing_is_tried_on_a_cpu() -> None:
    model = torch.nn.Linear(2, 2)
    found = choose_attention(model, precision="fp32", world=World(), device=CPU, chosen=True)
    assert found is True  # for when the run is back on a GPU
    assert CHOICE.dtype is None
    assert not CHOICE.is_taken


@pytest.mark.parametrize(
    ("speedups", "taken"),
    [([1.5, 1.0], True), ([1.0, 1.5], False), ([1.5, 0.0], None), ([0.0, 1.5], None)],
)
def test_rank_0_decides_unless_the_kernel_fails_on_a_rank(
    speedups: list[float], taken: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What each rank contributes does not depend on the others: collect first, then give the sums.
    given: list[list[float]] = []
    sums: list[list[float]] = []

    def sum_numbers(self: World, numbers: list[float]) -> list[float]:
        given.append(numbers)
        return sums[0] if sums else numbers

    monkeypatch.setattr(World, "sum_numbers", sum_numbers)
    monkeypatch.setattr(CHOICE, "dtype", None)
    monkeypatch.setattr(CHOICE, "is_taken", False)
    monkeypatch.setattr(attention_kernel, "_can_be_tried", lambda *_: True)
    model = torch.nn.Sequential(SelfAttention(8, 2, positions=PositionalEncoding()))

    def choose(rank: int) -> bool | None:
        speedup = speedups[rank]
        monkeypatch.setattr(attention_kernel, "_tried", lambda *_: speedup)
        world, device = World(rank=rank, size=2), torch.device("cpu")
        return choose_attention(model, precision="bf16", world=world, device=device)

    for rank in range(2):
        choose(rank)
    sums.append([sum(column) for column in zip(*given, strict=True)])
    assert [choose(rank) for rank in range(2)] == [taken, taken]
    assert CHOICE.is_taken == bool(taken)
