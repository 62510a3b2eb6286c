"""What a rank says of itself, its collectives among it, and where its stacks say that it stood."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from trainwright.core.errors import MachineError
from trainwright.runtime.faults import beat as module
from trainwright.runtime.faults.beat import beating, heard, innermost, interval_s, stack_of


@pytest.fixture
def group(tmp_path):
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timedelta(seconds=20))
    yield
    dist.destroy_process_group()


def wait_for(condition) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_rank_says_where_it_stands_until_it_ends(tmp_path, group) -> None:
    position = [(7, "forward", object())]
    with beating(tmp_path, 3, hang_after_s=1.0) as beat:
        assert beat is not None
        beat.follow(lambda: position[0])
        dist.all_reduce(torch.ones(2))
        # The first that it says may have been read before it followed.
        wait_for(lambda: (said := heard(tmp_path, 3)) is not None and said.collectives >= 1 and said.phase != "")
        first = heard(tmp_path, 3)
        assert (first.pid, first.step, first.steps_here, first.phase) == (os.getpid(), 7, 0, "forward")
        assert first.collective == "gloo:all_reduce"
        assert len(first.arrivals) >= 1
        wait_for(lambda: heard(tmp_path, 3).alive_s > first.alive_s)
        assert heard(tmp_path, 3).progressed_s == first.progressed_s, "alive, and no further"
        position[0] = (8, "backward", object())
        wait_for(lambda: heard(tmp_path, 3).phase == "backward")
        assert heard(tmp_path, 3).progressed_s > first.progressed_s
        assert heard(tmp_path, 3).steps_here == 1
    assert heard(tmp_path, 3).done


@pytest.mark.parametrize(("first", "then"), [((7, "forward"), (7, "backward")), ((7, "forward"), (8, "checkpoint"))])
def test_collectives_are_not_read_while_groups_may_be_made(tmp_path, monkeypatch, first, then) -> None:
    reads, moves = [], iter(range(10**6))
    monkeypatch.setattr("trainwright.runtime.faults.beat._collectives", lambda: reads.append(0) or ("sum", 5, {}))
    here = [first]
    with beating(tmp_path, 0, hang_after_s=1.0) as beat:
        assert beat is not None
        beat.follow(lambda: (*here[0], next(moves)))
        here[0] = then
        wait_for(lambda: (said := heard(tmp_path, 0)) is not None and said.phase == then[1])
        reads.clear()
        said = heard(tmp_path, 0)
        wait_for(lambda: heard(tmp_path, 0).alive_s > said.alive_s + 0.3)
        assert not reads
        beat.follow(lambda: (*then, "still"))
        wait_for(lambda: heard(tmp_path, 0).collectives == 5)


def test_collectives_are_read_while_steps_are_made(tmp_path, monkeypatch) -> None:
    moves = iter(range(10**6))
    monkeypatch.setattr("trainwright.runtime.faults.beat._collectives", lambda: ("sum", 5, {}))
    with beating(tmp_path, 0, hang_after_s=1.0) as beat:
        assert beat is not None
        step = [7]
        beat.follow(lambda: (step[0], "forward", next(moves)))
        step[0] = 8
        wait_for(lambda: (said := heard(tmp_path, 0)) is not None and said.collectives == 5)
    assert heard(tmp_path, 0).collective == "sum"


def test_collectives_of_both_recorders_are_read(monkeypatch) -> None:
    """NCCL has a flight recorder of its own; torch for a processor has none of it."""

    def recorder(*entries):
        keys = ("record_id", "profiling_name", "time_created_ns", "is_p2p")
        records = [dict(zip(keys, each, strict=True)) for each in entries]
        found = [{"process_group": ["0", "all"], "collective_seq_id": each["record_id"], **each} for each in records]
        return lambda: json.dumps({"entries": found})

    monkeypatch.setattr(module.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(module.c10d, "_dump_fr_trace_json", recorder((4, "gloo:gather", 70, False)), raising=False)
    both = recorder((8, "nccl:all_gather", 60, False), (9, "nccl:send", 65, True), (10, "nccl:sum", 80, False))
    monkeypatch.setattr(module.c10d, "_dump_nccl_trace_json", both, raising=False)
    read = module._collectives  # noqa: SLF001  # what the thread calls
    name, count, arrivals = read()
    assert (name, count) == ("nccl:sum", 5 + 11)
    assert list(arrivals.items()) == [("nccl/0/8", 60), ("0/4", 70), ("nccl/0/10", 80)]
    monkeypatch.delattr(module.c10d, "_dump_nccl_trace_json")
    assert read() == ("gloo:gather", 5, {"0/4": 70})


def test_stacks_are_written_where_they_are_asked_for(tmp_path) -> None:
    with beating(tmp_path, 0, hang_after_s=1.0):
        os.kill(os.getpid(), signal.SIGUSR2)
        wait_for(lambda: "test_beat.py" in stack_of(tmp_path, 0).read_text())


def test_a_disk_that_takes_no_file_is_named(tmp_path, monkeypatch) -> None:
    def refuse(path: Path, mode: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(MachineError, match="the disk is full") as raised, beating(tmp_path, 0, hang_after_s=1.0):
        pytest.fail("it has nothing to say with")
    assert str(stack_of(tmp_path, 0)) in str(raised.value)


def test_without_a_folder_nobody_speaks(tmp_path) -> None:
    with beating(None, 0, hang_after_s=1.0) as beat:
        assert beat is None
    assert heard(tmp_path, 0) is None


def test_the_innermost_call_and_ours() -> None:
    stacks = (
        'Current thread 0x0000000000000001 (most recent call first):\n  File "/a/threading.py", line 1 in wait\n\n'
        'Thread 0x0000000000000002 (most recent call first):\n  File "/site/torch/c10d.py", line 5 in all_reduce\n'
        '  File "/src/trainwright/stages/train/step.py", line 9 in gradient\n'
    )
    said = innermost(stacks, 2)
    assert said.startswith('"/site/torch/c10d.py", line 5 in all_reduce, called by "/src/trainwright')
    assert innermost(stacks, 0) == said, "the oldest is told last"
    assert innermost(stacks, 1) == '"/a/threading.py", line 1 in wait'
    assert innermost("", 2) == ""


def test_the_main_thread_is_told_whichever_thread_the_signal_comes_to(tmp_path) -> None:
    ended = threading.Event()

    def idles() -> None:
        ended.wait()

    helper = threading.Thread(target=idles)
    helper.start()
    with beating(tmp_path, 0, hang_after_s=1.0):
        signal.pthread_kill(helper.ident, signal.SIGUSR2)
        wait_for(lambda: "test_beat.py" in stack_of(tmp_path, 0).read_text().rpartition("\n\n")[2])
        wait_for(lambda: heard(tmp_path, 0) is not None)
        stacks, state = stack_of(tmp_path, 0).read_text(), heard(tmp_path, 0)
    ended.set()
    helper.join()
    current = next(block for block in stacks.split("\n\n") if block.startswith("Current thread"))
    assert "in idles" in current
    mine = next(block for block in stacks.split("\n\n") if "in test_the_main_thread_is_told" in block)
    assert innermost(stacks, state.main_thread) in mine, "wherever it was in what it calls"
    assert "idles" not in mine


def test_ranks_speak_often_enough_to_be_missed() -> None:
    assert all(interval_s(limit_s) < limit_s / 4 for limit_s in (0.5, 3.0, 45.0, 600.0))


def test_a_word_that_the_disk_refuses_is_said_again(tmp_path, monkeypatch, capsys) -> None:
    write, refusing, asked = Path.write_text, [True], []

    def refuse(path: Path, text: str) -> int:
        asked.append(path)
        if refusing[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", refuse)
    with beating(tmp_path, 0, hang_after_s=1.0):
        wait_for(lambda: len(asked) >= 3)
        assert heard(tmp_path, 0) is None
        refusing[0] = False
        wait_for(lambda: heard(tmp_path, 0) is not None)
    assert heard(tmp_path, 0).done
    assert capsys.readouterr().err.count("No space left on device") == 1
