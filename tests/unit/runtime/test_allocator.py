"""Freed memory is kept where the C library can be told to."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Above 32 MiB, glibc never raises its own threshold for mappings.
PROGRAM = """
import resource, sys
size = 40 << 20
from trainwright.runtime.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
for _ in range(3):
    b"x" * size
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    b"x" * size
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these switches")
def test_the_same_pages_are_not_faulted_in_again() -> None:
    faults = {
        mode: int(
            subprocess.run([sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, check=True).stdout
        )
        for mode in ("keep", "default")
    }
    assert faults["default"] > 10 * 5000, "10,240 pages, ten times"
    assert faults["keep"] < faults["default"] / 10


def test_elsewhere_nothing_happens(monkeypatch) -> None:
    from trainwright.runtime import allocator

    monkeypatch.setattr(allocator.platform, "libc_ver", lambda: ("musl", "1.2"))
    assert allocator.keep_freed_memory() is False
