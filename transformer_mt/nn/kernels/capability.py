"""Capabilities of processors and GPUs: the types in which they multiply fast.

The answer follows from the instructions that are there, never from a clock: a machine gives the
same one however busy it is, and so a run resumes exactly. `ONEDNN_MAX_CPU_ISA` and
`ATEN_CPU_CAPABILITY`, which make a processor pass for an older one, are respected.
"""

import os
import platform

import torch

_X86 = ("x86_64", "AMD64")

# In the order in which oneDNN counts them, up to the greatest that is asked for here.
_ISAS = (
    "SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI",
    "AVX512_CORE_BF16",
)  # fmt: skip


def multiplies_fast(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether a device has instructions for matrix products of a type.

    Without them a product still works, but it is emulated: in bf16, an x86 processor with AVX2
    takes 20 to 60 times as long as in fp32.
    """
    if dtype == torch.float32:
        return True
    if device.type == "cuda":
        oldest = (8, 0) if dtype == torch.bfloat16 else (7, 0)
        return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= oldest
    if device.type == "mps":
        return dtype == torch.float16  # the first generation emulates bf16
    return dtype == torch.bfloat16 and _has_bf16()


def has_onednn() -> bool:
    """Return whether this torch uses oneDNN, and vector instructions that make it worth a call."""
    is_there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return is_there and torch.backends.cpu.get_cpu_capability().startswith("AVX")


def has_vnni() -> bool:
    """Return whether an x86 processor adds products of 8-bit integers in 32 bits."""
    # The greatest set of instructions that FBGEMM may use; of these names, none has VNNI.
    allowed = os.environ.get("FBGEMM_ENABLE_INSTRUCTIONS", "").upper()
    if allowed in ("AVX2", "AVX512", "AVX512_256"):
        return False
    return bool(torch.cpu._is_vnni_supported()) and _may_use("AVX512_CORE_VNNI")


def _has_bf16() -> bool:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    # Of x86, torch asks here only for AVX-512, with which oneDNN emulates bf16.
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    if platform.machine() not in _X86:
        return True
    return bool(torch.cpu._is_avx512_bf16_supported()) and _may_use("AVX512_CORE_BF16")


def _may_use(isa: str) -> bool:
    """Return whether the environment leaves torch and oneDNN these AVX-512 instructions of x86."""
    if torch.backends.cpu.get_cpu_capability() in ("NO AVX", "DEFAULT", "AVX2"):
        return False
    greatest = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    return greatest not in _ISAS or _ISAS.index(greatest) >= _ISAS.index(isa)
