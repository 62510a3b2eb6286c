import subprocess

from trainwright.hardware.machine import nvidia

LISTING = "NVIDIA H100 80GB HBM3, 81559, 81000, 9.0, 550.54.15\nTesla T4, 15360, 15000, 7.5, 550.54.15\n"
BANNER = "| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4     |"


def test_rows_become_gpus():
    first, second = nvidia.parse(LISTING, banner=BANNER)
    assert first.name == "NVIDIA H100 80GB HBM3"
    assert first.memory_bytes == 81559 << 20
    assert first.compute_capability == "9.0"
    assert second.cuda == "12.4"


def test_rows_that_say_nothing_are_left_out():
    assert nvidia.parse("Some GPU, [N/A], [N/A], 9.0, 550\nNo devices were found\n", banner="") == ()


def test_no_driver_no_gpus(monkeypatch):
    monkeypatch.setattr(nvidia.shutil, "which", lambda name: None)
    assert nvidia.gpus() == ()


def test_a_driver_that_fails_or_hangs_is_no_gpu(monkeypatch, tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho broken >&2\nexit 9\n")
    program.chmod(0o755)
    monkeypatch.setattr(nvidia.shutil, "which", lambda name: str(program))
    assert nvidia.gpus() == ()

    def hang(*args, **kwargs):
        raise subprocess.TimeoutExpired(cmd="nvidia-smi", timeout=1)

    monkeypatch.setattr(nvidia.subprocess, "run", hang)
    assert nvidia.gpus() == ()
