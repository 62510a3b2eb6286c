from __future__ import annotations

import pytest

from trainwright.hardware.machine import processor, processor_clock


def test_the_clock_comes_from_the_governor_then_the_name_then_the_moment(monkeypatch, tmp_path):
    monkeypatch.setattr(processor.sys, "platform", "linux")
    lines = ["model name\t: Some CPU", "cpu MHz\t\t: 2599.998"]
    for module in (processor, processor_clock):
        monkeypatch.setattr(module, "cpuinfo", lambda: lines)
    assert processor_clock.cpu_clock_hz(tmp_path) == (pytest.approx(2.599998e9), None)
    lines[0] = "model name\t: Some CPU @ 2.20GHz"
    assert processor_clock.cpu_clock_hz(tmp_path) == (2.2e9, None)
    (tmp_path / "base_frequency").write_text("2000000\n")
    (tmp_path / "cpuinfo_max_freq").write_text("3800000\n")
    assert processor_clock.cpu_clock_hz(tmp_path) == (2.0e9, 3.8e9)
    for module in (processor, processor_clock):
        monkeypatch.setattr(module, "cpuinfo", list)
    assert processor_clock.cpu_clock_hz(tmp_path / "absent") == (None, None)
