"""How wide the range of a peak is: as errors on software and settings that nobody said."""

import math
from dataclasses import replace

import pytest

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import stack
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.process import Process
from trainwright.planner.forecast.memory.table import deviation, predict_memory
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Adapter, ParallelPlan, Workload

WORK = Workload(sequence_tokens=512, batch_tokens=512, steps=1, precision="bf16", optimizer="adamw")


def run(software="hf-trainer", **changes):
    work = replace(WORK, **changes)
    on = cluster("1xa100-sxm-80gb")
    return RunSpec(model=catalogue_model("gpt2-124m"), workload=work, cluster=on, stack=stack(software))


def test_the_range_is_wider_than_the_stacks_own_rows_and_wider_still_for_adapters():
    own = stack("hf-trainer").memory.spread
    assert deviation(run()) == pytest.approx(math.hypot(own, 0.03))
    assert deviation(run(adapter=Adapter(rank=8))) == pytest.approx(math.hypot(own, 0.03, 0.12))


def test_a_stack_with_anothers_numbers_is_less_certain_than_it():
    assert stack("hf-peft").memory_of == "hf-trainer"
    assert deviation(run("hf-peft")) > deviation(run("hf-trainer"))


def test_a_process_that_was_measured_has_the_stacks_own_range():
    asked = run("trainwright")
    layouts = Layouts.of([ParallelPlan()], ["none"], asked.workload)
    measured = predict_memory(asked, layouts, process=Process(baseline_bytes=1e8, transient=0.1, waste=0.1))
    assert measured.spread[0] == pytest.approx(asked.stack.memory.spread)
    assert predict_memory(asked, layouts).spread[0] == pytest.approx(deviation(asked))
