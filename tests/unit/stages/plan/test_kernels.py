"""A plan says what it counts for kernels that nobody has measured, and is not made where they cannot run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.planned_recipe import plan_of, planned_recipe
from trainwright.core.errors import RecipeError
from trainwright.planner.plan.scenario import of_kernels
from trainwright.spec.workload import DEFAULT_KERNELS, KernelChoice
from trainwright.stages.plan.kernels import executable
from trainwright.testing.machine import fake_machine


def test_measured_kernels_need_no_assumption() -> None:
    assert not of_kernels(DEFAULT_KERNELS)


@pytest.mark.parametrize(
    ("kernels", "key", "counted"),
    [
        (KernelChoice(attention="flex"), "attention_kernel", "as sdpa"),
        (KernelChoice(attention="fa3"), "attention_kernel", "as sdpa"),
        (KernelChoice(cuda_graphs=True), "cuda_graphs", "as without"),
    ],
)
def test_what_was_never_run_says_so(kernels, key, counted) -> None:
    (note,) = of_kernels(kernels)
    assert (note.key, note.value, note.origin) == (key, counted, "default")
    assert "never run on hardware" in note.source


@pytest.mark.parametrize("change", ["attention=flex", "attention=fa3", "cuda_graphs=true"])
def test_a_plan_of_this_machine_is_refused_before_anything_runs(tmp_path, change) -> None:
    with pytest.raises(RecipeError, match=rf"train\.exec\.{change.partition('=')[0]}: .*cannot be computed so"):
        plan_of(planned_recipe(tmp_path, f"train.exec.{change}"))


def test_an_accelerator_s_plan_has_the_assumption(tmp_path) -> None:
    machine = fake_machine()
    assert machine.probes is not None
    probes = replace(machine.probes, device_kind="cuda", device_name="h100-sxm", memory_bytes=80 << 30)
    plan = plan_of(planned_recipe(tmp_path, "train.exec.attention=flex"), replace(machine, probes=probes))
    assert "attention_kernel" in {each.key for each in plan.estimate.assumptions}
    assert executable(plan, KernelChoice(attention="flex")) is plan
