"""A job that ignores SIGTERM is made to end; what else a supervisor does the contract of launchers shows."""

import json
import signal
from dataclasses import asdict

from trainwright.launch import supervisor as module
from trainwright.launch.local import JOB, LOG, STATUS
from trainwright.testing.contract_launcher import script


def test_a_job_that_ignores_the_request_is_killed(tmp_path, monkeypatch):
    """In this process, so that the time between asking and killing can be shortened."""
    job = script("ignore=SIGTERM", "sleep=600", limit_s=2.0)
    (tmp_path / JOB).write_text(json.dumps(asdict(job)), encoding="utf-8")
    (tmp_path / LOG).touch()
    monkeypatch.setattr(module, "GRACE_S", 0.2)
    before = signal.getsignal(signal.SIGTERM)
    try:
        module.Supervisor(tmp_path).run()
    finally:
        signal.signal(signal.SIGTERM, before)
    status = json.loads((tmp_path / STATUS).read_text(encoding="utf-8"))["status"]
    assert (status["state"], status["exit_code"]) == ("failed", -signal.SIGKILL)
    assert "limit of 2 s" in status["reason"]
