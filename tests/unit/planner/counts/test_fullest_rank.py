"""How full the fullest rank of experts is, against drawn routings and published loads."""

from dataclasses import replace

import numpy as np
import pytest

from fixtures.drawn_routings import drawn
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import stack
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.ranks import expected_largest, fullest, processors_left
from trainwright.spec.parts.experts import Experts
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import ParallelPlan, Workload

DEEPSEEK, MIXTRAL = catalogue_model("deepseek-v3"), catalogue_model("mixtral-8x7b")


WORK = Workload(sequence_tokens=4096, batch_tokens=4096 * 512, steps=1, precision="fp8", optimizer="adamw")


def experts(count, active, groups=1, active_groups=1):
    return Experts(count=count, active=active, ffn_width=8, groups=groups, active_groups=active_groups)


def load_of(model, work=WORK, **plan):
    return float(fullest(model, work, Layouts.of([ParallelPlan(**plan)], ["none"], work))[0])


@pytest.mark.parametrize("count", [2, 8, 64, 256])
def test_the_expected_largest_is_that_of_drawn_numbers(count):
    largest = np.random.default_rng(0).standard_normal((20_000, count)).max(axis=1).mean()
    assert expected_largest(count) == pytest.approx(largest, abs=0.02)
    assert expected_largest(1) == 0


@pytest.mark.parametrize(("ep", "tokens"), [(8, 64), (16, 256), (64, 32)])
def test_the_fullest_rank_is_that_of_drawn_routings(ep, tokens, monkeypatch):
    """Of experts that are equally popular: ``ep`` ranks of ``tokens`` tokens each, routed at random."""
    monkeypatch.setattr("trainwright.planner.counts.ranks.VIOLATION", {"loss": 0.0, "bias": 0.0})
    model = replace(MIXTRAL, experts=experts(64, 4))
    loads = []
    for seed in range(40):
        counts = np.bincount((drawn(model.experts, ep * tokens, seed=seed) // (64 // ep)).ravel(), minlength=ep)
        loads.append(counts.max() / counts.mean())
    work = replace(WORK, sequence_tokens=tokens, batch_tokens=tokens * 512)
    assert load_of(model, work, dp_shard=ep, ep=ep) == pytest.approx(np.mean(loads), rel=0.03)


def test_one_expert_a_rank_is_as_uneven_as_published():
    """64 experts on 64 ranks, many tokens: the violation that Wang et al. (2024, table 2) measured itself."""
    work = replace(WORK, sequence_tokens=1 << 20, batch_tokens=1 << 30)
    even = replace(MIXTRAL, experts=replace(experts(64, 6), balance="bias"))
    by_loss = replace(MIXTRAL, experts=experts(64, 6))
    assert load_of(by_loss, work, dp_shard=64, ep=64) == pytest.approx(1.62, abs=0.01)
    assert load_of(even, work, dp_shard=64, ep=64) == pytest.approx(1.04, abs=0.005)
    # More experts on each rank even out.
    assert load_of(by_loss, work, dp_shard=8, ep=8) < 1.62 and load_of(by_loss, work) == 1


def test_what_the_user_says_of_the_fullest_rank_holds():
    stated = replace(WORK, expert_imbalance=1.3)
    assert load_of(DEEPSEEK, stated, dp_shard=64, ep=64) == 1.3
    assert load_of(DEEPSEEK, stated, dp_shard=64) == 1 == load_of(catalogue_model("llama3-8b"), stated, dp_shard=64)


def test_sending_beside_a_pipeline_takes_processors():
    """20 of an H800's 132 (DeepSeek-V3, arXiv 2412.19437, section 3.2.2), where two directions run together."""
    run = RunSpec(model=DEEPSEEK, workload=WORK, cluster=cluster("256x8xh800-sxm"), stack=stack("hai-llm"))
    both = ParallelPlan(pp=16, dp_shard=128, ep=64, schedule="dualpipe")
    plans = [both, replace(both, schedule="1f1b"), ParallelPlan(pp=16, dp_shard=128, schedule="dualpipe")]
    left = processors_left(run, Layouts.of(plans, ["none"] * 3, WORK))
    assert left.tolist() == pytest.approx([1 - 20 / 132, 1.0, 1.0])
