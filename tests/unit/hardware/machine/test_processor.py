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


def test_the_clock_comes_from_the_governor_then_the_name_then_the_moment(monkeypatch, tmp_path):
    monkeypatch.setattr(processor.sys, "platform", "linux")
    lines = ["model name\t: Some CPU", "cpu MHz\t\t: 2599.998"]
    monkeypatch.setattr(processor, "_cpuinfo", lambda: lines)
    assert processor.cpu_clock_hz(tmp_path) == (pytest.approx(2.599998e9), None)
    lines[0] = "model name\t: Some CPU @ 2.20GHz"
    assert processor.cpu_clock_hz(tmp_path) == (2.2e9, None)
    (tmp_path / "base_frequency").write_text("2000000\n")
    (tmp_path / "cpuinfo_max_freq").write_text("3800000\n")
    assert processor.cpu_clock_hz(tmp_path) == (2.0e9, 3.8e9)
    monkeypatch.setattr(processor, "_cpuinfo", list)
    assert processor.cpu_clock_hz(tmp_path / "absent") == (None, None)


def test_a_hypervisor_shows_in_the_flags(monkeypatch):
    monkeypatch.setattr(processor, "_cpuinfo", lambda: ["flags\t\t: fpu avx2 hypervisor"])
    assert processor.is_virtual()
    monkeypatch.setattr(processor, "_cpuinfo", lambda: ["flags\t\t: fpu avx2"])
    assert not processor.is_virtual()
