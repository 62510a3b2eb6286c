"""What is struck out early is struck out by the whole comparison too: the same layout is found, to the last digit."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster as catalogue_cluster
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.planner.counts.process import Process
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.planner.search.candidates import candidates, parallel_plan
from trainwright.planner.search.fitting import Fitting
from trainwright.planner.search.layouts import compare
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Adapter, Workload

WORK = Workload(
    sequence_tokens=4096, batch_tokens=64 * 4096, steps=1, precision="bf16", optimizer="adamw", states="mixed"
)
LORA = {"adapter": Adapter(rank=16, targets=("query", "value"))}
QLORA = {"adapter": Adapter(rank=16, targets=("query", "value"), frozen="nf4")}
CHANGES = (
    *({}, {"moments": "int8"}, {"states": "pure"}, {"fused_loss": True}, {"fused_attention": False}, LORA, QLORA),
    {"paged_moments": True, "moments": "int8"},
    {"activation_offload": True},
    {"sequence_tokens": 512},
    {"states": "pure", "update_in_backward": True, "batch_tokens": 4096},
)
LAYOUTS = ({}, {"offload": "optimizer"}, {"offload": "all"}, {"recompute": "full"}, {"tp": 2})
CASES = (
    ("llama3-8b", "rtx-4090", "default", CATALOGUE),
    ("llama3-8b", "4xa100-sxm-40gb", "default", CATALOGUE),
    ("mixtral-8x7b", "8xh100-sxm", "megatron-core", CATALOGUE),
    ("llama3-8b", "2x8xl40s", "fsdp-qlora", CATALOGUE),
    ("resnet-50", "2xrtx-3060", "default", CATALOGUE),
    (
        *("llama3-8b", "rtx-3090", "trainwright"),
        replace(CATALOGUE, assumed_process=Process(baseline_bytes=1e9, transient=1.5, waste=0.1)),
    ),
)


def first(run, layout, frugal, source):
    """Returns what ``compare`` puts first: its plan, its seconds and bytes; None: nothing fits."""
    try:
        compared = compare(run, [run.cluster.devices], layout=layout, frugal=frugal, source=source)
    except RecipeError as error:
        return error.what
    return facts(compared.forecast(compared.order()[:1])) if compared.fits.any() else None


def facts(found):
    if found is None:
        return None
    numbers = (found.step_s, found.low_s, found.high_s, found.memory.needed_bytes, found.memory.host_bytes, found.mfu)
    return parallel_plan(found.layouts, 0), [float(each[0]) for each in numbers]


def same(fitting, run, layout, *, frugal):
    """Returns what is found, after a whole comparison has found the same."""
    try:
        found = facts(fitting.best(run, layout, frugal=frugal))
    except RecipeError as error:
        found = error.what
    assert found == first(run, layout, frugal, fitting.source)
    return found


@pytest.mark.parametrize(("name", "machines", "software", "source"), CASES)
def test_every_change_finds_what_a_whole_comparison_finds(name, machines, software, source):
    model, stack = catalogue_model(name), read_stack(software)
    if not model.is_divisible:
        work = replace(WORK, sequence_tokens=1, batch_tokens=256)
        changes = ({}, {"states": "pure"})
    else:
        work, changes = WORK, CHANGES
    fitting, cluster = Fitting(source), catalogue_cluster(machines)
    runs = (RunSpec(model=model, workload=replace(work, **each), cluster=cluster, stack=stack) for each in changes)
    found = [same(fitting, *asked[:2], frugal=asked[2]) for asked in product(runs, LAYOUTS, (False, True))]
    kinds = {"text" if isinstance(each, str) else "nothing" if each is None else "layout" for each in found}
    assert "layout" in kinds


def test_layouts_are_listed_once_for_runs_that_have_the_same():
    cluster, model = catalogue_cluster("4xa100-sxm-40gb"), catalogue_model("llama3-8b")
    fitting = Fitting()
    for change in ({}, {"moments": "int8"}, {"states": "pure"}, {"fused_loss": True}):
        for layout in ({}, {"offload": "optimizer"}, {"offload": "all"}):
            run = RunSpec(model=model, workload=replace(WORK, **change), cluster=cluster, stack=read_stack("default"))
            fitting.best(run, layout)
    assert len(fitting.listed) <= 2  # sensible ones, and all


def test_sensible_layouts_are_some_of_all():
    """What ``Fitting`` rests on: where none of all fits, no sensible one does."""
    for name, machines in (("llama3-8b", "2x8xa100-sxm-80gb"), ("mixtral-8x7b", "8xh100-sxm")):
        run = RunSpec(
            model=catalogue_model(name),
            workload=WORK,
            cluster=catalogue_cluster(machines),
            stack=read_stack("default"),
        )
        plans = [rows(run, wasteful=wasteful) for wasteful in (False, True)]
        assert plans[0] < plans[1]


def rows(run, *, wasteful):
    left = candidates(run, [run.cluster.devices], wasteful=wasteful).layouts
    columns = np.stack([getattr(left, name) for name in left.__dataclass_fields__])
    return set(map(tuple, columns.T))
