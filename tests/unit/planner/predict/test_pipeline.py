import itertools

import numpy as np
import pytest

from trainwright.core.errors import RecipeError
from trainwright.planner.predict.pipeline import Pass, in_flight, makespan_s, schedule_problem, simulate

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


def closed(schedule, stages, micro_batches, *, chunks=1, hop_s=0.0, first=(0, 0, 0), last=(0, 0, 0), times=(F, B, W)):
    stage, start, end = (
        Pass(forward_s=forward, backward_s=backward, weight_s=weight)
        for forward, backward, weight in (times, first, last)
    )
    return makespan_s(
        schedule, stages=stages, micro_batches=micro_batches, chunks=chunks, hop_s=hop_s, stage=stage, first=start,
        last=end,
    )  # fmt: skip


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
            held = stage["f"] - stage["b"]
            may_forward = stage["f"] < micro_batches and held < stages - s
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
    played = play("1f1b", stages, micro_batches, times=(1, 1, 1))
    assert played.seconds == worked_out_by_rule(stages, micro_batches)


def test_the_papers_bubbles():
    for p, m in ((4, 8), (8, 32), (8, 64)):
        # GPipe and 1F1B: (p - 1) / m (Narayanan et al., 2021, section 2.2.1).
        assert play("gpipe", p, m).bubble == pytest.approx((p - 1) / m)
        assert play("1f1b", p, m).bubble == pytest.approx((p - 1) / m)
        # Interleaved: (p - 1) / (v m) (section 2.2.2).
        for v in (2, 4):
            assert play("interleaved", p, m, chunks=v).bubble == pytest.approx((p - 1) / (v * m))
        # ZB-H1: (p - 1) (T_F + T_B - T_W), a third of 1F1B's where the three are equal (Qi et al., 2023, table 2).
        assert play("zero_bubble", p, m).bubble == pytest.approx((p - 1) * (F + B - W) / (m * (F + B + W)))
        equal = {"times": (1, 1, 1)}
        assert play("zero_bubble", p, m, **equal).bubble == pytest.approx(play("1f1b", p, m, **equal).bubble / 3)


def test_gpipe_idles_little_with_four_micro_batches_for_each_stage():
    # Huang et al., 2019, section 2.3: the bubble is (K - 1) / (M + K - 1) of the time, negligible when M >= 4 K.
    played = play("gpipe", 8, 32)
    assert played.idle_share == pytest.approx(7 / (32 + 7))
    assert played.idle_share < 0.2


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_closed_forms_are_exact_for_equal_stages(schedule):
    for (p, m), v in itertools.product(SHAPES, (1, 2, 3) if schedule == "interleaved" else (1,)):
        if fits(schedule, p, m):
            assert closed(schedule, p, m, chunks=v) == pytest.approx(play(schedule, p, m, chunks=v).seconds), (p, m, v)


@pytest.mark.parametrize("times", [(1, 1, 0.5), (1, 0.8, 1.2), (1, 2, 1)])
def test_zero_bubble_is_exact_for_any_shares_of_the_backward_pass(times):
    for p, m in SHAPES:
        played = play("zero_bubble", p, m, times=times)
        assert closed("zero_bubble", p, m, times=times) == pytest.approx(played.seconds), (p, m)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_hops_are_exact_for_equal_stages(schedule):
    for (p, m), v in itertools.product(SHAPES, (2, 3) if schedule == "interleaved" else (1,)):
        if fits(schedule, p, m):
            played = play(schedule, p, m, chunks=v, hop_s=0.02)
            assert closed(schedule, p, m, chunks=v, hop_s=0.02) == pytest.approx(played.seconds), (p, m, v)


@pytest.mark.parametrize(
    ("schedule", "enough", "off"),
    [("gpipe", 1, 1e-9), ("1f1b", 1, 0.01), ("interleaved", 4, 0.06), ("zero_bubble", 4, 0.04)],
)
def test_longer_ends_cost_what_the_simulation_says(schedule, enough, off):
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(150):
        p = int(rng.integers(1, 9))
        m = p * int(rng.integers(enough, 7))
        first, last = rng.uniform(0, 0.4, 3), rng.uniform(0, 1.0, 3)
        v = int(rng.integers(2, 5)) if schedule == "interleaved" else 1
        settings = {"chunks": v, "hop_s": rng.uniform(0, 0.05), "first": first, "last": last}
        errors.append(float(closed(schedule, p, m, **settings)) / play(schedule, p, m, **settings).seconds - 1)
    assert np.abs(errors).max() <= off


def test_1f1b_is_exact_where_the_slowest_stage_sets_the_pace():
    rng = np.random.default_rng(1)
    for _ in range(100):
        p, m = int(rng.integers(2, 9)), int(rng.integers(8, 40))
        last = tuple(rng.uniform(0.2, 1.5, 3))
        played = play("1f1b", p, m, last=last)
        assert closed("1f1b", p, m, last=last) == pytest.approx(played.seconds)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_in_flight_is_what_the_simulation_holds(schedule):
    for (p, m), v in itertools.product(SHAPES, (1, 2, 4) if schedule == "interleaved" else (1,)):
        if fits(schedule, p, m):
            held = in_flight(schedule, stages=p, micro_batches=m, stage=np.arange(p), chunks=v)
            assert held.tolist() == list(play(schedule, p, m, chunks=v).in_flight), (p, m, v)


def test_interleaving_holds_more_on_the_first_stage_as_published():
    # Korthikanti et al., 2022, section 4.2.3: 1 + (p - 1) / (p m) times, m being the chunks.
    p, v = 8, 3
    ratio = in_flight("interleaved", stages=p, micro_batches=64, chunks=v) / in_flight(
        "1f1b", stages=p, micro_batches=64
    )
    assert ratio == pytest.approx(1 + (p - 1) / (p * v))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_arrays_give_what_single_layouts_give(schedule):
    p, m = np.array([1.0, 2, 4, 8]), np.array([4.0, 8, 16, 16])
    head = np.array([0.0, 0.5, 1.0, 0.1])
    v = np.array([1.0, 2, 2, 4])
    together = makespan_s(
        schedule, stages=p, micro_batches=m, chunks=v, hop_s=0.01, stage=Pass(forward_s=F / p, backward_s=B / p),
        last=Pass(forward_s=head, backward_s=head),
    )  # fmt: skip
    for at, seconds in enumerate(together):
        alone = closed(
            schedule, p[at], m[at], chunks=v[at], hop_s=0.01, times=(F / p[at], B / p[at], 0),
            last=(head[at], head[at], 0),
        )  # fmt: skip
        assert seconds == alone


def test_a_hop_of_any_length_is_waited_for():
    assert play("1f1b", 2, 1, hop_s=1.0).seconds == pytest.approx(2 * (F + B + W) + 2)


def test_schedules_that_do_not_exist_are_refused():
    with pytest.raises(RecipeError, match="multiple of 4 stages"):
        play("interleaved", 4, 6, chunks=2)
    with pytest.raises(RecipeError, match="several chunks"):
        play("1f1b", 4, 8, chunks=2)
    assert schedule_problem("interleaved", stages=4, chunks=2, micro_batches=8) == ""
