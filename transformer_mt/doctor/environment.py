"""Checks of the environment: libraries, processor, GPU, memory and disk."""

import importlib.util
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from transformer_mt.doctor.findings import Finding, Status
from transformer_mt.doctor.memory import available_memory, total_memory
from transformer_mt.errors import brief, reason_of
from transformer_mt.log import JsonValue
from transformer_mt.processors import (
    ProcessorLoad,
    num_processors,
    num_threads,
)
from transformer_mt.versions import installed_versions

EXTRAS = {
    "clean": ("py3langid",),
    "ct2": ("ctranslate2",),
    "formats": ("lxml", "polib", "docx", "markdown_it", "srt", "webvtt"),
    "hf": ("transformers",),
    "images": ("fontTools", "PIL"),
    "plot": ("matplotlib",),
    "serve": ("starlette", "uvicorn"),
    "slurm": ("submitit",),
    "tensorboard": ("tensorboard",),
}
"""Optional packages by the extra that installs them, by the names they are imported by."""

REMOTE = re.compile(r"nfs|cifs|smb|fuse|9p|afs|ceph|lustre|gpfs|beegfs")
LITTLE_BYTES = 2_000_000_000
_MOUNTS = Path("/proc/self/mountinfo")
_DRIVER = Path("/proc/driver/nvidia/version")


def check_environment(folders: dict[str, Path]) -> Iterator[Finding]:
    """Look at all that does not depend on a config.

    Args:
        folders: Where files will be written, by what they are for.
    """
    yield from _check_packages()
    yield _processors()
    yield _memory()
    for purpose, folder in folders.items():
        yield _disk(purpose, folder)
    try:
        import torch  # noqa: F401 - whether it can be
    except Exception as error:  # a build may fail to load in many ways
        yield Finding(
            "environment", "torch", "problem", f"torch cannot be loaded: {brief(error)}",
            "install it again: python -m pip install --force-reinstall torch",
        )  # fmt: skip
        return
    yield _instructions()
    yield _gpu()


def _check_packages() -> Iterator[Finding]:
    versions = installed_versions()
    missing = [name for name, version in versions.items() if version is None]
    missing = [name for name in missing if name not in ("commit", "cuda")]
    named = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    yield Finding(
        "environment", "packages", "problem" if missing else "ok",
        f"not installed: {', '.join(missing)}" if missing else named,
        f"python -m pip install {' '.join(missing)}" if missing else "",
        facts=versions,
    )  # fmt: skip
    there = {name: all(map(_is_there, packages)) for name, packages in EXTRAS.items()}
    lacking = ", ".join(name for name, found in there.items() if not found)
    installed = ", ".join(name for name, found in there.items() if found) or "none"
    yield Finding(
        "environment", "extras", "ok",
        f"installed: {installed}" + (f"; not installed: {lacking}" if lacking else ""),
        facts=there,
    )  # fmt: skip


def _is_there(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _processors() -> Finding:
    """Compare the threads that torch will take with the processors that are allowed and free."""
    allowed, threads, all_there = num_processors(), num_threads(), os.cpu_count() or 1
    load = ProcessorLoad()
    time.sleep(0.3)
    free = load.free_processors()
    text = f"{allowed} of {all_there} processors may be used"
    if free is not None:
        text += f", {min(free, allowed):.1f} are free"
    facts: dict[str, JsonValue] = {
        "allowed": allowed,
        "all": all_there,
        "free": free,
        "threads": threads,
    }
    if threads > allowed:
        return Finding(
            "environment", "processors", "warning",
            f"{text}, but OMP_NUM_THREADS asks for {threads} threads, which wait for each other",
            f"unset OMP_NUM_THREADS, or set it to {allowed}", facts=facts,
        )  # fmt: skip
    if free is not None and free < 0.5 * threads:
        return Finding(
            "environment", "processors", "warning", text,
            "other programs use this machine: training will be slower than on an idle one",
            facts=facts,
        )  # fmt: skip
    return Finding("environment", "processors", "ok", f"{text}; {threads} threads", facts=facts)


def _memory() -> Finding:
    total, available = total_memory(), available_memory()
    if available is None:
        return Finding("environment", "memory", "ok", "not reported by this system")
    facts = {"total_bytes": total, "available_bytes": available}
    text = f"{available / 1e9:.1f} GB available"
    if total is not None:
        text += f" of {total / 1e9:.1f} GB"
    if available < LITTLE_BYTES:
        return Finding(
            "environment", "memory", "warning", text,
            "torch alone takes half a gigabyte: close other programs, or raise the memory limit "
            "of the container", facts=facts,
        )  # fmt: skip
    return Finding("environment", "memory", "ok", text, facts=facts)


def _disk(purpose: str, folder: Path) -> Finding:
    """Look at the disk of a folder, or of the nearest one that is there."""
    place = existing(folder)
    kind = file_system_of(place)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Finding(
            "environment", f"disk of {purpose}", "problem",
            f"{folder}: cannot be written in {place}: {reason_of(error)}",
            "choose another folder, or ask for the right to write there",
        )  # fmt: skip
    text = f"{folder}: {free / 1e9:,.1f} GB free" + (f", file system {kind}" if kind else "")
    facts: dict[str, JsonValue] = {"folder": str(folder), "free_bytes": free, "file_system": kind}
    status: Status = "ok"
    advice = ""
    if free < LITTLE_BYTES:
        status, advice = "warning", "make room: a small run takes some hundred megabytes"
    elif kind and REMOTE.search(kind):
        status = "warning"
        advice = (
            "a network file system: slow for many small files, and locks may not work: never "
            "start the same run twice"
        )
    elif kind == "tmpfs" and purpose == "runs":
        status, advice = "warning", "this is memory: all is lost when the machine stops"
    return Finding("environment", f"disk of {purpose}", status, text, advice, facts=facts)


def existing(folder: Path) -> Path:
    """Return a path, or the nearest folder above it that is there."""
    place = folder.absolute()
    return next((part for part in (place, *place.parents) if part.exists()), place)


def file_system_of(place: Path) -> str | None:
    """Return the kind of the file system of a folder, such as `ext4`; None where unknown."""
    best, kind = PurePosixPath("/"), None
    with suppress(OSError, ValueError):
        for line in _MOUNTS.read_text(encoding="utf-8").splitlines():
            before, _, after = line.partition(" - ")
            point = PurePosixPath(before.split()[4].replace("\\040", " "))
            if PurePosixPath(place.resolve()).is_relative_to(point) and (
                len(point.parts) >= len(best.parts)
            ):
                best, kind = point, after.split()[0]
    return kind


def _instructions() -> Finding:
    import torch

    from transformer_mt.nn.kernels.capability import has_onednn, has_vnni, multiplies_fast

    level = torch.backends.cpu.get_cpu_capability()
    has_bf16 = multiplies_fast(torch.bfloat16, torch.device("cpu"))
    facts: dict[str, JsonValue] = {
        "level": level,
        "onednn": has_onednn(),
        "vnni": has_vnni(),
        "bf16": has_bf16,
    }
    lost = []
    if not has_bf16:
        lost.append("no bf16 instructions: train in fp32")
    if not has_vnni():
        lost.append("no VNNI: translation in int8 gains less")
    text = f"{platform.machine()}, {level}" + (f" ({'; '.join(lost)})" if lost else "")
    is_x86 = platform.machine() in ("x86_64", "AMD64")
    if is_x86 and not (has_onednn() and level.startswith("AVX")):
        return Finding(
            "environment", "instructions", "warning", text,
            "without AVX2 and oneDNN training is several times slower: take another machine, or "
            "unset ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA", facts=facts,
        )  # fmt: skip
    return Finding("environment", "instructions", "ok", text, facts=facts)


def _gpu() -> Finding:
    """Compare driver, build and card, and multiply on it once: libraries load only then."""
    import torch

    build = torch.version.cuda or torch.version.hip
    driver = _driver_version()
    has_card = driver is not None or Path("/dev/nvidiactl").exists()
    facts: dict[str, JsonValue] = {
        "driver": driver,
        "build": build,
        "devices": torch.cuda.device_count(),
    }
    if torch.cuda.is_available():
        return _try_gpu(facts)
    if torch.backends.mps.is_available():
        return Finding("environment", "GPU", "ok", "Apple GPU (mps)", facts=facts)
    if has_card and build is None:
        return Finding(
            "environment", "GPU", "warning",
            f"there is an NVIDIA driver ({driver}), but this torch {torch.__version__} was built "
            "for processors alone",
            "install a build for CUDA: see https://pytorch.org/get-started/locally", facts=facts,
        )  # fmt: skip
    if has_card:
        reason = "no device is visible"
        try:
            torch.cuda.init()  # type: ignore[no-untyped-call]
        except Exception as error:  # driver too old, card lost, container without access
            reason = brief(error)
        return Finding(
            "environment", "GPU", "problem",
            f"NVIDIA driver {driver}, torch for CUDA {build}, but no GPU can be used: {reason}",
            "check nvidia-smi and CUDA_VISIBLE_DEVICES; an old driver needs an older CUDA build",
            facts=facts,
        )  # fmt: skip
    return Finding("environment", "GPU", "ok", f"none; torch {torch.__version__}", facts=facts)


def _try_gpu(facts: Mapping[str, JsonValue]) -> Finding:
    import torch

    names = []
    for number in range(torch.cuda.device_count()):
        try:
            x = torch.ones(64, 64, device=f"cuda:{number}")
            is_right = float((x @ x).sum()) == 64**3
        except RuntimeError as error:
            return Finding(
                "environment", "GPU", "problem",
                f"cuda:{number} ({torch.cuda.get_device_name(number)}): {brief(error)}",
                f"this build of torch has {', '.join(torch.cuda.get_arch_list())}: install one "
                "that fits card and driver", facts=facts,
            )  # fmt: skip
        if not is_right:
            return Finding(
                "environment", "GPU", "problem", f"cuda:{number} multiplies wrongly",
                "the card or its memory is damaged: do not train on it", facts=facts,
            )  # fmt: skip
        properties = torch.cuda.get_device_properties(number)
        names.append(f"cuda:{number} {properties.name}, {properties.total_memory / 1e9:.0f} GB")
    return Finding("environment", "GPU", "ok", "; ".join(names), facts=facts)


def _driver_version() -> str | None:
    with suppress(OSError):
        found = re.search(r"Module\s+([\d.]+)", _DRIVER.read_text(encoding="utf-8"))
        return found[1] if found else "unknown"
    return None
