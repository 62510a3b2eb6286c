import itertools

import numpy as np
import pytest

from trainwright.core.errors import RecipeError
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.forecast.memory.stages import passes_in_flight
from trainwright.planner.forecast.time.pipeline import BACKWARD, FORWARD, WEIGHT, order_of, schedule_problem, simulate
from trainwright.spec.workload import ParallelPlan, Workload

F, B, W = 1.0, 1.1, 0.9
SHAPES = [(p, m) for p in (1, 2, 3, 4, 8) for m in (1, 2, 3, 4, 7, 8, 16, 33)]
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero_bubble")


def play(schedule, stages, micro_batches, *, chunks=1, hop_s=0.0, first=(0, 0, 0), last=(0, 0, 0), times=(F, B, W)):
    """The schedule with equal stages but for the embedding on the first chunk and the head on the last one."""
    shares = [np.full((stages, chunks), time / chunks) for time in times]
    for share, start, end in zip(shares, first, last, strict=True):
        share[0, 0] += start
        share[-1, -1] += end
    forward, backward, weight = shares
    return simulate(
        schedule, forward_s=forward, backward_s=backward, weight_s=weight, micro_batches=micro_batches, hop_s=hop_s
    )


def bubble(schedule, stages, micro_batches, *, times=(F, B, W), **more):
    """Idle over busy time of equal stages: the papers' bubble fraction."""
    return play(schedule, stages, micro_batches, times=times, **more) / (micro_batches * sum(times)) - 1


def in_flight(schedule, stages, micro_batches, *, chunks=1):
    """The most micro batches that each stage holds activations of, in whole stages, as its order of work opens them."""
    closing = WEIGHT if schedule == "zero_bubble" else BACKWARD
    orders = (order_of(schedule, stages, chunks, micro_batches, stage) for stage in range(stages))
    return [
        max(itertools.accumulate((what == FORWARD) - (what == closing) for what, _, _ in order)) / chunks
        for order in orders
    ]


def fits(schedule, stages, micro_batches):
    return schedule != "interleaved" or micro_batches % stages == 0


def worked_out_by_rule(stages, micro_batches):
    """1F1B by its definition in words, as a recurrence over time steps of one: forward 1, backward 2."""
    forward, backward = {}, {}
    state = [{"f": 0, "b": 0, "busy": 0} for _ in range(stages)]
    now = 0
    while any(stage["b"] < micro_batches for stage in state):
        for s, stage in enumerate(state):
            if stage["busy"] > now:
                continue
            alive = stage["f"] - stage["b"]
            may_forward = stage["f"] < micro_batches and alive < stages - s
            may_forward &= s == 0 or forward.get((s - 1, stage["f"]), 1e9) <= now
            ready = forward if s == stages - 1 else backward
            may_backward = ready.get((min(s + 1, stages - 1), stage["b"]), 1e9) <= now
            if may_backward:
                stage["busy"] = backward[s, stage["b"]] = now + 2
                stage["b"] += 1
            elif may_forward:
                stage["busy"] = forward[s, stage["f"]] = now + 1
                stage["f"] += 1
        now += 1
    return max(backward.values())


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 3), (2, 2), (3, 9), (4, 2), (4, 8), (6, 13)])
def test_1f1b_played_by_order_is_1f1b_played_by_rule(stages, micro_batches):
    assert play("1f1b", stages, micro_batches, times=(1, 1, 1)) == worked_out_by_rule(stages, micro_batches)


def test_the_papers_bubbles():
    for p, m in ((4, 8), (8, 32), (8, 64)):
        # GPipe and 1F1B: (p - 1) / m (Narayanan et al., 2021, section 2.2.1).
        assert bubble("gpipe", p, m) == pytest.approx((p - 1) / m)
        assert bubble("1f1b", p, m) == pytest.approx((p - 1) / m)
        # Interleaved: (p - 1) / (v m) (section 2.2.2).
        for v in (2, 4):
            assert bubble("interleaved", p, m, chunks=v) == pytest.approx((p - 1) / (v * m))
        # ZB-H1: (p - 1) (T_F + T_B - T_W), a third of 1F1B's where the three are equal (Qi et al., 2023, table 2).
        assert bubble("zero_bubble", p, m) == pytest.approx((p - 1) * (F + B - W) / (m * (F + B + W)))
        equal = {"times": (1, 1, 1)}
        assert bubble("zero_bubble", p, m, **equal) == pytest.approx(bubble("1f1b", p, m, **equal) / 3)


def test_gpipe_idles_little_with_four_micro_batches_for_each_stage():
    # Huang et al., 2019, section 2.3: the bubble is (K - 1) / (M + K - 1) of the time, negligible when M >= 4 K.
    idle_share = 1 - 32 * (F + B + W) / play("gpipe", 8, 32)
    assert idle_share == pytest.approx(7 / (32 + 7))
    assert idle_share < 0.2


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_equal_stages_take_what_the_papers_say(schedule):
    """Narayanan et al. (2021, section 2.2) and Qi et al. (2023, table 2; w_g filled in by the m - 1 that there are)."""
    for (p, m), v in itertools.product(SHAPES, (1, 2, 3) if schedule == "interleaved" else (1,)):
        if not fits(schedule, p, m):
            continue
        work_s = F + B + W
        waits = {"interleaved": (p - 1) * work_s / v, "zero_bubble": (p - 1) * (F + B) - min(m - 1, p - 1) * W}
        expected = m * work_s + waits.get(schedule, (p - 1) * work_s)
        assert play(schedule, p, m, chunks=v) == pytest.approx(expected), (p, m, v)


def test_two_hops_of_every_micro_batch_but_one_in_each_round_are_waited_for():
    """1F1B with equal stages: what a stage sends is waited for, but for one of ``p`` micro batches on each way."""
    for p, m in SHAPES:
        hops = 2 * ((p - 1) + (m - 1) - (m + p - 2) // p)
        assert play("1f1b", p, m, hop_s=0.02) == pytest.approx((m + p - 1) * (F + B + W) + 0.02 * hops), (p, m)


def test_1f1b_goes_as_fast_as_its_slowest_stage():
    """A longer last stage is never idle between its first forward and its last backward pass."""
    rng = np.random.default_rng(1)
    for _ in range(100):
        p, m = int(rng.integers(2, 9)), int(rng.integers(8, 40))
        last = tuple(rng.uniform(0.2, 1.5, 3))
        assert play("1f1b", p, m, last=last) == pytest.approx(m * (F + B + W + sum(last)) + (p - 1) * (F + B + W))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_memory_counts_the_micro_batches_that_are_in_flight(schedule):
    """What is played out holds on the first and the last stage what the forecast of memory says."""
    for (p, m), v in itertools.product(SHAPES, (2, 4) if schedule == "interleaved" else (1,)):
        if p == 1 or not fits(schedule, p, m):
            continue
        work = Workload(sequence_tokens=8, batch_tokens=8 * m, steps=1, precision="bf16", optimizer="adamw")
        plan = ParallelPlan(pp=p, virtual_stages=v, schedule=schedule)
        alive = in_flight(schedule, p, m, chunks=v)
        passes = passes_in_flight(Layouts.of([plan], ["none"], work))[:, 0]
        assert passes.tolist() == [alive[0], alive[-1]], (p, m, v)


def test_interleaving_holds_more_on_the_first_stage_as_published():
    # Korthikanti et al., 2022, section 4.2.3: 1 + (p - 1) / (p m) times, m being the chunks.
    p, v = 8, 3
    ratio = in_flight("interleaved", p, 64, chunks=v)[0] / in_flight("1f1b", p, 64)[0]
    assert ratio == pytest.approx(1 + (p - 1) / (p * v))


def test_a_hop_of_any_length_is_waited_for():
    assert play("1f1b", 2, 1, hop_s=1.0) == pytest.approx(2 * (F + B + W) + 2)


def test_both_directions_at_once_are_played_too():
    """arXiv 2412.19437, table 2, where F = 1, B = 2 with its W = 1: (PP/2 - 1)(3 + 2 - 3) idle."""
    assert play("dualpipe", 8, 20, times=(1, 1, 1)) == pytest.approx(20 * 3 + 3 * 2)
    assert bubble("dualpipe", 8, 20, times=(1, 1, 1)) < 0.3 * bubble("1f1b", 8, 20, times=(1, 1, 1))


def test_schedules_that_do_not_exist_are_refused():
    with pytest.raises(RecipeError, match="multiple of 4 stages"):
        play("interleaved", 4, 6, chunks=2)
    with pytest.raises(RecipeError, match="several chunks"):
        play("1f1b", 4, 8, chunks=2)
    with pytest.raises(RecipeError, match="even number of stages, seen 3"):
        play("dualpipe", 3, 6)
    for short in (6, 9):
        with pytest.raises(RecipeError, match=f"even number of micro batches, at least 8, seen {short}"):
            play("dualpipe", 4, short)
    assert schedule_problem("interleaved", stages=4, chunks=2, micro_batches=8) == ""
    assert schedule_problem("dualpipe", stages=4, chunks=1, micro_batches=8) == ""
