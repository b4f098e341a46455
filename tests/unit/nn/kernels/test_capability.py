"""What a machine multiplies fast, for processors and GPUs that are not this one."""

import pytest
import torch

from transformer_mt.devices import warn_of_slow_precision
from transformer_mt.nn.kernels.capability import has_onednn, has_vnni, multiplies_fast

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def sapphire_rapids(monkeypatch):
    """An x86 processor with AVX-512, bf16 and VNNI instructions; no limits in the environment."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("torch.backends.mkldnn.is_available", lambda: True)
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: True)
    monkeypatch.setattr("torch.cpu._is_vnni_supported", lambda: True)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)


@pytest.mark.usefixtures("sapphire_rapids")
@pytest.mark.parametrize(
    ("isa", "bf16", "vnni"),
    [
        ("", True, True),
        ("ALL", True, True),
        ("AVX512_CORE_AMX", True, True),
        ("avx512_core_bf16", True, True),
        ("AVX512_CORE_VNNI", False, True),
        ("AVX512_CORE", False, False),
        ("AVX2", False, False),
        ("SSE41", False, False),
    ],
)
def test_onednns_greatest_isa_hides_newer_instructions(monkeypatch, isa, bf16, vnni):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", isa)
    assert multiplies_fast(torch.bfloat16, CPU) is bf16
    assert has_vnni() is vnni


@pytest.mark.usefixtures("sapphire_rapids")
@pytest.mark.parametrize("capability", ["AVX2", "DEFAULT"])
def test_torchs_own_limit_hides_newer_instructions(monkeypatch, capability):
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: capability)
    assert not multiplies_fast(torch.bfloat16, CPU)
    assert not has_vnni()
    assert has_onednn() is (capability == "AVX2")


@pytest.mark.usefixtures("sapphire_rapids")
def test_avx512_without_bf16_instructions_is_not_fast_in_bf16(monkeypatch):
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: False)
    assert not multiplies_fast(torch.bfloat16, CPU)


@pytest.mark.usefixtures("sapphire_rapids")
def test_arm_is_fast_in_bf16_where_torch_says_so(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "DEFAULT")
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: False)
    assert multiplies_fast(torch.bfloat16, CPU)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    assert not multiplies_fast(torch.bfloat16, CPU)


@pytest.mark.parametrize(
    ("capability", "bf16", "fp16"),
    [((6, 1), False, False), ((7, 5), False, True), ((8, 0), True, True), ((9, 0), True, True)],
)
def test_gpus_before_ampere_are_not_fast_in_bf16(monkeypatch, capability, bf16, fp16):
    monkeypatch.setattr("torch.version.hip", None)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: capability)
    assert multiplies_fast(torch.bfloat16, CUDA) is bf16
    assert multiplies_fast(torch.float16, CUDA) is fp16
    assert multiplies_fast(torch.float32, CUDA)


@pytest.mark.parametrize(
    ("precision", "device", "capability", "is_slow"),
    [
        ("bf16", CPU, None, True),
        ("fp16", CPU, None, True),
        ("fp32", CPU, None, False),
        ("bf16", CUDA, (7, 5), True),
        ("fp16", CUDA, (7, 5), False),
        ("bf16", CUDA, (8, 0), False),
    ],
)
def test_a_precision_without_instructions_gets_a_warning(
    monkeypatch, caplog, precision, device, capability, is_slow
):
    monkeypatch.setattr("transformer_mt.nn.kernels.capability._has_bf16", lambda: False)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: capability)
    monkeypatch.setattr("torch.version.hip", None)
    warn_of_slow_precision(precision, device, setting="--precision")
    assert (f"--precision {precision}: this" in caplog.text) == is_slow
