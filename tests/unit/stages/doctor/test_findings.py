from dataclasses import replace

import pytest

from trainwright.hardware.nvidia import Gpu
from trainwright.stages.doctor.findings import findings
from trainwright.testing.machine import fake_facts, fake_probes

GPU = Gpu(name="Tesla T4", memory_bytes=1, memory_free_bytes=1, compute_capability="7.5", driver="550", cuda="12.4")


def test_a_good_machine_has_nothing_to_mend():
    assert list(findings(fake_facts(), fake_probes())) == []


@pytest.mark.parametrize(
    ("changes", "what", "fix"),
    [
        ({"bits": 32}, "32-bit", "64-bit Python"),
        ({"torch": None}, "torch is not installed", "pip install"),
        ({"gpus": (GPU,)}, "built for CPUs only", "pytorch.org"),
        ({"memory_available_bytes": 1 << 30}, "of memory", "smaller model"),
        ({"disk_free_bytes": 1 << 30}, "are free in", "--workspace"),
        ({"compiler": None}, "no C++ compiler", "g++"),
        ({"python_headers": False}, "headers", "python3-dev"),
        ({"cpu_busy": 0.9}, "other programs use 90%", "--again"),
    ],
)
def test_each_trouble_has_its_line(changes, what, fix):
    (found,) = findings(replace(fake_facts(), **changes), None)
    assert what in found.what
    assert fix in found.fix


def test_a_gpu_that_torch_does_not_see_is_named():
    facts = replace(fake_facts(), gpus=(GPU,), torch="2.13.0+cu130")
    (found,) = findings(facts, fake_probes())
    assert "was not measured" in found.what
