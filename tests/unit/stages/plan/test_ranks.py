"""This machine as several devices: what each has, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.planned_recipe import GPU, plan_of, planned_recipe
from trainwright.core.errors import RecipeError
from trainwright.hardware.machine.record import Machine
from trainwright.planner.plan.machine import this_machine
from trainwright.spec.plan import Plan
from trainwright.spec.sections.layout import LayoutSection
from trainwright.spec.sections.train import TrainExec
from trainwright.spec.workload import ZeroStage
from trainwright.stages.plan.ranks import BETWEEN_PROCESSORS, here_for, kept, on_ranks, ranks_of, threads_of
from trainwright.stages.train.layout import check_executable
from trainwright.testing.machine import fake_machine


def test_the_processors_are_divided_over_the_ranks() -> None:
    machine = fake_machine()
    how = TrainExec(layout={"dp_shard": 2})
    ranks = ranks_of(how, machine.facts)
    threads = threads_of(how, machine.facts, ranks)
    assert (ranks, threads) == (2, machine.facts.cores // 2)
    alone = this_machine(machine)
    here = on_ranks(this_machine(machine, threads=threads), ranks)
    assert here.cluster.devices == 2
    assert here.cluster.device.memory_bytes == alone.cluster.device.memory_bytes // 2
    assert here.cluster.node.scale_up is not None


def test_nodes_are_like_this_machine_and_their_network_is_assumed() -> None:
    machine = fake_machine()
    how = TrainExec(layout={"dp_shard": 4}, nodes=2)
    assert threads_of(how, machine.facts, 4) == machine.facts.cores // 2
    cluster = here_for(how, machine).cluster
    assert (cluster.nodes, cluster.node.devices, cluster.devices) == (2, 2, 4)
    assert cluster.scale_out is not None
    assert cluster.node.host_memory_bytes == this_machine(machine).cluster.node.host_memory_bytes
    (network,) = (each for each in here_for(how, machine).rates if each.key == "scale_out")
    assert (network.value, network.origin) == (BETWEEN_PROCESSORS, "default")
    assert here_for(TrainExec(layout={"dp_shard": 4}), machine).cluster.scale_out is None
    assert ranks_of(TrainExec(nodes=3), machine.facts) == 3


def test_nodes_that_cannot_share_a_layout_evenly_are_refused() -> None:
    with pytest.raises(ValueError, match="3 nodes cannot have as many of the layout's 4 ranks each"):
        TrainExec(layout={"dp_shard": 4}, nodes=3)


def test_one_rank_is_the_machine_itself() -> None:
    machine = fake_machine()
    here = this_machine(machine)
    assert ranks_of(TrainExec(), machine.facts) == 1
    assert on_ranks(here, 1) is here
    assert here_for(TrainExec(), machine).cluster == here.cluster


def test_a_layout_that_cannot_run_says_why(tmp_path) -> None:
    recipe = planned_recipe(tmp_path)
    heads = recipe.model_spec(vocabulary=1024).heads
    how = recipe.train.exec.model_copy(update={"layout": LayoutSection(tp=heads + 1)})
    asked = recipe.model_copy(update={"train": recipe.train.model_copy(update={"exec": how})})
    with pytest.raises(
        RecipeError, match=rf"this layout cannot run: .*heads \({heads}\) cannot be divided over tp={heads + 1}"
    ):
        plan_of(asked)


def test_processes_share_the_peak_of_a_processor() -> None:
    machine = fake_machine()
    alone, shared = this_machine(machine), here_for(TrainExec(layout=LayoutSection(dp_shard=2)), machine)
    peaks = [each.cluster.devices * each.cluster.device.flops_per_s["fp32"] for each in (alone, shared)]
    assert peaks[0] == peaks[1] > 0


def test_a_plan_of_several_ranks_is_laid_out_as_asked(tmp_path) -> None:
    recipe = planned_recipe(tmp_path)

    def sharing(stage: ZeroStage) -> Plan:
        how = recipe.train.exec.model_copy(update={"layout": LayoutSection(dp_shard=2, zero_stage=stage)})
        return plan_of(recipe.model_copy(update={"train": recipe.train.model_copy(update={"exec": how})}))

    plan = sharing(1)
    assert (plan.parallel.dp_shard, plan.parallel.zero_stage, plan.cluster.devices) == (2, 1, 2)
    alone = plan_of(recipe)
    assert plan.estimate.memory.optimizer == pytest.approx(alone.estimate.memory.optimizer / 2)
    # FSDP2 cuts the weights at every stage; what stays gathered below the third is communication.
    assert plan.estimate.memory.weights == alone.estimate.memory.weights / 2
    assert plan.estimate.memory.communication > sharing(3).estimate.memory.communication


def test_what_a_recipe_fixes_is_kept_where_the_planner_chooses() -> None:
    assert kept(TrainExec(), compiled=True) == {"compile": True}
    assert kept(TrainExec(micro_batch=4), compiled=False) == {"compile": False, "micro_batch": 4}


def test_auto_takes_every_cuda_device() -> None:
    facts = replace(fake_machine().facts, gpus=(GPU, GPU))
    assert ranks_of(TrainExec(), facts) == 2
    assert ranks_of(TrainExec(device="cpu"), facts) == 1
    assert threads_of(TrainExec(), facts, 2) == "auto"


def test_more_ranks_than_cuda_devices_are_refused() -> None:
    facts = replace(fake_machine().facts, gpus=(GPU,))
    with pytest.raises(RecipeError, match=r"more ranks than this machine has accelerators \(seen 4 ranks, 1 devices\)"):
        ranks_of(TrainExec(layout={"dp_shard": 4}), facts)
    assert ranks_of(TrainExec(layout={"dp_shard": 4}, device="cpu"), facts) == 4


@pytest.fixture
def four_gpus() -> Machine:
    """The fake machine as one with accelerators that the catalogue knows."""
    machine = fake_machine()
    assert machine.probes is not None
    probes = replace(machine.probes, device_kind="cuda", device_name="h100-sxm", memory_bytes=80 << 30)
    return replace(machine, facts=replace(machine.facts, gpus=(GPU,) * 4), probes=probes)


LONG = ("model.context_tokens=1024", "train.sequence_tokens=1024", "train.batch_tokens=2048")
"""Two sequences of an update, so that four devices cannot but divide the model or the sequences."""


@pytest.mark.parametrize(
    ("keys", "axis"),
    [
        (["train.precision=bf16"], "tp"),
        (["train.precision=fp8"], "cp"),
        (["train.precision=bf16", "train.optimizer.moments=int8"], "cp"),
        (["train.precision=fp8", "train.exec.fit_memory=3GiB"], "cp"),
    ],
)
def test_auto_chooses_among_what_the_trainer_executes(four_gpus, tmp_path, keys, axis) -> None:
    recipe = planned_recipe(tmp_path, *LONG, *keys)
    plan = plan_of(recipe, four_gpus)
    assert getattr(plan.parallel, axis) > 1
    check_executable(plan, recipe)


def test_where_nothing_is_executed_auto_says_why(four_gpus, tmp_path) -> None:
    recipe = planned_recipe(tmp_path, "train.precision=fp8", "train.recompute=selective")
    with pytest.raises(RecipeError, match=r"recompute=selective: float8.* set recompute=none or full"):
        plan_of(recipe, four_gpus)
