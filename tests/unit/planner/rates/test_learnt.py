"""One measured run corrects runs like it, and distant ones by what all runs on that device and stack share."""

import math
from dataclasses import replace

import numpy as np
import pytest

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import stack
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.forecast.forecast import corrected, forecast
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.planner.rates.learnt import (
    BIAS,
    NOISE,
    REACH,
    SHAPE,
    UNKNOWN_BIAS,
    Correction,
    Prior,
    Reference,
    adapted,
    correction,
    machine_priors,
    place,
)
from trainwright.spec.run import PlacedRun, RunSpec
from trainwright.spec.workload import Adapter, ParallelPlan, Workload

WORK = Workload(sequence_tokens=4096, batch_tokens=4096 * 64, steps=1, precision="bf16", optimizer="adamw")
HERE = PlacedRun(
    run=RunSpec(
        model=catalogue_model("llama3-8b"), workload=WORK, cluster=cluster("8xh100-sxm"), stack=stack("torchtitan")
    ),
    parallel=ParallelPlan(dp_shard=8),
)


def changed(placed, **changes):
    """The same layout of a run that differs in these."""
    return replace(placed, run=replace(placed.run, **changes))


LONGER = changed(HERE, workload=replace(WORK, sequence_tokens=8192))
LARGER = replace(
    changed(
        HERE,
        model=catalogue_model("llama3-70b"),
        cluster=cluster("32x8xh100-sxm"),
        workload=replace(WORK, recompute="full"),
    ),
    parallel=ParallelPlan(dp_shard=256),
)
TUNED = changed(LARGER, workload=replace(WORK, adapter=Adapter(rank=8), precision="fp16"))
SLOW = math.log(0.8)


def known(placed=HERE, *, speed=SLOW, memory=None):
    return Reference(placed=placed, log_speed=speed, log_memory=memory)


def test_without_references_nothing_is_corrected():
    assert correction(HERE, []) == Correction(speed=1.0, memory=1.0, known=0.0)


def test_the_same_run_comes_out_as_it_was_measured():
    learnt = correction(HERE, [known(memory=math.log(1.1))])
    assert learnt.speed == pytest.approx(0.8, rel=0.01)
    assert learnt.memory == pytest.approx(1.1, rel=0.01)
    assert learnt.known > 0.98


def test_the_nearer_a_run_the_more_it_is_corrected():
    learnt = [correction(placed, [known()]) for placed in (HERE, LONGER, LARGER, TUNED)]
    speeds, shares = [each.speed for each in learnt], [each.known for each in learnt]
    assert speeds == sorted(speeds) and shares == sorted(shares, reverse=True)
    assert speeds[0] < 0.81 and speeds[1] < 0.95
    # What is left far away is the bias that all runs share.
    believed = math.log(speeds[-1]) / SLOW
    assert BIAS**2 / (BIAS**2 + SHAPE**2 + NOISE**2) < believed < 0.4
    assert 0 < shares[-1] < 0.2


def test_one_run_on_a_stack_without_a_fit_says_more_of_all():
    unknown = stack("trainwright")
    assert "time" not in unknown.fit
    far, near = changed(TUNED, stack=unknown), changed(HERE, stack=unknown)
    learnt, fitted = correction(far, [known(near)]), correction(TUNED, [known()])
    assert learnt.speed < fitted.speed and learnt.known > fitted.known
    assert math.log(learnt.speed) / SLOW > UNKNOWN_BIAS**2 / (UNKNOWN_BIAS**2 + SHAPE**2 + NOISE**2)


@pytest.mark.parametrize(
    "other",
    [changed(HERE, cluster=cluster("8xa100-sxm-80gb")), changed(HERE, stack=stack("megatron-core"))],
    ids=["device", "stack"],
)
def test_runs_on_another_device_or_stack_say_nothing(other):
    assert correction(HERE, [known(other)]) == Correction()


def test_speed_and_memory_are_learnt_apart():
    assert correction(HERE, [known(speed=None, memory=math.log(1.2))]).speed == 1.0
    learnt = correction(HERE, [known(speed=None), known(memory=None)])
    assert (learnt.speed < 0.81, learnt.memory) == (True, 1.0)


def test_runs_that_disagree_are_averaged_and_noise_is_not_believed():
    both = correction(HERE, [known(speed=math.log(0.8)), known(speed=math.log(1.25))])
    assert both.speed == pytest.approx(1.0)
    many = correction(HERE, [known()] * 50)
    assert abs(many.speed - 0.8) < abs(correction(HERE, [known()]).speed - 0.8)


def test_many_runs_are_conditioned_as_a_joint_gaussian():
    """Mean of one variable given others, from the precision matrix of all (Rasmussen and Williams, 2006, A.6)."""
    runs, values = [HERE, LONGER, LARGER], np.array([SLOW, 0.1, 0.05])
    places = np.array([place(run) for run in [TUNED, *runs]])
    distance = np.linalg.norm(places[:, None] - places[None], axis=-1)
    joint = BIAS**2 + SHAPE**2 * np.exp(-distance / REACH) + np.diag([0.0, *[NOISE**2] * 3])
    precision = np.linalg.inv(joint)
    mean = -precision[0, 1:] @ values / precision[0, 0]
    share = 1 - 1 / precision[0, 0] / joint[0, 0]
    learnt = correction(TUNED, [known(run, speed=value) for run, value in zip(runs, values, strict=True)])
    assert math.log(learnt.speed) == pytest.approx(mean)
    assert learnt.known == pytest.approx(share)


def test_distance_is_symmetric_and_sees_what_a_run_does():
    assert np.linalg.norm(place(HERE) - place(HERE)) == 0
    for other in (LONGER, LARGER, TUNED):
        assert np.linalg.norm(place(HERE) - place(other)) > 0.2


def test_a_corrected_forecast_has_the_factors_and_a_narrower_range():
    plan = ParallelPlan(dp_shard=8)
    work = Workload(sequence_tokens=2048, batch_tokens=2048 * 8, steps=1, precision="bf16", optimizer="adamw")
    prediction = forecast(
        RunSpec(
            model=catalogue_model("llama3-8b"), workload=work, cluster=cluster("8xh100-sxm"), stack=stack("torchtitan")
        ),
        Layouts.of([plan], ["none"], work),
        CATALOGUE,
    )
    told = corrected(prediction, speed=0.8, memory=1.1, known=0.5)
    assert told.step_s == pytest.approx(prediction.step_s / 0.8)
    assert told.memory.device_bytes == pytest.approx(1.1 * prediction.memory.device_bytes)
    assert told.memory.weights == pytest.approx(prediction.memory.weights)
    assert told.spread < prediction.spread and told.high_s / told.low_s < prediction.high_s / prediction.low_s
    same = corrected(prediction, speed=1.0, memory=1.0, known=0.0)
    assert same.step_s == pytest.approx(prediction.step_s) and same.spread == prediction.spread


def test_a_run_that_is_off_by_a_factor_of_ten_is_not_believed():
    far_off, off = (Reference(placed=HERE, log_speed=math.log(ratio), log_memory=None) for ratio in (0.1, 0.5))
    assert 0.5 < correction(HERE, [far_off]).speed < 0.8
    assert correction(HERE, [far_off]).speed == pytest.approx(correction(HERE, [off]).speed, rel=0.05)


def test_the_priors_of_a_machine_have_the_range_that_they_came_from():
    assert machine_priors(0.3).time.deviation == pytest.approx(0.3)


def test_noise_is_what_repeated_runs_show():
    """Two values a apart have the sample deviation a / sqrt(2), of which expected surprise is taken off."""
    quiet = Prior(bias=1e-9, shape=1e-9, noise=0.0)
    assert adapted(quiet, [0.0, 0.6]).noise == pytest.approx(np.std([0.0, 0.6], ddof=1), rel=1e-6)
    assert adapted(quiet, [0.3, 0.3, 0.3]).noise == pytest.approx(0.0, abs=1e-8)
    assert adapted(quiet, [0.3] * 3).bias == pytest.approx(0.3)
    prior = Prior(bias=0.1, shape=0.1, noise=0.05)
    assert adapted(prior, [0.05]).noise == 0.05 and adapted(prior, [0.05]).bias == 0.1


def test_runs_of_ones_own_machine_say_how_far_they_are_to_be_believed():
    """Three runs at a third of the speed: published runs' prior cuts them off, one's own machine is believed."""
    slow = [Reference(placed=HERE, log_speed=math.log(1 / 3), log_memory=math.log(1.3))] * 3
    believed, cut = correction(HERE, slow, machine_priors(0.085)), correction(HERE, slow)
    assert believed.speed == pytest.approx(1 / 3, rel=0.03)
    assert cut.speed > 1.2 * believed.speed
    assert believed.memory == pytest.approx(1.3, rel=0.03)
    assert believed.noise >= 0.05 and cut.noise == 0
