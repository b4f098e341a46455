"""Compile the kernels for short sentences to PTX, without a GPU: one line for each.

With `ptxas` on the path, its registers and spills are in the line. The last number is the bytes of
shared memory of a program.
"""

import re
import shutil
import subprocess
import sys
import tempfile

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from transformer_mt.nn.kernels import short_tiles
from transformer_mt.nn.kernels.short_attention import launches

POINTERS = dict.fromkeys(("q", "k", "v", "mixed", "grad", "dq", "dk", "dv"), "") | {
    "log_sums": "*fp32", "q_offsets": "*i32", "k_offsets": "*i32", "seeds": "*i64",
}  # fmt: skip
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
FLOATS = ("scale", "softmax_scale", "p")
# Multiples of 16, as Triton finds out when a kernel is launched.
STRIDES = ("q_row", "q_head", "k_row", "k_head", "dq_row", "dk_row")


def compiled(kernel, capability, *, dtype, num_warps, **constants):
    """Return the PTX of a kernel for a capability such as 80, and its shared memory in bytes."""
    types, values, aligned = {}, {}, {}
    for place, name in enumerate(kernel.arg_names):
        if name in constants:
            types[name], values[(place,)] = "constexpr", constants[name]
        elif name in POINTERS:
            types[name] = POINTERS[name] or f"*{dtype}"
        else:
            types[name] = "fp32" if name in FLOATS else "i32"
        if name in POINTERS or name in STRIDES:
            aligned[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, types, constexprs=values, attrs=aligned)
    result = triton.compile(
        source,
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": num_warps, "num_stages": 1},
    )
    assert f".target sm_{capability}" in result.asm["ptx"]
    # Tensor cores, but for fp32, which is multiplied exactly.
    assert dtype == "fp32" or "mma" in result.asm["ptx"]
    return result.asm["ptx"], result.metadata.shared


def assembled(ptx: str, capability: int) -> str:
    """Return registers and bytes of spills as `ptxas` reports them, if there is one."""
    if shutil.which("ptxas") is None:
        return ""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        arch = "sm_90a" if capability == 90 else f"sm_{capability}"
        command = ["ptxas", "-v", f"-arch={arch}", file.name, "-o", "/dev/null"]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers = re.search(r"Used (\d+) registers", report)
    spills = re.search(r"(\d+) bytes spill stores", report)
    assert registers
    assert spills
    return f"registers {registers[1]} spilled {spills[1]}"


def main(which: str) -> None:
    """Compile for base on two cards, or `all`: other widths, types and cards, and dropout."""
    cases = [(80, "bf16", 64, 64, True), (90, "bf16", 64, 64, False)]
    if which == "all":
        cases = []
        for capability in (80, 90):
            for dtype, width in (("bf16", 64), ("bf16", 128), ("fp16", 16), ("fp32", 64)):
                cases += [(capability, dtype, width, 256, drops) for drops in (False, True)]
    for capability, dtype, width, longest, drops in cases:
        found = launches(longest, head_dim=width, dtype=DTYPES[dtype])
        for launch in found if which == "all" else list(found)[-1:]:
            is_long = launch.num_tiles > 1
            for kernel in (short_tiles.forward, short_tiles.backward):
                ptx, shared = compiled(
                    kernel, capability, dtype=dtype, num_warps=launch.num_warps,
                    HEAD=width, WIDTH=width, BLOCK=launch.block,
                    LAST=launch.is_last, LONG=is_long, DROPS=drops,
                )  # fmt: skip
                name = kernel.__name__.rpartition(".")[2]
                what = f"{name} sm_{capability} {dtype} K {width} tile {launch.block}"
                what += f"{' long' * is_long}{' dropout' * drops}"
                print(what, assembled(ptx, capability), "shared", shared, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
