"""The contract finds what a launcher does wrong: its tests can fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainwright.core.errors import MachineError
from trainwright.launch.local import LocalLauncher
from trainwright.testing.contract_launcher import LauncherContract


class Forgetful(LocalLauncher):
    """Keeps its jobs to itself."""

    def __init__(self, root):
        super().__init__(root)
        self.mine = set()

    def submit(self, job):
        name = super().submit(job)
        self.mine.add(name)
        return name

    def _record(self, job_id):
        return super()._record(job_id if job_id in self.mine else "nothing")


class Hopeful(LocalLauncher):
    """Every job that ends has succeeded."""

    def status(self, job_id):
        status = super().status(job_id)
        return replace(status, state="succeeded") if status.ended else status


class Bare(LocalLauncher):
    """Jobs have no environment of their own."""

    def submit(self, job):
        return super().submit(replace(job, environment={}))


class Contract(LauncherContract):
    __test__ = False
    make_launcher = LocalLauncher


CONTRACT = Contract()


@pytest.mark.parametrize(
    ("kind", "promise"),
    [
        (Forgetful, CONTRACT.test_another_launcher_sees_the_same_job),
        (Hopeful, CONTRACT.test_a_job_that_fails_says_how),
        (Hopeful, CONTRACT.test_a_job_over_its_limit_is_ended),
        (Bare, CONTRACT.test_arguments_and_environment_arrive_as_they_are),
    ],
)
def test_a_broken_launcher_is_found(tmp_path, kind, promise):
    with pytest.raises((AssertionError, MachineError)):
        promise(lambda: kind(tmp_path))


def test_a_contract_without_a_launcher_cannot_be_tested():
    with pytest.raises(TypeError, match="make_launcher"):
        type("Nothing", (LauncherContract,), {})()
