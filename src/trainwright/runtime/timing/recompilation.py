"""How often ``torch.compile`` may compile one function, and a line where it stops: nothing gets slow in silence."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from torch._dynamo import config
from torch._dynamo.utils import counters

from trainwright.artifact.events import Events

LOGGER = "torch._dynamo.convert_frame"
HIT = "torch._dynamo hit config."
"""How torch's warning begins; its arguments are limit, value, function, guard and an address (torch 2.11 to 2.13)."""


class _Heard(logging.Filter):
    """Turns torch's warning into a message of ours."""

    def __init__(self, events: Events) -> None:
        super().__init__()
        self._events = events

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether torch's own line is wanted too."""
        if not record.msg.startswith(HIT) or not isinstance(record.args, tuple) or len(record.args) < 4:
            return True
        _, limit, function, guard = map(str, record.args[:4])
        self._events.message(
            f"torch.compile has compiled {function} {limit} times and does so no more: what asks for another one runs "
            f"uncompiled. It failed on {' '.join(guard.split())}. train.exec.recompile_limit allows more"
        )
        return False


@contextmanager
def recompilation_limited(limit: int, events: Events, step: int) -> Iterator[None]:
    """Lets each function within be compiled so often; tells which guard asked for more, and how many graphs were made.

    Args:
        limit: of compiled versions of one function.
        events: where to tell it.
        step: updates made so far.
    """
    heard, logger = _Heard(events), logging.getLogger(LOGGER)
    before = counters["stats"]["unique_graphs"]
    logger.addFilter(heard)
    try:
        with config.patch(recompile_limit=limit):
            yield
    finally:
        logger.removeFilter(heard)
        graphs = counters["stats"]["unique_graphs"] - before
        events.metric("train/compiled_graphs", graphs, unit="graphs", step=step)
