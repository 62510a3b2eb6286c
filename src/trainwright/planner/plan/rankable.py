"""A run as it is ranked over many clusters: its defaults, and a batch that divides over many ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from trainwright.planner.plan.question import Question, divisible
from trainwright.planner.plan.scenario import Scenario, scenario_of
from trainwright.spec.device import ClusterSpec
from trainwright.spec.plan import Assumption

ANY_CLUSTER = "32x8xh100-sxm"
"""What defaults of a run are resolved on where the user has nothing: precision, and images of a batch."""


def rankable(question: Question, pool: Sequence[ClusterSpec]) -> Scenario:
    """Returns the run with all defaults, its batch rounded to what divides over many ranks and over ``pool``."""
    scenario = scenario_of(replace(question, precision=None))
    if question.precision is not None:  # whatever has it: ``recommend`` asks each device
        kept = tuple(each for each in scenario.assumptions if each.key != "precision")
        workload = replace(scenario.run.workload, precision=question.precision)
        scenario = replace(scenario, run=replace(scenario.run, workload=workload), assumptions=kept)
    workload = scenario.run.workload
    sequences = divisible(workload.batch_sequences, unit=math.lcm(*(each.devices for each in pool)))
    if sequences == workload.batch_sequences:
        return scenario
    batch_tokens = sequences * workload.sequence_tokens
    source = f"of what is near {workload.batch_tokens:,} tokens, what most powers of two divide"
    rounded = Assumption("batch", float(batch_tokens), "tokens", "given", source, key="batch")
    steps = max(1, -(-workload.total_tokens // batch_tokens))
    completed = replace(scenario.run, workload=replace(workload, batch_tokens=batch_tokens, steps=steps))
    others = (each for each in scenario.assumptions if each.key != "batch")
    return replace(scenario, run=completed, assumptions=(*others, rounded))


def defaults_on(pool: Sequence[ClusterSpec]) -> str:
    """Returns the cluster on which the defaults of a run are resolved: the first of ``pool``."""
    return cluster_name(pool[0]) if pool else ANY_CLUSTER


def cluster_name(machines: ClusterSpec) -> str:
    """Returns a cluster in one word, as ``on`` takes it: ``64x8xh100-sxm``."""
    return f"{machines.nodes}x{machines.node.devices}x{machines.device.name}"
