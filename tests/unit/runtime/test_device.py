import pytest
import torch

from trainwright.core.errors import MachineError
from trainwright.runtime import device as devices


def test_a_machine_without_cuda_computes_on_its_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    chosen = devices.choose()
    assert (chosen.kind, chosen.memory_bytes) == ("cpu", None)
    assert chosen.torch_device == torch.device("cpu")
    devices.synchronise(chosen.torch_device)


@pytest.mark.parametrize(("built", "seen"), [(None, "built for processors alone"), ("12.8", "finds no CUDA device")])
def test_asking_for_cuda_in_vain_says_what_is_missing(monkeypatch, built, seen):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", built)
    with pytest.raises(MachineError, match=seen):
        devices.choose("cuda")


@pytest.mark.parametrize(("features", "native"), [(("avx2", "amx_bf16"), True), (("avx512f",), False)])
def test_native_bf16_follows_the_instructions(monkeypatch, features, native):
    monkeypatch.setattr(devices, "cpu_features", lambda: features)
    devices.native_bf16.cache_clear()
    assert devices.choose("cpu").native_bf16 is native
    devices.native_bf16.cache_clear()


@pytest.mark.cuda
def test_a_gpu_is_chosen_and_described():
    chosen = devices.choose()
    assert chosen.kind == "cuda"
    assert chosen.memory_bytes > 1 << 30
    devices.synchronise(chosen.torch_device)
