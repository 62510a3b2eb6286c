import os
import platform
import subprocess
import sys

import psutil

from trainwright.hardware.machine.facts import gather, machine_digest
from trainwright.hardware.machine.processor import CPU_FEATURES


def test_facts_agree_with_the_system(tmp_path):
    facts = gather(tmp_path / "not" / "there", watch_s=0.0)
    assert facts.disk_path == str(tmp_path)
    assert facts.bits == 64
    assert facts.python == platform.python_version()
    assert 1 <= facts.cores <= facts.logical_cores <= os.cpu_count()
    assert 0 < facts.memory_available_bytes <= facts.memory_bytes <= psutil.virtual_memory().total
    assert set(facts.cpu_features) <= set(CPU_FEATURES)
    assert 0.0 <= facts.cpu_busy <= 1.0
    assert facts.clock_hz is None or 5e8 < facts.clock_hz < 1e10


def test_fewer_allowed_processors_are_fewer_cores():
    if not hasattr(os, "sched_setaffinity"):
        return
    script = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from pathlib import Path; from trainwright.hardware.machine.facts import gather\n"
        "print(gather(Path('.'), watch_s=0).cores)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


def test_the_digest_stays_until_the_machine_changes(monkeypatch):
    before = machine_digest()
    assert machine_digest() == before
    monkeypatch.setattr("trainwright.hardware.machine.facts.cpu_model", lambda: "another processor")
    assert machine_digest() != before
