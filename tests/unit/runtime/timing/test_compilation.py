"""Compilation is a phase of its own, wherever it happens."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo import reset
from torch._dynamo.callback import CallbackTrigger, callback_handler

from trainwright.runtime.timing.clock import PhaseClock
from trainwright.runtime.timing.compilation import compilation_counted

CPU = torch.device("cpu")


@pytest.fixture
def clock() -> PhaseClock:
    made = PhaseClock(CPU)
    made.start()
    return made


def test_what_compiles_is_counted_apart_and_what_runs_is_not(clock) -> None:
    compiled = torch.compile(lambda x: (x.sin() * 2).sum(), backend="aot_eager")
    x = torch.ones(8, requires_grad=True)
    with compilation_counted(clock):
        with clock.phase("forward"):
            compiled(x).backward()
        first = clock.stop()
        with clock.phase("forward"):
            compiled(x)
        again = clock.stop()
    assert first.compile > 0
    assert again.compile == 0 and again.forward > 0
    reset()


def test_a_compilation_within_another_one_counts_once(clock) -> None:
    with compilation_counted(clock), clock.phase("backward"):
        with (
            callback_handler.install_callbacks(CallbackTrigger.LAZY_BACKWARD, "0/0"),
            callback_handler.install_callbacks(CallbackTrigger.DYNAMO, "0/1"),
        ):
            pass
        names = [span.phase for span in clock.spans()]
    assert names == ["other", "backward", "compile", "backward"]


def test_nothing_is_left_behind_even_where_torch_forgot(clock) -> None:
    before = list(callback_handler.start_callbacks), list(callback_handler.end_callbacks)
    with compilation_counted(clock):
        reset()
    assert (callback_handler.start_callbacks, callback_handler.end_callbacks) == ([], [])
    with compilation_counted(clock):
        pass
    assert before == ([], []) and callback_handler.start_callbacks == []
