import sys

import pytest

from trainwright.core.errors import MachineError
from trainwright.core.records import to_json
from trainwright.stages.doctor import process
from trainwright.testing.machine import fake_probes


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Let another program stand in for the measuring one."""

    def use(body):
        (tmp_path / "stand_in.py").write_text(body)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(process, "CHILD", "stand_in")

    return use


def test_progress_is_told_and_the_record_comes_back(child, tmp_path):
    child(
        "import json\nprint(json.dumps('one'))\nprint(json.dumps('two'))\n"
        f"print(json.dumps({to_json(fake_probes())!r}))"
    )
    messages = []
    assert process.measure(threads=1, folder=tmp_path, thorough=False, say=messages.append) == fake_probes()
    assert messages == ["one", "two"]


def test_a_crash_names_what_was_measured_and_the_reason(child, tmp_path):
    child("import json, sys\nprint(json.dumps('attention'))\nsys.exit('no such instruction')")
    with pytest.raises(MachineError, match=r"cannot be measured \(seen attention: no such instruction\)"):
        process.measure(threads=1, folder=tmp_path, thorough=False, say=lambda name: None)


def test_a_killed_child_is_an_error_too(child, tmp_path):
    child("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(MachineError, match="exit status -9"):
        process.measure(threads=1, folder=tmp_path, thorough=False, say=lambda name: None)


def test_it_is_started_with_this_python(child, tmp_path):
    child(
        f"import sys\nassert sys.executable == {sys.executable!r}, sys.executable\n"
        "assert sys.argv[1] == '3' and sys.argv[3] == 'quick'\nsys.exit('fine')"
    )
    with pytest.raises(MachineError, match="fine"):
        process.measure(threads=3, folder=tmp_path, thorough=False, say=lambda name: None)
