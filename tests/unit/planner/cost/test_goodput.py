import numpy as np
import pytest

from trainwright.planner.cost.goodput import (
    DEVICE_MTBF_S,
    daly_interval_s,
    expected_s,
    goodput,
    spot,
    young_interval_s,
)

DAY_S, MINUTE_S = 86_400.0, 60.0


def lived(rng, *, work_s, checkpoint_s, interval_s, recovery_s, mtbf_s):
    """One run under random failures: wall-clock, time recovering, work done again (checkpoints cut short included)."""
    now = recovering = again = done = 0.0
    failure = rng.exponential(mtbf_s)
    while done < work_s - 1e-9:
        segment = min(interval_s, work_s - done) + checkpoint_s
        if failure > now + segment:
            now += segment
            done += segment - checkpoint_s
            continue
        again += failure - now
        now = failure
        failure = now + rng.exponential(mtbf_s)
        while failure < now + recovery_s:
            recovering += failure - now
            now = failure
            failure = now + rng.exponential(mtbf_s)
        recovering += recovery_s
        now += recovery_s
    return now, recovering, again


@pytest.mark.parametrize(
    ("checkpoint_s", "interval_s", "recovery_s", "mtbf_s"),
    [(30, 1200, 600, 20_000), (120, 3600, 1000, 7000), (10, 500, 2000, 4000)],
)
def test_expected_times_are_the_mean_of_lived_runs(checkpoint_s, interval_s, recovery_s, mtbf_s):
    rng = np.random.default_rng(0)
    settings = {"checkpoint_s": checkpoint_s, "interval_s": interval_s, "recovery_s": recovery_s, "mtbf_s": mtbf_s}
    work_s = 100 * interval_s
    runs = np.array([lived(rng, work_s=work_s, **settings) for _ in range(800)])
    assert expected_s(work_s, **settings) == pytest.approx(runs[:, 0].mean(), rel=0.02)
    run = goodput(
        work_s,
        devices=1,
        device_mtbf_s=mtbf_s,
        checkpoint_s=checkpoint_s,
        checkpoint_interval_s=interval_s,
        recovery_s=recovery_s,
    )
    assert run.recovery_s == pytest.approx(runs[:, 1].mean(), rel=0.04)
    assert run.lost_s == pytest.approx(runs[:, 2].mean(), rel=0.04)
    assert run.checkpoints_s == 100 * checkpoint_s


@pytest.mark.parametrize(("mtbf_minutes", "minutes"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_dalys_own_intervals(mtbf_minutes, minutes):
    # Daly, 2006, figures 3 to 5: checkpoints of 5 minutes.
    interval = daly_interval_s(5 * MINUTE_S, mtbf_minutes * MINUTE_S) / MINUTE_S
    assert interval == pytest.approx(minutes, abs=0.5 if minutes > 10 else 0.05)


def test_dalys_interval_is_the_best_and_youngs_nearly_for_short_checkpoints():
    for checkpoint_s, mtbf_s in ((5, 20_000), (60, 10_000), (300, 3600)):
        tried = np.geomspace(checkpoint_s / 2, mtbf_s, 4000)
        settings = {"checkpoint_s": checkpoint_s, "recovery_s": 600, "mtbf_s": mtbf_s}
        best = expected_s(1e6, interval_s=tried, **settings).min()
        assert expected_s(1e6, interval_s=daly_interval_s(checkpoint_s, mtbf_s), **settings) <= 1.001 * best
    assert young_interval_s(5, 1e6) == pytest.approx(float(daly_interval_s(5, 1e6)), rel=0.002)
    assert daly_interval_s(5000, 1000) == 1000


def test_llama_3_405b_as_published():
    # 419 unexpected interruptions in 54 days on 16,384 H100, more than 90 % effective (arXiv 2407.21783, 3.3.4).
    run = goodput(0.9 * 54 * DAY_S, devices=16_384, checkpoint_s=10)
    assert run.total_s == pytest.approx(54 * DAY_S, rel=0.04)
    assert run.interruptions == pytest.approx(419, rel=0.04)
    assert run.steps_s / run.total_s == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("devices", [2048, 8192, 16_384])
def test_kokolis_closed_form_where_losses_are_small(devices):
    # Kokolis et al., 2024: (1 - N r (u + d / 2)) / (1 + w / d) for N nodes of 8 with 6.50 failures in 1,000 days.
    nodes, rate = devices / 8, 6.5e-3 / DAY_S
    ettr = (1 - nodes * rate * (300 + 600 / 2)) / (1 + 10 / 600)
    run = goodput(
        30 * DAY_S, devices=devices, device_mtbf_s=8 / rate, checkpoint_s=10, checkpoint_interval_s=600, recovery_s=300
    )
    assert run.steps_s / run.total_s == pytest.approx(ettr, rel=0.02)
    hours = 8 / rate / devices / 3600
    assert hours == pytest.approx({2048: 14.4, 8192: 3.6, 16_384: 1.8}[devices], rel=0.01)


def test_the_parts_are_what_they_say_and_sum_to_the_whole():
    quiet = goodput(
        1000.0,
        devices=8,
        device_mtbf_s=np.inf,
        checkpoint_s=0.0,
        checkpoint_interval_s=100.0,
        evaluation_s=50.0,
        start_s=30.0,
        run_overhead=0.1,
    )
    assert (quiet.lost_s, quiet.recovery_s, quiet.interruptions) == pytest.approx((0, 0, 0))
    assert quiet.overhead_s == pytest.approx(0.1 * (1000 + 50 + 30))
    assert quiet.total_s == pytest.approx(1.1 * 1080)
    assert goodput(1000.0, devices=1, device_mtbf_s=np.inf, checkpoint_s=3.0).checkpoints_s == pytest.approx(3.0)


def test_more_devices_lose_more_and_arrays_give_what_single_runs_give():
    devices = np.array([1.0, 64, 1024, 16_384, 131_072])
    run = goodput(10 * DAY_S, devices=devices, checkpoint_s=30.0)
    assert (np.diff(run.steps_s / run.total_s) < 0).all()
    singles = [float(goodput(10 * DAY_S, devices=d, checkpoint_s=30.0).total_s) for d in devices]
    assert run.total_s.tolist() == singles
    assert np.isinf(goodput(10 * DAY_S, devices=1e12, checkpoint_s=30.0).total_s)


def test_spot_costs_more_with_nodes_and_less_with_notice():
    def overhead(run):
        return run.total_s / (5 * DAY_S) - 1

    settings = {"devices": 64, "nodes": 8, "provider": "gcp", "checkpoint_s": 60.0}
    one, eight = (spot(5 * DAY_S, **settings | {"nodes": n, "devices": 8 * n}) for n in (1, 8))
    assert 0 < overhead(one) < overhead(eight)
    # A node a day: 8 nodes are interrupted 8 times a day, and as often again in the time that this costs.
    assert eight.interruptions == pytest.approx(8 * float(eight.total_s) / DAY_S, rel=0.02)
    assert overhead(spot(5 * DAY_S, **settings, notice_s=120.0)) < overhead(eight)
    assert overhead(spot(5 * DAY_S, **settings | {"provider": "aws"})) < 0.05
    unknown = spot(5 * DAY_S, **settings | {"provider": "somebody"})
    assert unknown.total_s == pytest.approx(float(eight.total_s))


def test_spot_with_notice_is_the_mean_of_lived_runs():
    rng = np.random.default_rng(2)
    taken_s, pause_s, work_s = 10_000.0, 1000.0 + 20.0, 200_000.0
    totals = []
    for _ in range(500):
        # Each reclaim while working or pausing adds one pause.
        now, left = 0.0, work_s
        while left > 0:
            step = min(left, rng.exponential(taken_s))
            left -= step
            now += step
            owed = pause_s if left > 0 else 0.0
            while owed > 0:
                until = rng.exponential(taken_s)
                now += min(owed, until)
                owed = owed - until + pause_s if until < owed else 0.0
        totals.append(now)
    run = spot(
        work_s,
        nodes=1,
        devices=1,
        provider="aws",
        checkpoint_s=20.0,
        node_mtbf_s=taken_s,
        device_mtbf_s=1e15,
        recovery_s=1000.0,
    )
    assert run.total_s == pytest.approx(np.mean(totals), rel=0.02)


def test_the_time_between_failures_is_that_of_the_published_run():
    assert pytest.approx(50_684, rel=1e-3) == DEVICE_MTBF_S / 3600


def test_checkpoints_are_a_minute_apart_at_least():
    soon = goodput(86400.0, devices=1000, checkpoint_s=1e-4)
    assert daly_interval_s(1e-4, DEVICE_MTBF_S / 1000) < 60 == soon.checkpoint_interval_s
    assert goodput(86400.0, devices=1000, checkpoint_s=1e-4, checkpoint_interval_s=5.0).checkpoint_interval_s == 5
    assert goodput(20.0, devices=1000, checkpoint_s=1e-4).checkpoint_interval_s == 20
    taken = spot(86400.0, nodes=10, devices=80, provider="aws", checkpoint_s=1e-4)
    assert taken.checkpoint_interval_s >= 60


def test_coming_back_to_spot_nodes_takes_as_long_as_each_time():
    rare = spot(86400.0, nodes=1, devices=8, provider="gcp", checkpoint_s=1.0, recovery_s=100.0, device_mtbf_s=1e15)
    never = spot(86400.0, nodes=1, devices=8, provider="gcp", checkpoint_s=1.0, recovery_s=0.0, device_mtbf_s=1e15)
    # Warned nodes lose no work: what a run is longer by is the recoveries.
    assert rare.total_s - never.total_s == pytest.approx(rare.recovery_s - never.recovery_s, rel=0.02)
    # Unwarned ones lose about as much as checkpoints take to write, where these are at Daly's interval.
    taken = spot(1e6, nodes=8, devices=64, provider="nebius", checkpoint_s=7.5, device_mtbf_s=1e15)
    written = 1e6 / taken.checkpoint_interval_s * 7.5
    assert taken.total_s - 1e6 - written - taken.recovery_s == pytest.approx(written, rel=0.15)
