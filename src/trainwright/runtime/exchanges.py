"""Exposed communication: the time that a rank waits in collectives, on the clock of its training step.

An exchange that hides behind compute costs the step nothing, and nothing of it is counted. What is counted are the
places where a rank waits: blocking collectives, ``Work.wait``, the use of a tensor that is still on its way, and where
FSDP's compute stream waits for gathered weights or for reduced gradients. On an accelerator the clock's marks lie in
the compute stream, so that a collective which is only queued there takes no time.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.fsdp import FSDPModule

from trainwright.runtime.timing.clock import PhaseClock

BLOCKING = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_single",
    "all_reduce",
    "all_to_all_single",
    "broadcast",
    "recv",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "send",
)
"""Functions of ``torch.distributed`` that may wait, or queue work in the compute stream; which there are, it knows."""
WAITS_OF_FSDP = ("wait_for_unshard", "_wait_for_post_backward", "finalize_backward")
"""Where a group of sharded parameters makes its stream wait."""


@contextmanager
def exchanges_counted(network: nn.Module, clock: PhaseClock) -> Iterator[None]:
    """Counts exposed communication within as ``communicate``: of this process, and of this network's sharded parts."""
    with ExitStack() as put_back:

        def time(owner: Any, name: str) -> None:
            put_back.callback(_replaced(owner, name, functools.partial(_timed, clock)))

        for name in filter(functools.partial(hasattr, dist), BLOCKING):
            time(dist, name)
        time(dist.Work, "wait")
        time(functional, "wait_tensor")
        for group in parameter_groups(network):
            for name in WAITS_OF_FSDP:
                time(group, name)
        yield


def _timed(clock: PhaseClock, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*arguments: Any, **options: Any) -> Any:
        if _beside_training():
            return function(*arguments, **options)
        with clock.exchange():
            return function(*arguments, **options)

    return timed


def _beside_training() -> bool:
    """Returns whether a thread that Python started asks: it writes a checkpoint, say, and no step waits for it.

    Training runs in the main thread, and its backward passes in threads that torch started, which Python calls dummies.
    """
    thread = threading.current_thread()
    return thread is not threading.main_thread() and not thread.name.startswith("Dummy-")


def _replaced(owner: Any, name: str, wrapped: Callable[[Any], Any]) -> Callable[[], None]:
    """Puts a wrapper in an attribute's place; returns what puts the attribute back."""
    own, before = vars(owner).get(name), getattr(owner, name)
    setattr(owner, name, wrapped(before))
    return functools.partial(setattr, owner, name, own) if own is not None else functools.partial(delattr, owner, name)


def parameter_groups(network: nn.Module) -> Iterator[Any]:
    """Yields FSDP's groups of parameters; torch has no public name for them."""
    for module in network.modules():
        if isinstance(module, FSDPModule):
            state = module._get_fsdp_state()  # noqa: SLF001
            # One group up to torch 2.12, a list of them since.
            several = getattr(state, "_fsdp_param_groups", None)
            yield from several if several is not None else filter(None, [state._fsdp_param_group])  # noqa: SLF001
