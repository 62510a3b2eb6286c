"""Every kind of device keeps the contract on a fake one; what is special to one kind."""

from __future__ import annotations

import pytest
import torch

from trainwright.hardware.catalogue.accelerators import accelerators
from trainwright.runtime.accelerators import compiler, record_of
from trainwright.runtime.device import choose, pins, widest
from trainwright.spec.sections.train import DEVICES
from trainwright.testing.accelerator import FakeAccelerator
from trainwright.testing.contract_accelerator import AcceleratorContract


class TestCuda(AcceleratorContract):
    kind = "cuda"


class TestRocm(AcceleratorContract):
    kind = "rocm"


class TestNpu(AcceleratorContract):
    kind = "npu"


class TestTpu(AcceleratorContract):
    kind = "tpu"


class TestMps(AcceleratorContract):
    kind = "mps"


class TestXpu(AcceleratorContract):
    kind = "xpu"


def test_every_device_that_a_recipe_can_name_has_a_record() -> None:
    assert {record.kind for record in accelerators()} == set(DEVICES)


@pytest.mark.parametrize(("capability", "native"), [((7, 0), False), ((7, 5), False), ((8, 0), True), ((12, 0), True)])
def test_cuda_multiplies_bf16_from_ampere_on(capability: tuple[int, int], native: bool) -> None:
    with FakeAccelerator("cuda", capability=capability):
        assert choose("cuda").native_bf16 is native


def test_torch_s_cuda_is_rocm_where_torch_was_built_with_it() -> None:
    with FakeAccelerator("rocm"):
        assert record_of("cuda").kind == "rocm"
        with pytest.raises(Exception, match=r"no CUDA device here \(seen torch .* computes on cuda\); set .*=rocm"):
            choose("cuda")
    assert record_of("cuda").kind == ("rocm" if torch.version.hip else "cuda")


def test_a_tpu_has_its_own_compiler() -> None:
    assert compiler("tpu") == "tpu"


@pytest.mark.parametrize("kind", ["npu", "tpu"])
def test_a_package_that_is_missing_is_named_with_its_extra(kind: str) -> None:
    with pytest.raises(Exception, match=rf"torch_{kind} is not installed\); pip install 'trainwright\[train,{kind}\]'"):
        choose(kind)


@pytest.mark.cuda
def test_torch_describes_a_gpu() -> None:
    found = choose("cuda")
    assert found.memory_bytes
    assert found.native_bf16 is (torch.cuda.get_device_capability()[0] >= 8)


@pytest.mark.parametrize(("torch_type", "pinned"), [("cpu", False), ("cuda", True), ("mps", False), ("xpu", True)])
def test_batches_are_pinned_for_devices_that_copy_from_such_memory(torch_type: str, pinned: bool) -> None:
    assert pins(torch_type) is pinned


@pytest.mark.parametrize(
    ("torch_type", "dtype"),
    [("cpu", torch.float64), ("cuda", torch.float64), ("xpu", torch.float64), ("mps", torch.float32)],
)
def test_exact_sums_are_in_fp64_where_the_device_has_it(torch_type: str, dtype: torch.dtype) -> None:
    assert widest(torch_type) is dtype
