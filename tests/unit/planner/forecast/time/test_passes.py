"""A micro batch's passes: what hides what, and which rank is the slowest."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.fixed_rates import IDEAL, combine, counted_work, silence
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.forecast.time.passes import longer
from trainwright.spec.workload import ParallelPlan, Workload

WORK = Workload(sequence_tokens=512, batch_tokens=512 * 64, steps=1, precision="bf16", optimizer="adamw")


def shape(**plan):
    return Layouts.of([ParallelPlan(dp_replicate=4, **plan)], ["none"], WORK)  # 16 micro batches


def test_pairs_hide_what_experts_are_sent():
    each, sent = counted_work(layers=2, products_s=1.0), silence(expert_s=0.5)
    one, both = (combine(each, sent, shape(pp=4, schedule=name), IDEAL) for name in ("1f1b", "dualpipe"))
    assert one.communicate[0] == pytest.approx(16 * 2 * 0.5)
    assert both.communicate[0] < 0.03 * one.communicate[0]
    # Processors that send do not compute.
    slower = combine(each, sent, shape(pp=4, schedule="dualpipe"), IDEAL, left=0.8)
    assert slower.forward[0] == pytest.approx(both.forward[0] / 0.8)


def test_the_head_is_halved_where_a_rank_has_it_for_half_of_the_micro_batches():
    each = counted_work(layers=2, products_s=1.0, head_s=0.5)
    one, both = (combine(each, silence(), shape(pp=4, schedule=name), IDEAL) for name in ("1f1b", "dualpipe"))
    assert one.forward[0] == pytest.approx(16 * 1.5) and both.forward[0] == pytest.approx(16 * 1.25)


def test_the_rank_with_the_head_is_the_slowest_only_if_its_fewer_layers_leave_it_so():
    """Four layers of 1 s, and at the end three with a head."""
    for head, slowest in ((0.5, 4.0), (1.5, 4.5)):
        each = replace(counted_work(layers=4, products_s=4.0, head_s=head), lighter=np.array([0.25]))
        assert combine(each, silence(), shape(pp=4), IDEAL).forward[0] == pytest.approx(16 * slowest)


@given(st.floats(1e-9, 1e3), st.floats(1e-9, 1e3))
def test_longer_is_the_longer_one_and_a_little(one, other):
    mean = float(longer(one, other))
    assert max(one, other) * (1 - 1e-12) <= mean <= 2**0.25 * max(one, other) * (1 + 1e-12)
    assert mean == float(longer(other, one))
