import subprocess
import sys

import pytest

from fixtures.planned_recipe import plan_of, planned_recipe
from trainwright.artifact.events import Events
from trainwright.artifact.reading import read_plan
from trainwright.artifact.stage import Context
from trainwright.core.errors import DataError, DoesNotFit
from trainwright.hardware.machine.record import machine_text
from trainwright.stages.plan import run
from trainwright.testing.artifacts import make_artifact
from trainwright.testing.machine import fake_machine


@pytest.fixture
def planned(tmp_path):
    def call(machine, *overrides, damage=lambda path: None):
        doctor = make_artifact(tmp_path, "doctor", {"machine.json": machine_text(machine)})
        damage(doctor.path / "machine.json")
        with Events(None, run="t") as events:
            return run(
                Context(
                    recipe=planned_recipe(tmp_path, *overrides),
                    inputs={"machine": doctor},
                    out=tmp_path,
                    root=tmp_path,
                    events=events,
                )
            )

    return call


def test_the_plan_is_written_and_reads_back(planned, tmp_path):
    result = planned(fake_machine())
    plan = read_plan(tmp_path / "plan.json")
    assert plan == plan_of(planned_recipe(tmp_path))
    assert result.summary["precision"] == plan.workload.precision
    assert result.summary["seconds"] == plan.estimate.seconds.mid


def test_what_does_not_fit_stops_here_with_its_advice(planned, tmp_path):
    with pytest.raises(
        DoesNotFit,
        match=r"does not fit in memory \(seen .*expected at most .*\); try: a larger device, or a lower model.width",
    ):
        planned(fake_machine(memory_bytes=100 << 20))
    assert not (tmp_path / "plan.json").exists()


def test_a_run_that_nobody_can_wait_for_is_not_begun(planned, tmp_path):
    with pytest.raises(DoesNotFit, match=r"train\.duration: nobody waits .*1e30 tok, which takes \S+ years here"):
        planned(fake_machine(), "train.duration=1e30 tok")
    assert not (tmp_path / "plan.json").exists()


def test_planning_loads_no_torch():
    code = "import sys, trainwright.stages.plan; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_damaged_machine_record_is_named(planned, tmp_path):
    with pytest.raises(DataError, match=r"machine\.json: damaged file: its size changed .*; delete "):
        planned(fake_machine(), damage=lambda path: path.write_text("{}"))
    assert not (tmp_path / "plan.json").exists()
