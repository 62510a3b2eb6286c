from dataclasses import replace

import numpy as np
import pytest

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster as catalogue_cluster
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.lengths import padded_tokens
from trainwright.planner.forecast.communication.exchange import KINDS
from trainwright.planner.forecast.forecast import forecast, step_s
from trainwright.planner.forecast.networks import counted
from trainwright.planner.forecast.padded import padded_run, sent_of
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Adapter, ParallelPlan, Workload

WORK = Workload(
    sequence_tokens=2048,
    batch_tokens=16 * 2048,
    steps=1,
    precision="bf16",
    optimizer="adamw",
    fused_loss=True,
    adapter=Adapter(rank=16),
    example_tokens=200,
    example_spread=0.6,
)
RUN = RunSpec(
    model=catalogue_model("llama3-8b"),
    workload=WORK,
    cluster=catalogue_cluster("8xa100-80gb"),
    stack=read_stack("default"),
)
PLANS = [ParallelPlan(micro_batch_sequences=size, dp_shard=8) for size in (1, 2)]


def rows(plans=PLANS, work=WORK):
    return Layouts.of(plans, ["full"] * len(plans), work)


@pytest.mark.parametrize("plan", PLANS)
def test_time_is_that_of_sequences_of_the_padded_length(plan):
    layouts = rows([plan])
    tokens = int(padded_tokens(WORK, layouts)[0])
    full = replace(WORK, example_tokens=None, sequence_tokens=tokens, batch_tokens=16 * tokens)
    mixed, equal = (
        forecast(RUN, layouts, CATALOGUE),
        forecast(replace(RUN, workload=full), rows([plan], full), CATALOGUE),
    )
    assert mixed.step_s[0] == equal.step_s[0]
    assert padded_run(RUN, layouts).workload == full
    # Of the tokens that are computed only the examples' count.
    assert mixed.tokens_per_s_per_device[0] == pytest.approx(equal.tokens_per_s_per_device[0] * 200 / tokens)


def test_memory_is_that_of_the_longest():
    full = replace(WORK, example_tokens=None)
    longest = forecast(replace(RUN, workload=full), rows(work=full), CATALOGUE).memory
    assert (forecast(RUN, rows(), CATALOGUE).memory.needed_bytes == longest.needed_bytes).all()


def test_layouts_together_are_what_each_is_alone():
    alone = np.array([step_s(RUN, rows([plan]), CATALOGUE)[0] for plan in PLANS])
    assert step_s(RUN, rows(), CATALOGUE) == pytest.approx(alone)
    backwards = step_s(RUN, rows(PLANS[::-1]), CATALOGUE)
    assert backwards == pytest.approx(alone[::-1])
    assert len(step_s(RUN, rows([]), CATALOGUE)) == 0


def test_what_is_sent_for_weights_is_the_same_at_any_length():
    """One count for all layouts that divide data alone: each is what a count of that layout by itself says."""
    plans = [ParallelPlan(micro_batch_sequences=size, dp_shard=8) for size in (1, 2)]
    plans += [ParallelPlan(micro_batch_sequences=size, dp_shard=2, cp=4) for size in (1, 2)]
    layouts, exchange = rows(plans), counted(RUN.model).exchange
    together, calls = sent_of(RUN, layouts, exchange), []
    for place in range(len(plans)):
        one = layouts.take(np.asarray([place]))
        alone = exchange(padded_run(RUN, one), one)
        for kind in KINDS:
            value = np.broadcast_to(getattr(together, f"{kind}_s"), len(plans))[place]
            assert value == pytest.approx(float(np.broadcast_to(getattr(alone, f"{kind}_s"), 1)[0]), rel=0.03), kind
    sent_of(RUN, rows(PLANS), lambda run, some: calls.append(len(some)) or exchange(run, some))
    assert calls == [2]
