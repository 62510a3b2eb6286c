from dataclasses import replace

import pytest

from fixtures.planned_models import LLAMA
from trainwright.core.errors import MachineError
from trainwright.hardware.nvidia import Gpu
from trainwright.hardware.record import Machine
from trainwright.planner.local import MEMORY_SHARE, local
from trainwright.planner.rates import Datasheet, Probed
from trainwright.testing.machine import BASELINE_BYTES, TRANSIENT, fake_facts, fake_machine

GPU = Gpu(
    name="NVIDIA A100-SXM4-80GB", memory_bytes=80 << 30, memory_free_bytes=79 << 30, compute_capability="8.0",
    driver="550", cuda="12.4",
)  # fmt: skip


def planned(machine, *, wanted="auto", compiled=False):
    return local(machine, LLAMA, wanted=wanted, tokens=512, compiled=compiled)


def test_probed_numbers_are_taken_where_they_are_there():
    here = planned(fake_machine())
    assert isinstance(here.device.rates, Probed)
    assert here.device.process.baseline_bytes == BASELINE_BYTES
    assert here.device.process.transient == pytest.approx(TRANSIENT, rel=1e-3)
    assert here.device.memory_available_bytes == MEMORY_SHARE * (16 << 30)
    assert here.threads == 4
    assert {entry.origin for entry in here.assumptions} == {"probed", "default"}


def test_without_probes_every_number_says_that_it_is_a_default():
    here = planned(Machine(facts=fake_facts()))
    assert isinstance(here.device.rates, Datasheet)
    assert {entry.origin for entry in here.assumptions} == {"default"}
    assert here.surroundings.spread[1] > planned(fake_machine()).surroundings.spread[1]


def test_an_unprobed_gpu_is_taken_from_the_catalogue():
    here = planned(Machine(facts=replace(fake_facts(), gpus=(GPU,))))
    assert here.device.kind == "cuda"
    assert here.peak_flops_per_s["bf16"] == 312e12
    assert here.threads is None
    assert "catalog" in {entry.origin for entry in here.assumptions}


def test_cuda_that_is_not_there_cannot_be_planned_for():
    with pytest.raises(MachineError, match=r"no CUDA device here; set train.exec.device=cpu"):
        planned(fake_machine(), wanted="cuda")


def test_compiling_costs_time_and_memory_and_says_so():
    plain, compiled = planned(fake_machine()), planned(fake_machine(), compiled=True)
    assert compiled.surroundings.compile_s > plain.surroundings.compile_s == 0
    assert compiled.device.process.baseline_bytes > plain.device.process.baseline_bytes
    assert len(compiled.assumptions) == len(plain.assumptions) + 3
