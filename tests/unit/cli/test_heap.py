"""Where a heap keeps freed blocks whole, it does not grow under training."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.cli import heap, main
from trainwright.cli.heap import MENDED, NO_CACHE, VARIABLE, begin_again, glibc_version, join_freed_blocks

OLD = (2, 36)

# Aligned blocks come and go as a network's tensors do, layer by layer; small blocks live on for a while between them.
UPDATES = """
import ctypes, random
from trainwright.runtime.allocator import keep_freed_memory

libc = ctypes.CDLL(None)
libc.malloc.restype = libc.memalign.restype = ctypes.c_void_p
libc.malloc.argtypes, libc.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
libc.memalign.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
libc.mallinfo2.restype = type("Info", (ctypes.Structure,), {"_fields_": [(str(n), ctypes.c_size_t) for n in range(10)]})
assert keep_freed_memory()
choose, small = random.Random(0), []

def node():
    for _ in range(choose.randrange(1, 6)):
        small.append(libc.malloc(choose.choice((24, 40, 56, 72, 88, 104, 136))))
    while len(small) > 400:
        libc.free(small.pop(choose.randrange(len(small))))

def tensor(mib):
    node()
    return libc.memalign(64, mib << 20)

for _ in range(40):
    saved = [tensor(size) for _ in range(12) for size in (6, 3, 2, 1)]
    logits, gradients = [tensor(60), tensor(60)], [tensor(90)]
    for block in logits:
        libc.free(block)
    while saved:
        gradients.append(tensor(4))
        libc.free(saved.pop())
        node()
    for block in (*gradients, tensor(90)):
        libc.free(block)
print(getattr(libc.mallinfo2(), "0"))
"""


@pytest.mark.parametrize(
    ("said", "glibc", "expected"),
    [
        ({}, OLD, {VARIABLE: NO_CACHE}),
        ({}, (2, 38), {VARIABLE: NO_CACHE}),
        ({}, MENDED, {}),
        ({}, None, {}),
        ({VARIABLE: "glibc.malloc.check=1"}, OLD, {VARIABLE: f"glibc.malloc.check=1:{NO_CACHE}"}),
        ({VARIABLE: "glibc.malloc.tcache_count=3"}, OLD, {VARIABLE: "glibc.malloc.tcache_count=3"}),
        ({VARIABLE: "glibc.malloc.tcache_max=24"}, OLD, {VARIABLE: "glibc.malloc.tcache_max=24"}),
    ],
)
def test_the_cache_is_turned_off_where_it_does_harm_and_nothing_is_said(said, glibc, expected) -> None:
    before = dict(said)
    assert join_freed_blocks(said, glibc) == (said != before)
    assert said == expected


def test_the_release_is_that_which_python_reads_from_its_own_file() -> None:
    name, version = platform.libc_ver()
    assert glibc_version() == (tuple(map(int, version.split("."))) if name == "glibc" else None)


def test_another_c_library_has_no_release(monkeypatch) -> None:
    monkeypatch.setattr(heap.os, "confstr", lambda name: "musl", raising=False)
    assert glibc_version() is None


@pytest.mark.skipif(
    not (glibc_version() and glibc_version() < MENDED), reason="this C library joins what it cuts off aligned blocks"
)
def test_a_heap_without_the_cache_stays_small() -> None:
    environ = {name: value for name, value in os.environ.items() if name != VARIABLE}

    def heap_bytes(**more: str) -> int:
        command = [sys.executable, "-c", UPDATES]
        return int(subprocess.run(command, env=environ | more, capture_output=True, text=True, check=True).stdout)

    assert heap_bytes(**{VARIABLE: NO_CACHE}) < 0.75 * heap_bytes()


def test_a_command_begins_again_with_what_was_set(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import json, os, sys\n"
        "from trainwright.cli.heap import begin_again\n"
        "if 'AGAIN' not in os.environ:\n"
        "    print(os.getpid())\n"
        "    os.environ['AGAIN'] = 'yes'\n"
        "    begin_again()\n"
        "print(json.dumps([os.getpid(), sys.argv[1:], sys.flags.utf8_mode]))\n"
    )
    command = [sys.executable, "-X", "utf8", str(program), "train", "a b.yaml"]
    first, again = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert json.loads(again) == [int(first), ["train", "a b.yaml"], 1]


def test_where_it_cannot_begin_again_it_goes_on(monkeypatch) -> None:
    monkeypatch.setattr(heap.sys, "executable", "/nowhere/python")
    begin_again()


@pytest.mark.parametrize(("arguments", "times"), [(["train"], 1), (["plan"], 0), ([], 0)])
def test_only_a_command_that_trains_in_its_own_process_begins_again(monkeypatch, arguments, times) -> None:
    began: list[bool] = []
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(main, "glibc_version", lambda: OLD)
    monkeypatch.setattr(main, "begin_again", lambda: began.append(True))
    monkeypatch.setattr(main.streams, "prepare", lambda: None)
    monkeypatch.setattr(main, "dispatch", lambda given: 0)
    monkeypatch.setattr(main.signal, "signal", lambda number, action: None)
    monkeypatch.setattr(main, "ANSWERS", ())  # their processes turn Python's collector off, and this one goes on
    monkeypatch.setattr(main.sys, "argv", ["trainwright", *arguments])
    assert main.main() == 0
    assert len(began) == times
    monkeypatch.setenv(VARIABLE, NO_CACHE)
    assert main.main() == 0
    assert len(began) == times
