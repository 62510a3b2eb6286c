"""How long ``torch.compile`` takes, as a phase of its own: of whatever pass began it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch._dynamo.callback import CallbackArgs, callback_handler

from trainwright.runtime.timing.clock import PhaseClock


@contextmanager
def compilation_counted(clock: PhaseClock) -> Iterator[None]:
    """Counts compilation within as the phase ``compile``: of forward and backward passes, first or repeated.

    Torch's handler tells of the outermost compilation alone, from whichever thread; the others wait for it.
    """
    under_way = ExitStack()

    def begin(_: CallbackArgs) -> None:
        under_way.enter_context(clock.phase("compile"))

    def end(_: CallbackArgs) -> None:
        under_way.close()

    callback_handler.register_start_callback(begin)
    callback_handler.register_end_callback(end)
    try:
        yield
    finally:
        # torch._dynamo.reset forgets all callbacks.
        if begin in callback_handler.start_callbacks:
            callback_handler.remove_start_callback(begin)
        if end in callback_handler.end_callbacks:
            callback_handler.remove_end_callback(end)
