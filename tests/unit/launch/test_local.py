"""Jobs on this machine: the contract of launchers, and what a kill leaves behind."""

import json
import os
import signal
import time

import psutil
import pytest

from trainwright.core.errors import RecipeError
from trainwright.launch.launchers import launcher, wait
from trainwright.launch.local import STATUS, LocalLauncher
from trainwright.spec.job import Job
from trainwright.testing.contract_launcher import PATIENCE_S, LauncherContract, script


class TestLocalLauncher(LauncherContract):
    def make_launcher(self, folder):
        return launcher("local", root=folder)


def processes(place, job_id):
    record = json.loads((place.root / job_id / STATUS).read_text(encoding="utf-8"))
    return record["supervisor"]["pid"], record["process"] and record["process"]["pid"]


def until(truth):
    end_s = time.monotonic() + PATIENCE_S
    while not truth():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_cancelled_job_leaves_no_process_behind(tmp_path):
    place = LocalLauncher(tmp_path)
    job_id = place.submit(script("spawn=sleep=600"))
    until(lambda: processes(place, job_id)[1])
    _, child = processes(place, job_id)
    until(lambda: psutil.Process(child).children())
    (grandchild,) = psutil.Process(child).children()
    place.cancel(job_id)
    assert wait(place, job_id, timeout_s=PATIENCE_S).state == "cancelled"
    until(lambda: gone(child) and gone(grandchild.pid))


def test_a_job_whose_supervisor_was_killed_is_lost_and_can_still_be_ended(tmp_path):
    place = LocalLauncher(tmp_path)
    job_id = place.submit(script("sleep=600"))
    until(lambda: processes(place, job_id)[1])
    supervisor, child = processes(place, job_id)
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: place.status(job_id).state == "lost")
    place.cancel(job_id)
    until(lambda: gone(child))


@pytest.mark.parametrize(
    ("job", "reason"),
    [(Job(module="timeit", nodes=2), "nodes must be 1"), (Job(module="timeit", image="torch:2"), "containers")],
)
def test_what_one_machine_cannot_do_is_refused(tmp_path, job, reason):
    with pytest.raises(RecipeError, match=reason):
        LocalLauncher(tmp_path).submit(job)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_launcher_names_those_that_are_known():
    with pytest.raises(RecipeError, match="unknown launcher .*expected one of local"):
        launcher("moon")
