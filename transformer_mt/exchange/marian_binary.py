"""Marian's binary model file, in float32 or in 8 bits, as Bergamot reads it.

A version, the number of tensors, a header of each, all names, all shapes, and from the next
multiple of 256 bytes on the values, each tensor filled up to such a multiple. Little-endian.

In 8 bits a matrix is stored once for all processors: transposed, as round(x * scale) with scale
127 / max |x|, and the scale after its values. Embeddings are not transposed.

Source: browsermt/marian-dev, src/common/binary.cpp and src/tensors/cpu/expression_graph_packable.h.
"""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VERSION = 1
ALIGNMENT = 256
FLOAT32, INT8, INTGEMM8 = 0x404, 0x101, 0x4101
"""Types of values; the last is the one of matrices in 8 bits."""


def write_binary(path: Path, tensors: Mapping[str, NDArray[Any]], *, int8: bool) -> None:
    """Write a model file.

    Args:
        path: File to write; Bergamot knows 8 bits by the end of its name, `.intgemm8.bin`.
        tensors: float32 by name, and options (n,) as int8.
        int8: Whether matrices are stored in 8 bits.

    Raises:
        OSError: If the disk refuses.
    """
    headers, names, shapes, values = [], [], [], []
    for name, tensor in tensors.items():
        kind = INT8 if tensor.dtype == np.int8 else FLOAT32
        content = np.ascontiguousarray(tensor).tobytes()
        if int8 and is_matrix(name):
            kind, content = INTGEMM8, _in_8_bits(name, tensor)
        content += bytes(-len(content) % ALIGNMENT)
        text = name.encode() + b"\0"
        headers.append(struct.pack("<4Q", len(text), kind, tensor.ndim, len(content)))
        names.append(text)
        shapes.append(struct.pack(f"<{tensor.ndim}i", *tensor.shape))
        values.append(content)
    start = struct.pack("<2Q", VERSION, len(tensors)) + b"".join([*headers, *names, *shapes])
    gap = ALIGNMENT - (len(start) + 8) % ALIGNMENT
    with path.open("wb") as file:
        file.write(start + struct.pack("<Q", gap) + bytes(gap))
        file.writelines(values)


def read_binary(path: Path) -> dict[str, NDArray[Any]]:
    """Read a model file; matrices in 8 bits come as float32.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is damaged, or has other types of values.
    """
    data = path.read_bytes()
    place = 0

    def take(form: str) -> tuple[Any, ...]:
        nonlocal place
        place += struct.calcsize(form)
        try:
            return struct.unpack_from(form, data, place - struct.calcsize(form))
        except struct.error as error:
            raise ValueError("not a whole model file") from error

    version, number = take("<2Q")
    if version != VERSION or number > len(data) // 32:
        raise ValueError("not a binary model file of Marian")
    headers = [take("<4Q") for _ in range(number)]
    names = [take(f"<{length}s")[0][:-1].decode() for length, *_ in headers]
    shapes = [take(f"<{ndim}i") for _, _, ndim, _ in headers]
    (gap,) = take("<Q")
    take(f"<{gap}x")
    contents = [take(f"<{size}s")[0] for *_, size in headers]
    return {
        name: _values(name, content, kind, shape)
        for name, content, shape, (_, kind, *_) in zip(
            names, contents, shapes, headers, strict=True
        )
    }


def _values(name: str, content: bytes, kind: int, shape: tuple[int, ...]) -> NDArray[Any]:
    if kind not in (FLOAT32, INT8, INTGEMM8):
        raise ValueError(f"{name}: values of type {kind:#x}: expected float32 or 8 bits")
    size = int(np.prod(shape))
    found = np.frombuffer(content, "<f4" if kind == FLOAT32 else np.int8, size)
    if kind != INTGEMM8:
        return found.reshape(shape)
    (scale,) = struct.unpack_from("<f", content, size)
    real = found.astype(np.float32) / np.float32(scale)
    return real.reshape(shape) if "Wemb" in name else real.reshape(shape[::-1]).T


def is_matrix(name: str) -> bool:
    """Tell what is multiplied in 8 bits, by Marian's rule on names."""
    return "Wemb" in name or name[-3:-1] == "_W" or name.endswith("_W")


def _in_8_bits(name: str, matrix: NDArray[Any]) -> bytes:
    scale = np.float32(127) / np.abs(matrix).max()
    stored = matrix if "Wemb" in name else matrix.T
    integers = np.clip(np.rint(stored * scale), -127, 127).astype(np.int8)
    content: bytes = integers.tobytes()
    return content + struct.pack("<f", scale)
