"""Out of memory on a CPU, by allocators that fail: what grew, what helps, and going on with it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from trainwright.runtime.timing import time_limit as clock
from trainwright.stages.train.faults import memory as module
from trainwright.stages.train.faults.memory import OutOfMemory, _asked_bytes
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.step import TrainingStep

CPU_SAYS = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
CPU_SAYS += "allocate 4096 bytes. Error code 12 (Cannot allocate memory)"


@pytest.fixture
def recipe(make_recipe):
    return make_recipe(batch_tokens=256, duration="4 steps", exec_micro_batch=8)


def failing(monkeypatch, error: BaseException, *, above: int, after: int = 0) -> None:
    """Micro batches of more sequences than this find no memory, from some step on."""
    loss, calls = TrainingStep.loss, iter(range(10_000))

    def fails(self, micro):
        if micro["tokens"].shape[0] > above and next(calls) >= after:
            raise error
        return loss(self, micro)

    monkeypatch.setattr(TrainingStep, "loss", fails)


@pytest.mark.parametrize(
    "error", [RuntimeError(CPU_SAYS), MemoryError(), torch.OutOfMemoryError("Tried to allocate 2.00 GiB")]
)
def test_it_says_what_grew_what_was_planned_and_what_helps(error, recipe, inputs_for, train, tmp_path, monkeypatch):
    failing(monkeypatch, error, above=4)
    with pytest.raises(OutOfMemory) as raised:
        train(recipe, inputs_for(recipe), tmp_path / "out")
    said = str(raised.value)
    assert "out of memory in step 1: activations grew beyond the plan" in said
    assert "as planned" in said
    assert "set train.exec.micro_batch=8 train.recompute=selective (a step takes 1." in said
    assert "train.exec.on_oom=adapt does so by itself" in said
    assert raised.value.exit_code == 5


def test_where_nothing_grew_there_is_less_memory_than_the_plan_counts_on(
    recipe, inputs_for, train, tmp_path, monkeypatch
) -> None:
    """As under a limit on the process, of which the plan knows nothing."""
    monkeypatch.setattr(module, "_planned", lambda _: {"weights": 5.0, "activations": 2.0**40})
    monkeypatch.setattr(module, "_now", lambda *_: {"weights": 9.0, "activations": 2.0**39})
    failing(monkeypatch, RuntimeError(CPU_SAYS), above=4)
    with pytest.raises(OutOfMemory) as raised:
        train(recipe, inputs_for(recipe), tmp_path / "out")
    said = str(raised.value)
    assert "less memory than the plan counts on, and activations take most of it" in said
    assert "grew" not in said
    assert "seen 512 GiB of 512 GiB in all" in said and "expected 1 TiB of 1 TiB as planned" in said


def test_it_goes_on_with_the_cheapest_change(make_recipe, inputs_for, train, tmp_path, monkeypatch) -> None:
    keys = {"batch_tokens": 256, "duration": "4 steps", "exec_micro_batch": 8}
    quiet = make_recipe(**keys | {"exec_micro_batch": 2})
    train(quiet, inputs_for(quiet), tmp_path / "expected")
    recipe = make_recipe(**keys, exec_on_oom="adapt")
    failing(monkeypatch, RuntimeError(CPU_SAYS), above=2)
    said: list[str] = []
    train(recipe, inputs_for(recipe), tmp_path / "out", (lambda event: said.append(event.text),))
    assert sum("going on from the last checkpoint with train.exec.micro_batch=" in text for text in said) == 4
    one, other = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("out", "expected"))
    assert one["execution"]["micro_batch"] == 2
    assert one["train_loss"] == other["train_loss"], "micro batches of two give the same bits"


def test_its_time_limit_is_that_of_the_command_whatever_it_goes_on_with(
    make_recipe, inputs_for, train, tmp_path, monkeypatch
) -> None:
    begun: list[float] = []
    monkeypatch.setattr(clock, "time_limit", lambda asked_s, began_s, *rest: begun.append(began_s))
    recipe = make_recipe(
        batch_tokens=256, duration="2 steps", exec_micro_batch=8, exec_on_oom="adapt", exec_time_limit=60
    )
    failing(monkeypatch, RuntimeError(CPU_SAYS), above=4)
    train(recipe, inputs_for(recipe), tmp_path / "out")
    assert len(begun) > 1
    assert len(set(begun)) == 1


def test_state_that_lies_on_the_host_stays_there(make_recipe, inputs_for, train, tmp_path, monkeypatch) -> None:
    """To move it to a device that has no memory left would end in the next error, which says nothing."""

    def moved(self):
        raise AssertionError("the optimizer's state was moved to the device")

    recipe = make_recipe(batch_tokens=256, duration="4 steps", exec_micro_batch=8)
    failing(monkeypatch, MemoryError(), above=4)
    monkeypatch.setattr(Optimizers, "tensors", moved)
    monkeypatch.setattr(Optimizers, "on_device", lambda self: iter(()))
    monkeypatch.setattr(module, "device_bytes", lambda device: (2**40, 0, 0))
    with pytest.raises(OutOfMemory, match=r"activations grew beyond the plan.* of 1 TiB in all"):
        train(recipe, inputs_for(recipe), tmp_path / "out")


def test_other_errors_stay_what_they_are(recipe, inputs_for, train, tmp_path, monkeypatch) -> None:
    failing(monkeypatch, RuntimeError("shapes do not match"), above=4)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        train(recipe, inputs_for(recipe), tmp_path / "out")


def test_what_allocators_were_asked_for() -> None:
    assert _asked_bytes(CPU_SAYS) == 4096
    assert _asked_bytes("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0") == int(2.5 * 2**30)
    assert _asked_bytes("") == 0


def test_torch_says_so_where_a_process_may_have_no_more() -> None:
    """A real allocator that fails: the text that is looked for is torch's own."""
    program = (
        "import torch, resource\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, used + 2**26))\n"
        "torch.empty(2**30, dtype=torch.uint8)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "can't allocate memory" in done.stderr
    assert _asked_bytes(done.stderr) == 2**30
