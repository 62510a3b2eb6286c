from dataclasses import replace

import pytest

from trainwright.hardware.machine.nvidia import Gpu
from trainwright.stages.doctor.findings import findings
from trainwright.testing.machine import fake_facts, fake_probes

GPU = Gpu(name="Tesla T4", memory_bytes=1, memory_free_bytes=1, compute_capability="7.5", driver="550", cuda="12.4")

MEASURED_S = fake_probes().measured_unix_s


def test_a_good_machine_has_nothing_to_mend():
    assert list(findings(fake_facts(), fake_probes(), now_unix_s=MEASURED_S)) == []


@pytest.mark.parametrize(
    ("changes", "what", "fix"),
    [
        ({"bits": 32}, "32-bit", "64-bit Python"),
        ({"torch": None}, "torch is not installed", "pip install"),
        ({"gpus": (GPU,)}, "built for CPUs only", "pytorch.org"),
        ({"memory_available_bytes": 1 << 30}, "of memory", "smaller model"),
        ({"disk_free_bytes": 1 << 30}, "are free in", "the workspace"),
        ({"compiler": None}, "no C++ compiler", "g++"),
        ({"python_headers": False}, "headers", "python3-dev"),
    ],
)
def test_each_trouble_has_its_line(changes, what, fix):
    (finding,) = findings(replace(fake_facts(), **changes), None, now_unix_s=MEASURED_S)
    assert what in finding.what
    assert fix in finding.fix


def test_a_gpu_that_torch_does_not_see_is_named():
    facts = replace(fake_facts(), gpus=(GPU,), torch="2.13.0+cu130")
    (finding,) = findings(facts, fake_probes(), now_unix_s=MEASURED_S)
    assert "was not measured" in finding.what


def test_a_measurement_beside_other_programs_stays_doubtful():
    """Whatever the machine does now: the record is kept for weeks."""
    busy = replace(fake_probes(), cpu_busy=0.9)
    (finding,) = findings(fake_facts(), busy, now_unix_s=MEASURED_S)
    assert "while other programs used 90%" in finding.what
    assert "--fresh" in finding.fix
    assert list(findings(replace(fake_facts(), cpu_busy=0.9), fake_probes(), now_unix_s=MEASURED_S)) == []


def test_old_measurements_are_named_with_their_age():
    (finding,) = findings(fake_facts(), fake_probes(), now_unix_s=MEASURED_S + 100 * 86400)
    assert "100 days old" in finding.what
    assert "--fresh" in finding.fix


def test_a_device_that_nobody_has_run_training_on_says_so():
    probes = replace(fake_probes(), device_kind="npu", memory_bytes=64 << 30)
    (finding,) = findings(fake_facts(), probes, now_unix_s=MEASURED_S)
    assert finding.what == "training on Ascend NPUs was never run on hardware by this project"
    assert "make gpu" in finding.fix
