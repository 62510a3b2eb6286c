"""What kernels do not run with is known from a plan, a line for each field with the value that can be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.planned_recipe import plan_of, planned_recipe
from trainwright.core.errors import MachineError, RecipeError
from trainwright.hardware.catalogue.devices import device
from trainwright.model.kernels import refusals as module
from trainwright.model.kernels.refusals import check, refusals
from trainwright.spec.parts.dropout import Dropout
from trainwright.spec.plan import Plan
from trainwright.spec.workload import KernelChoice, ParallelPlan
from trainwright.stages.train.layout import check_executable

FLEX, FLASH3, GRAPHS = KernelChoice(attention="flex"), KernelChoice(attention="fa3"), KernelChoice(cuda_graphs=True)


@pytest.fixture
def planned(tmp_path):
    """A plan of a tiny run, as if for a device of the catalogue."""
    plan = plan_of(planned_recipe(tmp_path))

    def on(name: str | None = "h100-sxm", *, precision: str = "bf16", **parallel: object) -> Plan:
        node = plan.cluster.node if name is None else replace(plan.cluster.node, device=device(name))
        return replace(
            plan,
            cluster=replace(plan.cluster, node=node),
            workload=replace(plan.workload, precision=precision),
            parallel=ParallelPlan(**{"compile": True} | parallel),
        )

    return on


def lines(plan: Plan, kernels: KernelChoice) -> list[str]:
    return [each.reason for each in refusals(plan, kernels)]


@pytest.mark.parametrize("kernels", [FLEX, FLASH3, GRAPHS])
def test_hopper_runs_all_of_them(planned, kernels) -> None:
    assert not lines(planned(), kernels)


@pytest.mark.parametrize("kernels", [FLEX, FLASH3])
def test_kernels_without_biases_are_refused_by_name(planned, kernels) -> None:
    plan = planned()
    biased = replace(plan, model=replace(plan.model, positions="alibi"))
    line = f"attention={kernels.attention}: it adds no biases of positions (ALiBi); set attention=sdpa"
    assert lines(biased, kernels) == [line]


def test_what_is_usual_is_refused_nowhere(planned) -> None:
    assert not lines(planned(None), KernelChoice())


@pytest.mark.parametrize("name", ["a100-sxm-80gb", "mi300x"])
def test_flex_runs_where_torch_has_its_gradients(planned, name) -> None:
    assert not lines(planned(name), FLEX)


@pytest.mark.parametrize(
    ("name", "kernels", "line"),
    [
        (None, FLEX, r"attention=flex: torch computes no gradients of it on Ideal CPU \(cpu\); set attention=sdpa"),
        (None, FLASH3, "attention=fa3: it is for Hopper .*, not for Ideal CPU; set attention=sdpa"),
        ("a100-sxm-80gb", FLASH3, "attention=fa3: it is for Hopper .*, not for a100-sxm-80gb"),
        ("b200-sxm", FLASH3, "attention=fa3: it is for Hopper"),
        (None, GRAPHS, r"cuda_graphs: Ideal CPU \(cpu\) launches none; set cuda_graphs=false"),
        ("mi300x", GRAPHS, r"cuda_graphs: mi300x \(rocm\) launches none"),
    ],
)
def test_other_devices_are_refused_in_one_line(planned, name, kernels, line) -> None:
    plan = planned(name)
    with pytest.raises(RecipeError, match=line):
        check(plan, kernels)
    with pytest.raises(RecipeError, match=line) as error:
        check(plan, kernels)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kernels", "parallel", "line"),
    [
        (GRAPHS, {"compile": False}, "cuda_graphs: .*; set compile=true"),
        (GRAPHS, {"dp_shard": 2}, "cuda_graphs: .*no fixed place in memory; set layout={}"),
        (replace(FLASH3, cuda_graphs=True), {}, "cuda_graphs: FlashAttention-3 .*; set attention=sdpa or flex"),
    ],
)
def test_what_graphs_do_not_run_with(planned, kernels, parallel, line) -> None:
    with pytest.raises(RecipeError, match=rf"train\.exec\.cuda_graphs: .*{line}"):
        check(planned(**parallel), replace(kernels, attention=kernels.attention))


@pytest.mark.parametrize("kernels", [FLEX, FLASH3])
def test_dropped_weights_and_selective_recomputation_are_refused_by_name(planned, kernels) -> None:
    plan = planned()
    dropping = replace(plan, model=replace(plan.model, dropout=Dropout(attention=0.1)))
    with pytest.raises(RecipeError, match=r"it drops no weights; set model\.dropout\.attention=0, or attention=math"):
        check(dropping, kernels)
    assert not lines(replace(plan, model=replace(plan.model, dropout=Dropout(residual=0.1))), kernels)
    with pytest.raises(RecipeError, match="recompute=selective keeps; set recompute=none or full"):
        check(replace(plan, workload=replace(plan.workload, recompute="selective")), kernels)


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_flash_attention_3_computes_in_sixteen_bits(planned, precision) -> None:
    assert lines(planned(precision=precision), FLASH3) == [
        f"attention=fa3: it computes in 16 bits, not in {precision}; set precision=bf16"
    ]
    assert not lines(planned(precision="fp8"), FLASH3)


def test_flex_has_no_narrow_heads(planned) -> None:
    plan = planned()
    assert lines(replace(plan, model=replace(plan.model, head_size=8)), FLEX) == [
        "attention=flex: heads are 16 or larger, not 8; set attention=sdpa"
    ]


@pytest.mark.parametrize("size", [12, 264])
def test_flash_attention_3_has_heads_of_some_sizes(planned, size) -> None:
    plan = planned()
    (line,) = lines(replace(plan, model=replace(plan.model, head_size=size)), FLASH3)
    assert line.endswith(f"multiples of 8 up to 256, not {size}; set attention=sdpa")


def test_a_device_is_known_by_its_name_where_nobody_measured_its_capability(planned) -> None:
    plan = planned()
    unnamed = replace(plan.cluster.node.device, compute_capability=None)
    node = replace(plan.cluster.node, device=unnamed)
    assert not lines(replace(plan, cluster=replace(plan.cluster, node=node)), FLASH3)


def test_every_reason_is_told_at_once(planned) -> None:
    plan = planned(None, precision="fp32", compile=False)
    with pytest.raises(RecipeError) as error:
        check(plan, replace(FLASH3, cuda_graphs=True))
    assert all(text in str(error.value) for text in ("Hopper", "16 bits", "launches none"))
    assert "compile=true" not in str(error.value), "no advice that helps nothing on this device"


def test_a_package_that_is_missing_is_named_before_anything_runs(planned, monkeypatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(MachineError, match=r"not installed .*pip install --no-build-isolation 'git.*=hopper', or set"):
        check(planned(), FLASH3)
    monkeypatch.setattr(module, "find_spec", lambda name: object())
    check(planned(), FLASH3)


@pytest.mark.parametrize("change", ["attention=flex", "attention=fa3", "cuda_graphs=true"])
def test_the_trainer_refuses_a_plan_of_another_place_too(tmp_path, change) -> None:
    recipe = planned_recipe(tmp_path)
    plan = plan_of(recipe)
    asked = planned_recipe(tmp_path, f"train.exec.{change}")
    with pytest.raises(RecipeError, match=f"cannot execute this plan .*{change.partition('=')[0]}"):
        check_executable(plan, asked)


@pytest.mark.parametrize("kernels", [FLEX, FLASH3])
def test_an_encoder_sees_what_these_kernels_hide(planned, kernels) -> None:
    plan = planned()
    encoder = replace(plan, model=replace(plan.model, family="bert", kind="encoder"))
    (line,) = lines(encoder, kernels)
    assert line == f"attention={kernels.attention}: it hides later tokens, which bert sees; set attention=sdpa"
