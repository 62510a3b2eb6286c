from __future__ import annotations

import platform
from pathlib import Path

import pytest

from trainwright.hardware.machine import processor


def test_features_are_those_that_the_kernel_lists():
    flags = Path("/proc/cpuinfo")
    if not flags.is_file():
        pytest.skip("no /proc/cpuinfo here")
    listed = set(flags.read_text(encoding="utf-8").split())
    assert set(processor.cpu_features()) == listed & set(processor.CPU_FEATURES)


@pytest.mark.parametrize(
    ("machine", "answers", "expected"),
    [
        ("arm64", {"hw.optional.arm.FEAT_BF16": "1", "hw.optional.arm.FEAT_I8MM": "0"}, ("neon", "asimd", "bf16")),
        ("x86_64", {"machdep.cpu.leaf7_features": "SMEP AVX2 AVX512F"}, ("avx2", "avx512f")),
    ],
)
def test_features_of_a_mac(monkeypatch, machine, answers, expected):
    monkeypatch.setattr(processor.sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(processor, "_sysctl", lambda name: answers.get(name, ""))
    assert processor.cpu_features() == expected


def test_the_processor_has_a_name():
    assert processor.cpu_model().strip()


def test_a_hypervisor_shows_in_the_flags(monkeypatch):
    monkeypatch.setattr(processor, "cpuinfo", lambda: ["flags\t\t: fpu avx2 hypervisor"])
    assert processor.is_virtual()
    monkeypatch.setattr(processor, "cpuinfo", lambda: ["flags\t\t: fpu avx2"])
    assert not processor.is_virtual()
