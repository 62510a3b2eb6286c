"""What devices share, and what is left out because none of them has room for it, changes no answer."""

from __future__ import annotations

import random
from dataclasses import fields, replace

import numpy as np
import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.devices import device_names
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster as catalogue_cluster
from trainwright.hardware.catalogue.nodes import node_size
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.planner.counts.work import usable_precision
from trainwright.planner.forecast.networks import counted
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.planner.search.candidates import candidates
from trainwright.planner.search.layouts import compare
from trainwright.planner.search.memo import FEW, Memo
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Workload

STACK = read_stack("default")
WORK = Workload(
    sequence_tokens=4096, batch_tokens=64 * 4096, steps=1, precision="bf16", optimizer="adamw", states="mixed"
)
COUNTS = (1, 8, 16)


def run_on(name, model):
    size = node_size(name)
    machines = catalogue_cluster(f"{max(1, 16 // size)}x{size}x{name}")
    precision = usable_precision(machines.device, None, STACK)
    return RunSpec(model=model, workload=replace(WORK, precision=precision), cluster=machines, stack=STACK)


def runs(model):
    """Returns the run on every kind of device that is no processor, in no order."""
    found = []
    for name in device_names():
        try:
            found.append(run_on(name, model))
        except RecipeError:
            continue
    random.Random(0).shuffle(found)
    return [each for each in found if each.cluster.device.kind != "cpu"]


def answer(run, memo=None):
    """Returns the best of each number of devices with every number of its forecast, and what was left out, and why."""
    counts = [count for count in COUNTS if count <= run.cluster.devices]
    larger = [(replace(run.workload, batch_tokens=2 * WORK.batch_tokens), counts[-1:])]
    try:
        compared = compare(run, counts, thorough=False, larger=larger, memo=memo)
    except RecipeError as error:
        return str(error)
    best = compared.forecast(compared.best(np.ones(len(compared.layouts))))
    numbers = [np.asarray(getattr(best.memory, each.name)).tolist() for each in fields(best.memory)]
    plans = [getattr(best.layouts, each.name).tolist() for each in fields(best.layouts)]
    return best.step_s.tolist(), best.high_s.tolist(), best.mfu.tolist(), numbers, plans, compared.pruned


@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b"])
def test_every_device_gets_the_answer_that_it_gets_alone(name):
    every = runs(catalogue_model(name))
    memo = Memo.of(every)
    assert len(every) > 60
    for run in every:
        assert answer(run, memo) == answer(run), run.cluster.device.name
    assert len(memo.listed) <= FEW and len(memo.counted) <= FEW


def test_what_no_device_has_room_for_is_not_counted():
    run = run_on("a100-sxm-40gb", catalogue_model("llama3-8b"))

    def listed():
        return candidates(run, [1, 8])

    every = Memo().needed(run, (1,), listed, CATALOGUE)
    some = Memo.of([run]).needed(run, (1,), listed, CATALOGUE)
    assert len(every.left.layouts) == len(every.places) == len(some.states) > len(some.places) > 0
    assert np.array_equal(every.states, some.states)
    assert np.array_equal(every.memory.needed_bytes[some.places], some.memory.needed_bytes)
    left = np.ones(len(every.states), dtype=bool)
    left[some.places] = False
    assert not every.memory.fits(run.cluster.device)[left].any()


def test_states_need_no_more_than_the_peak_whatever_is_asked():
    """What is struck out rests on it."""
    model = catalogue_model("llama3-8b")
    for change in ({}, {"states": "pure"}, {"moments": "int8"}, {"paged_moments": True}, {"update_in_backward": True}):
        run = run_on("h100-sxm", model)
        run = replace(run, workload=replace(run.workload, **change))
        for offload in ("none", "optimizer", "all"):
            layouts = candidates(run, [8, 16], wasteful=True, offload=offload).layouts
            needed = counted(model).memory(run, layouts, None).needed_bytes
            assert np.all(counted(model).states_bytes(run, layouts) <= needed * (1 + 1e-12))
