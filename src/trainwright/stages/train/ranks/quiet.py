"""What torch says of its own while ranks start, run and end is left out: errors of ours tell it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

OF_THE_AGENT = ("torch.distributed.elastic", "torch.distributed.launcher", "torch.multiprocessing.spawn")
"""Names of loggers: they log a page for each rank that ends, and a line for each that is ended."""


@contextmanager
def quiet_loggers(*names: str) -> Iterator[None]:
    """Leaves out what loggers of these names, and those below them, say for a while.

    Several of torch's have levels of their own, so that those above them do not count.
    """
    below = tuple(f"{name}." for name in names)
    known = [name for name in logging.root.manager.loggerDict if name.startswith(below)]
    loggers = [logging.getLogger(name) for name in (*names, *known)]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextmanager
def no_warnings_below() -> Iterator[None]:
    """Leaves out what libraries below Python warn of in processes that are started within, unless a user asked."""
    name = "TORCH_CPP_LOG_LEVEL"
    asked = name in os.environ
    os.environ.setdefault(name, "ERROR")
    try:
        yield
    finally:
        if not asked:
            del os.environ[name]
