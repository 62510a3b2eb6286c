"""The contract of a launcher: what every ``Launcher`` promises, as a test class to inherit.

::

    class TestMyLauncher(LauncherContract):
        def make_launcher(self, folder):
            return MyLauncher(root=folder)

Its jobs are ``trainwright.testing.job_actions``, so that a place must have this package installed.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.errors import MachineError, RecipeError
from trainwright.launch.launchers import wait
from trainwright.spec.job import Job, JobStatus, Launcher

OpenLauncher = Callable[[], Launcher]
PATIENCE_S = 120.0
"""A job that takes longer to end is a failure, and not a slow machine."""


def script(*actions: str, **settings: Any) -> Job:
    """Returns a job of ``job_actions``, with other fields of a job."""
    return Job(module="trainwright.testing.job_actions", arguments=actions, **settings)


class LauncherContract(ABC):
    """What a launcher promises. Inherit it and make one."""

    @abstractmethod
    def make_launcher(self, folder: Path) -> Launcher:
        """Returns a fresh launcher; those of one test see the same jobs, which they may keep in ``folder``."""

    @pytest.fixture
    def open_launcher(self, tmp_path: Path) -> OpenLauncher:
        """A function to a fresh launcher over the same jobs."""
        return lambda: self.make_launcher(tmp_path)

    def test_a_job_runs_and_its_output_is_kept(self, open_launcher: OpenLauncher) -> None:
        place = open_launcher()
        job_id = place.submit(script("say=hello, world"))
        assert wait(place, job_id, timeout_s=PATIENCE_S) == JobStatus(state="succeeded", exit_code=0)
        assert "hello, world" in place.log(job_id).read_text(encoding="utf-8")

    def test_a_job_that_fails_says_how(self, open_launcher: OpenLauncher) -> None:
        place = open_launcher()
        status = wait(place, place.submit(script("exit=7")), timeout_s=PATIENCE_S)
        assert (status.state, status.exit_code) == ("failed", 7)
        assert "7" in status.reason

    def test_arguments_and_environment_arrive_as_they_are(self, open_launcher: OpenLauncher) -> None:
        place = open_launcher()
        job = script("show=GREETING", "say=a  b 你好 $HOME", environment={"GREETING": "two words = one"})
        job_id = place.submit(job)
        assert wait(place, job_id, timeout_s=PATIENCE_S).state == "succeeded"
        log = place.log(job_id).read_text(encoding="utf-8")
        assert "GREETING is two words = one\na  b 你好 $HOME\n" in log

    def test_another_launcher_sees_the_same_job(self, open_launcher: OpenLauncher) -> None:
        job_id = open_launcher().submit(script("sleep=0.5"))
        assert open_launcher().status(job_id).state in ("running", "succeeded")
        assert wait(open_launcher(), job_id, timeout_s=PATIENCE_S).state == "succeeded"

    def test_a_cancelled_job_ends_and_stays_cancelled(self, open_launcher: OpenLauncher) -> None:
        place = open_launcher()
        job_id = place.submit(script("say=began", "sleep=600"))
        self._until_it_says(place, job_id, "began")
        place.cancel(job_id)
        assert wait(place, job_id, timeout_s=PATIENCE_S).state == "cancelled"
        place.cancel(job_id)
        assert place.status(job_id).state == "cancelled"

    def test_a_job_over_its_limit_is_ended(self, open_launcher: OpenLauncher) -> None:
        place = open_launcher()
        status = wait(place, place.submit(script("sleep=600", limit_s=1.0)), timeout_s=PATIENCE_S)
        assert status.state == "failed"
        assert "limit" in status.reason

    def test_jobs_keep_apart(self, open_launcher: OpenLauncher) -> None:
        place = open_launcher()
        jobs = {word: place.submit(script(f"say={word}")) for word in ("one", "two")}
        for word, job_id in jobs.items():
            wait(place, job_id, timeout_s=PATIENCE_S)
            log = place.log(job_id).read_text(encoding="utf-8")
            assert [each in log for each in ("one", "two")] == [word == "one", word == "two"]

    @pytest.mark.parametrize(
        "job",
        [Job(module=""), Job(module="a b"), Job(module="timeit", nodes=0), Job(module="timeit", limit_s=0.0)],
        ids=["no module", "no name", "no node", "no time"],
    )
    def test_what_can_be_no_job_is_refused(self, open_launcher: OpenLauncher, job: Job) -> None:
        with pytest.raises(RecipeError, match="must be"):
            open_launcher().submit(job)

    def test_an_unknown_job_is_named(self, open_launcher: OpenLauncher) -> None:
        place = open_launcher()
        for ask in (place.status, place.cancel, place.log):
            with pytest.raises(MachineError, match="no-such-job"):
                ask("no-such-job")

    def _until_it_says(self, place: Launcher, job_id: str, word: str) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while word not in place.log(job_id).read_text(encoding="utf-8"):
            assert time.monotonic() < end_s, "the job says nothing"
            time.sleep(0.05)
