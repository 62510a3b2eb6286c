"""A plan is carried out on its device and as it says; torch's switches are put back afterwards."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch

from trainwright.artifact.reading import read_plan
from trainwright.core.errors import MachineError, RecipeError
from trainwright.runtime.execution import Execution, execution_of, torch_settings
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.train import TrainExec
from trainwright.testing.artifacts import make_plan

SETTINGS = Execution(device=torch.device("cpu"), threads=1, deterministic=True)


def planned(root, kind, deterministic) -> Plan:
    model = {"layers": 1, "width": 8, "heads": 1}
    recipe = Recipe.model_validate({"name": "tiny", "model": model, "data": {"sources": [{"kind": "python-stdlib"}]}})
    path = make_plan(root, recipe, vocabulary=300).path / "plan.json"
    plan = read_plan(path)
    node = replace(plan.cluster.node, device=replace(plan.cluster.device, kind=kind))
    return replace(
        plan,
        cluster=replace(plan.cluster, node=node),
        parallel=replace(plan.parallel, threads=3, deterministic=deterministic),
    )


@pytest.mark.parametrize(
    ("said", "asked", "expected"),
    [(True, False, True), (False, True, False), (None, "auto", True), (None, False, False)],
)
def test_the_recipe_decides_only_what_the_plan_leaves_open(tmp_path, said, asked, expected) -> None:
    execution = execution_of(planned(tmp_path, "cpu", said), TrainExec(device="cuda", deterministic=asked))
    assert execution == Execution(device=torch.device("cpu"), threads=3, deterministic=expected)


def test_a_plan_for_a_gpu_is_not_carried_out_on_a_processor(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MachineError, match="no CUDA device here"):
        execution_of(planned(tmp_path, "cuda", None), TrainExec(device="cpu"))


def test_a_plan_for_another_kind_of_device_is_refused(tmp_path) -> None:
    with pytest.raises(RecipeError, match=r"cannot execute this plan \(seen hpu, expected one of cpu, cuda"):
        execution_of(planned(tmp_path, "hpu", None), TrainExec())


def test_tf32_is_for_accelerators_alone_and_gone_afterwards() -> None:
    assert torch.get_float32_matmul_precision() == "highest"
    for device, precision in (("cpu", "highest"), ("cuda", "high")):
        execution = Execution(device=torch.device(device), threads=None, deterministic=False, tf32=True)
        with torch_settings(execution):
            assert torch.get_float32_matmul_precision() == precision
        assert torch.get_float32_matmul_precision() == "highest"


def test_the_plan_says_whether_products_are_in_tf32(tmp_path) -> None:
    plan = planned(tmp_path, "cpu", None)
    tf32 = replace(plan, workload=replace(plan.workload, precision="tf32"))
    assert [execution_of(each, TrainExec()).tf32 for each in (plan, tf32)] == [False, True]


def test_switches_hold_inside_and_come_back_after_an_error() -> None:
    torch.set_num_threads(1)
    before = torch.are_deterministic_algorithms_enabled()
    try:
        with torch_settings(replace(SETTINGS, threads=2)):
            assert torch.get_num_threads() == 2
            assert torch.are_deterministic_algorithms_enabled()
            raise RuntimeError
    except RuntimeError:
        pass
    assert torch.get_num_threads() == 1
    assert torch.are_deterministic_algorithms_enabled() == before


@pytest.mark.parametrize("deterministic", [False, True])
def test_deterministic_algorithms_are_those_asked_for(deterministic) -> None:
    before = torch.are_deterministic_algorithms_enabled()
    with torch_settings(replace(SETTINGS, deterministic=deterministic)):
        assert torch.are_deterministic_algorithms_enabled() == deterministic
    assert torch.are_deterministic_algorithms_enabled() == before


@pytest.mark.parametrize("deterministic", [False, True])
def test_cublas_has_a_fixed_workspace_where_products_must_be_deterministic(monkeypatch, deterministic) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with torch_settings(replace(SETTINGS, device=torch.device("cuda"), deterministic=deterministic)):
        assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == (":4096:8" if deterministic else None)
