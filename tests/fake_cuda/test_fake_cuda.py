"""Training and search on a fake CUDA device: what waits, what compiles, what it takes.

README.md explains the device, and what it cannot see.
"""

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
CARDS = ("bf16 9.0", "fp16 9.0", "fp32 9.0", "fp16 7.5", "fp32 7.5")
PACKED = CARDS[:2]  # that have attention without padding


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
    """Run a check in a process of its own and return what it found, by case."""
    results: dict[str, dict[str, Any]] = {}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.fake_cuda.checks", *arguments],
        cwd=HERE.parents[1],
        env=os.environ | {"FAKE_CUDA_GUARD": str(guard), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            name, case = json.loads(line)
            results[name] = case
    assert process.returncode == 0
    assert results
    return results


def assert_compiled_once(results: dict[str, dict[str, Any]]) -> None:
    assert [name for name, case in results.items() if not case["compiled"]] == []
    assert [name for name, case in results.items() if case["graphs_later"]] == []


def assert_no_waits(results: dict[str, dict[str, Any]]) -> None:
    assert {name: case["waits"] for name, case in results.items() if case["waits"]} == {}


def test_updates_and_search_do_not_wait_for_the_gpu(guard: Path) -> None:
    results = found(guard, "quick")
    assert_no_waits(results)
    cases = [case for name, case in results.items() if name.startswith("sync every")]
    assert [(case["steps"], case["cache"]) for case in cases] == [(8, "torch.bfloat16")] * 2


@pytest.mark.slow
def test_updates_do_not_wait_with_any_positions_precision_and_card(guard: Path) -> None:
    results = found(guard, "steps")
    assert len(results) == 7 * len(CARDS)
    assert_no_waits(results)
    packed = {name for name, case in results.items() if case["packed_attention"]}
    assert packed == {name for name in results if name.endswith(PACKED)}


@pytest.mark.slow
@pytest.mark.parametrize("card", CARDS)
def test_layers_of_all_positions_compile_once_for_all_sizes(guard: Path, card: str) -> None:
    results = found(guard, "compiled", "aot_eager", card)
    assert len(results) == 7
    assert_compiled_once(results)


@pytest.mark.slow
def test_layers_that_recompute_their_activations_compile_once_for_all_sizes(guard: Path) -> None:
    assert_compiled_once(found(guard, "recomputed", "aot_eager"))


@pytest.mark.slow
def test_updates_of_base_and_big_keep_within_their_launches_and_memory(guard: Path) -> None:
    results = found(guard, "sizes")
    assert_no_waits(results)
    assert {case["packed_attention"] for case in results.values()} == {18}
    # A chunk of the loss has the same launches on every card; a large one takes fewer chunks.
    assert results["base 80 GB"]["launches_of_loss"] < 250
    assert results["base 24 GB"]["launches"] < 2_300
    # Padded blocks of attention, or all logits at once, would take several GiB more.
    assert results["base 24 GB"]["peak_mib"] < 7_500
    assert results["base 80 GB"]["peak_mib"] < 9_000
    assert results["big 80 GB"]["peak_mib"] < 17_000


@pytest.mark.slow
def test_runs_of_similar_length_need_half_of_the_memory_of_one_padded_block(guard: Path) -> None:
    results = found(guard, "padded")
    assert_no_waits(results)
    for kind in ("sinusoidal fp32", "relative bf16"):
        block, runs = results[f"{kind} block"], results[f"{kind} runs"]
        assert runs["tflop"] < 0.9 * block["tflop"]
        assert runs["peak_mib"] < 0.5 * block["peak_mib"]
