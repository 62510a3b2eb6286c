"""What can be no job says why, and all reasons at once."""

from trainwright.spec.job import Job, JobStatus


def test_a_job_names_all_its_problems():
    assert Job(module="trainwright.cli.main", arguments=("run", "x.yaml")).problems() == ()
    found = Job(module="no module", nodes=0, devices_per_node=-1, limit_s=0.0).problems()
    assert [problem.split()[0] for problem in found] == ["module", "nodes", "devices_per_node", "limit_s"]


def test_only_a_running_job_has_not_ended():
    assert not JobStatus(state="running").ended
    assert all(JobStatus(state=state).ended for state in ("succeeded", "failed", "cancelled", "lost"))
