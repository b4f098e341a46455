"""Marian's binary model file."""

import struct
from pathlib import Path

import numpy as np
import pytest

from transformer_mt.exchange.marian_binary import is_matrix, read_binary, write_binary

TENSORS = {
    "Wemb": np.random.default_rng(1).normal(size=(24, 64)).astype(np.float32),
    "encoder_l1_ffn_W1": np.random.default_rng(2).normal(size=(64, 8)).astype(np.float32),
    "encoder_l1_ffn_b1": np.linspace(-1, 1, 8, dtype=np.float32)[None],
    "special:model.yml": np.frombuffer(b"type: transformer\n\0", np.int8),
}


@pytest.mark.parametrize("int8", [False, True])
def test_tensors_come_back_within_half_a_step_of_8_bits(tmp_path: Path, int8: bool) -> None:
    write_binary(tmp_path / "model.bin", TENSORS, int8=int8)
    found = read_binary(tmp_path / "model.bin")
    assert list(found) == list(TENSORS)
    for name, tensor in TENSORS.items():
        step = np.abs(tensor).max() / 127 if int8 and is_matrix(name) else 0
        np.testing.assert_allclose(found[name], tensor, rtol=0, atol=step / 2 * 1.001)


def test_the_file_has_the_layout_that_marian_reads(tmp_path: Path) -> None:
    """By the definition: values begin at multiples of 256; a matrix is transposed there."""
    write_binary(tmp_path / "model.bin", TENSORS, int8=True)
    data = (tmp_path / "model.bin").read_bytes()
    assert struct.unpack_from("<2Q", data) == (1, 4)
    headers = [struct.unpack_from("<4Q", data, 16 + 32 * i) for i in range(4)]
    assert [kind for _, kind, *_ in headers] == [0x4101, 0x4101, 0x404, 0x101]
    assert all(size % 256 == 0 for *_, size in headers)
    first = len(data) - sum(size for *_, size in headers)
    assert first % 256 == 0
    matrix = TENSORS["encoder_l1_ffn_W1"]
    place = first + headers[0][3]
    (scale,) = struct.unpack_from("<f", data, place + matrix.size)
    assert scale == pytest.approx(127 / np.abs(matrix).max())
    stored = np.frombuffer(data, np.int8, 64, place)
    np.testing.assert_array_equal(stored, np.rint(matrix[:, 0] * scale))


@pytest.mark.parametrize("content", [b"", b"no model at all, but rather long", bytes(64)])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.bin").write_bytes(content)
    with pytest.raises(ValueError, match="model file"):
        read_binary(tmp_path / "model.bin")


def test_a_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    write_binary(tmp_path / "model.bin", TENSORS, int8=True)
    data = (tmp_path / "model.bin").read_bytes()
    for length in (20, 150, 400, len(data) - 1):
        (tmp_path / "model.bin").write_bytes(data[:length])
        with pytest.raises(ValueError, match="model file"):
            read_binary(tmp_path / "model.bin")
