"""What the gatherer of wheels says where pip refuses; nothing is fetched."""

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "wheelhouse.py"


@pytest.fixture(scope="module")
def wheelhouse():
    spec = spec_from_file_location(SCRIPT.stem, SCRIPT)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pips_reason_is_one_line(wheelhouse, monkeypatch):
    text = "WARNING: old\nERROR: Could not find a version\nERROR: No matching distribution found for numpy==2\n"
    done = subprocess.CompletedProcess([], 1, stdout="", stderr=text)
    monkeypatch.setattr(wheelhouse.subprocess, "run", lambda *arguments, **options: done)
    with pytest.raises(SystemExit, match=r"^wheelhouse: pip: No matching distribution found for numpy==2$"):
        wheelhouse.sizes(["numpy==2"], ["--python-version", "3.99"])


def test_the_command_that_its_first_lines_show_is_one_that_it_reads(wheelhouse, monkeypatch):
    (line,) = [line for line in wheelhouse.__doc__.splitlines() if line.startswith("    python ")]
    monkeypatch.setattr(sys, "argv", line.split()[1:])
    monkeypatch.setattr(wheelhouse, "closure", lambda environment: environment)
    monkeypatch.setattr(wheelhouse, "pinned", lambda names: ["x==1"])
    monkeypatch.setattr(wheelhouse, "sizes", lambda requirements, options: {"x-1.whl": 10**9})
    assert wheelhouse.main() == 1, "too large, and nothing is fetched"
