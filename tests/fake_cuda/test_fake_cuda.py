"""Training and search on a CUDA device that is not there: what waits, what compiles."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
TORCH = Path(importlib.util.find_spec("torch").origin).parent  # type: ignore[union-attr,arg-type]


@pytest.fixture(scope="session")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The device as a library, for torch to load; made once for all processes of a run."""
    if shutil.which("g++") is None or not (TORCH / "include").exists():
        pytest.skip("needs g++ and the headers of torch")
    base = tmp_path_factory.getbasetemp()
    library = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "guard.so"
    if not library.exists():
        made, headers = tmp_path_factory.mktemp("guard") / "guard.so", TORCH / "include"
        command = [
            "g++", "-O0", "-w", "-shared", "-fPIC", "-std=c++20", str(HERE / "guard.cpp"),
            "-o", str(made), f"-I{headers}", f"-I{headers}/torch/csrc/api/include",
            f"-L{TORCH / 'lib'}", f"-Wl,-rpath,{TORCH / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10",
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        made.replace(library)
    return library


def found(guard: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    """What a check finds, in a process of its own: the device cannot be taken away again."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.fake_cuda.checks", *arguments],
        cwd=HERE.parents[1],
        env=os.environ | {"FAKE_CUDA_GUARD": str(guard), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    parsed: dict[str, dict[str, Any]] = json.loads(result.stdout)
    return parsed


def test_an_update_never_waits_for_the_gpu(guard: Path) -> None:
    results = found(guard, "steps")
    assert len(results) > 15
    assert {name: case["waits"] for name, case in results.items() if case["waits"]} == {}
    packed = {name for name, case in results.items() if case["attention"]}
    assert packed == {name for name in results if "9.0" in name and "fp32" not in name}


def test_search_waits_for_its_looks_alone(guard: Path) -> None:
    for case in found(guard, "search").values():
        assert case["steps"] == 8
        assert case["waits"] == {}
        assert case["cache"] == "torch.bfloat16"


def test_layers_compile_for_a_gpu_once_for_all_sizes(guard: Path) -> None:
    """With the first half of the compiler; see the next test for more of it."""
    results = found(guard, "compiled", "eager", "sinusoidal bf16 9.0", "recompute layers")
    expected = {"compiled": True, "graphs": 3, "graphs_later": 0}
    assert results == dict.fromkeys(results, expected)


@pytest.mark.slow
def test_all_positions_compile_for_a_gpu_with_their_gradients(guard: Path) -> None:
    results = found(guard, "compiled", "aot_eager")
    assert [name for name, case in results.items() if not case["compiled"]] == []
    assert [name for name, case in results.items() if case["graphs_later"]] == []


def test_updates_of_base_and_big_keep_within_their_launches_and_memory(guard: Path) -> None:
    results = found(guard, "sizes")
    for case in results.values():
        assert case["waits"] == {}
        assert case["attention"] == 18
    # A chunk of the loss has the same launches on every card; a large one takes fewer chunks.
    assert results["base 80 GB"]["launches_of_loss"] < 250
    assert results["base 24 GB"]["launches"] < 2_300
    # Padded blocks of attention, or all logits at once, would take several GiB more.
    assert results["base 24 GB"]["peak_mib"] < 7_500
    assert results["base 80 GB"]["peak_mib"] < 9_000
    assert results["big 80 GB"]["peak_mib"] < 17_000
