"""Probes run on small shapes here; what they time is checked, not how long it takes."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from trainwright.core.errors import MachineError
from trainwright.hardware.machine.probes import Timing
from trainwright.runtime import probes
from trainwright.runtime.timing.stopwatch import Stopwatch


@pytest.fixture
def watch():
    return Stopwatch(torch.device("cpu"), budget_s=0.0)


class Recording(Stopwatch):
    """Keeps what the timed calls return."""

    def __init__(self):
        super().__init__(torch.device("cpu"), budget_s=0.0)
        self.results = []

    def time(self, call):
        self.results.append(call())
        return Timing(median_s=1.0, low_s=1.0, high_s=1.0, fastest_s=0.5, repetitions=1)


def test_the_three_products_have_the_shapes_of_a_linear_layer():
    watch = Recording()
    matmuls = list(probes.probe_matmuls(watch, [((6, 4, 10), "fp32"), ((6, 4, 10), "bf16")]))
    assert [probe.direction for probe in matmuls] == ["forward", "grad_input", "grad_weight"] * 2
    assert [tuple(result.shape) for result in watch.results] == [(6, 10), (6, 4), (10, 4)] * 2
    assert matmuls[0].flops_per_s == 2 * 6 * 4 * 10


def test_the_peak_is_that_of_the_fastest_repetition():
    watch = Recording()
    (probe,) = probes.probe_peaks(watch, [(8, "bf16")])
    assert watch.results[0].shape == (8, 8)
    assert watch.results[0].dtype == torch.bfloat16
    assert probe.flops_per_s == 2 * 8**3 / 0.5


def test_bandwidth_counts_three_arrays():
    watch = Recording()
    (probe,) = probes.probe_bandwidth(watch, [1200])
    assert watch.results[0].shape == (100,)
    assert probe.bytes_per_s == 1200


def test_attention_runs_forward_and_backward(watch):
    seen = []

    def attend(query, key, value):
        seen.append(query.shape)
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)

    (probe,) = probes.probe_attention(watch, [((2, 2, 8, 4), "fp32")], attend)
    assert seen[0] == (2, 2, 8, 4)
    assert probe.forward_flops == 4 * 2 * 2 * 8 * 8 * 4
    assert probe.backward.median_s > 0


def test_updates_and_launches_take_time(watch):
    assert probes.probe_update(watch, parameters=1 << 19).parameters == 1 << 19
    assert probes.probe_launch_s(watch, operations=3) > 0


def test_the_disk_probe_leaves_nothing_behind(tmp_path):
    disk = probes.probe_disk(tmp_path / "new", size_bytes=2 << 20)
    assert min(disk.write_s, disk.read_s, disk.digest_s) > 0
    assert list((tmp_path / "new").iterdir()) == []


def test_a_disk_that_cannot_be_written_is_the_machines_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="cannot write"):
        probes.probe_disk(tmp_path / "file" / "below", size_bytes=1 << 20)


def test_a_kill_while_the_disk_is_measured_leaves_nothing_behind(tmp_path):
    program = (
        "import os, sys; from pathlib import Path; from trainwright.runtime import probes\n"
        "os.fsync = lambda handle: os.kill(os.getpid(), 9)\n"
        "probes.probe_disk(Path(sys.argv[1]), size_bytes=1 << 20)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False).returncode == -9
    assert list(tmp_path.iterdir()) == []
