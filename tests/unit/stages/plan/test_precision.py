"""Which measured precision stands for another one, and which device has none: by hand from the catalogue's rates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.planned_recipe import plan_of, planned_recipe
from trainwright.core.errors import MachineError, RecipeError
from trainwright.hardware.catalogue.devices import device
from trainwright.hardware.machine.nvidia import Gpu
from trainwright.planner.plan.machine import this_machine
from trainwright.spec.workload import Adapter, Workload
from trainwright.stages.plan import precision
from trainwright.stages.plan.precision import at_precision
from trainwright.testing.machine import fake_machine


@pytest.fixture
def planned(tmp_path):
    return lambda *overrides, machine=None: plan_of(planned_recipe(tmp_path, *overrides), machine)


def probed(name: str):
    """The fake machine's record, as of an accelerator of this name."""
    machine = fake_machine()
    assert machine.probes is not None
    probes = replace(machine.probes, device_kind="cuda", device_name=name, memory_bytes=80 << 30)
    return replace(machine, probes=probes)


def test_fp16_on_a_processor_counts_as_fp32_with_a_range_that_says_how_little_is_known(planned) -> None:
    half, whole = planned("train.precision=fp16"), planned("train.precision=fp32", "train.exec.micro_batch=8")
    assert half.workload.precision == "fp16"
    assert half.estimate.phases.forward == pytest.approx(whole.estimate.phases.forward)
    assert half.estimate.seconds.high > 30 * half.estimate.seconds.mid
    (note,) = (each for each in half.estimate.assumptions if each.key == "precision_rate")
    assert "nobody measured" in note.source


def test_memory_is_that_of_sixteen_bits_and_of_weights_in_fp32(planned) -> None:
    half, brain = (planned(f"train.precision={each}", "train.exec.micro_batch=8") for each in ("fp16", "bf16"))
    assert half.estimate.memory == brain.estimate.memory


@pytest.mark.parametrize("name", ["h100-sxm", "a100-sxm-80gb"])
def test_an_accelerator_is_as_fast_as_measured_times_the_datasheets_proportion(name) -> None:
    spec = device(name)
    here = at_precision(this_machine(probed(name)), "fp16")
    assert here.source.measured == "bf16"
    assert here.source.faster == spec.flops_per_s["fp16"] / spec.flops_per_s["bf16"]
    assert here.cluster.device.flops_per_s["fp16"] == spec.flops_per_s["fp16"]


def test_what_was_measured_or_needs_no_other_rate_stays(planned) -> None:
    here = this_machine(fake_machine())
    assert at_precision(here, "bf16") is here
    assert at_precision(here, "fp32") is here


def test_an_accelerator_that_nobody_listed_has_no_fp16_that_is_known() -> None:
    with pytest.raises(RecipeError) as raised:
        at_precision(this_machine(probed("Nobody's")), "fp16")
    said = str(raised.value)
    assert "this device has no fp16" in said
    assert "which the catalogue does not know" in said
    assert raised.value.exit_code == 2


def test_an_accelerator_that_was_not_measured_has_what_its_datasheet_has() -> None:
    facts = fake_machine().facts
    told = {"compute_capability": "9.0", "driver": "570.1", "cuda": "12.8"}
    gpu = Gpu(name="NVIDIA H100 80GB HBM3", memory_bytes=80 << 30, memory_free_bytes=79 << 30, **told)
    machine = replace(fake_machine(), facts=replace(facts, gpus=(gpu,)), probes=None)
    here = this_machine(machine)
    assert at_precision(here, "fp16") is here


@pytest.mark.parametrize("precision", ["tf32", "fp8"])
def test_a_processor_has_neither(planned, precision) -> None:
    with pytest.raises(RecipeError) as raised:
        planned(f"train.precision={precision}")
    said = str(raised.value)
    assert f"this device has no {precision}" in said
    assert "Ideal CPU (cpu)" in said
    assert "set train.precision=bf16" in said


def test_tf32_is_as_fast_as_the_datasheet_has_it_over_fp32() -> None:
    spec = device("a100-sxm-80gb")
    here = at_precision(this_machine(probed("a100-sxm-80gb")), "tf32")
    assert (here.source.measured, here.source.faster) == ("fp32", spec.flops_per_s["tf32"] / spec.flops_per_s["fp32"])


@pytest.mark.parametrize("name", ["v100-sxm-32gb", "mi250x"])
def test_a_device_without_the_rate_is_refused(name) -> None:
    with pytest.raises(RecipeError, match=r"this device has no tf32.*expected one of"):
        at_precision(this_machine(probed(name)), "tf32")


def test_nf4_needs_a_device_that_a_library_has_it_on() -> None:
    adapter = Adapter(rank=4, frozen="nf4")
    work = Workload(sequence_tokens=8, batch_tokens=8, steps=1, precision="bf16", optimizer="adamw", adapter=adapter)
    for name in ("h100-sxm", "mi300x"):
        precision.check_frozen(work, device(name))
    with pytest.raises(RecipeError, match=r"train\.method\.frozen: .*devices of kind tpu.*expected one of cuda.*cpu"):
        precision.check_frozen(work, device("tpu-v5p"))
    precision.check_frozen(replace(work, adapter=replace(adapter, frozen="bf16")), device("tpu-v5p"))


def test_fp8_needs_a_device_that_has_it_and_a_package_that_computes_in_it(monkeypatch) -> None:
    monkeypatch.setattr(precision, "find_spec", lambda name: None)
    with pytest.raises(RecipeError, match="this device has no fp8"):
        at_precision(this_machine(probed("a100-sxm-80gb")), "fp8")
    with pytest.raises(MachineError, match=r"torchao, which is not installed.*trainwright\[float8\]") as raised:
        at_precision(this_machine(probed("h100-sxm")), "fp8")
    assert raised.value.exit_code == 3
    monkeypatch.setattr(precision, "find_spec", lambda name: object())
    here, spec = at_precision(this_machine(probed("h100-sxm")), "fp8"), device("h100-sxm")
    assert (here.source.measured, here.source.faster) == ("bf16", spec.flops_per_s["fp8"] / spec.flops_per_s["bf16"])
