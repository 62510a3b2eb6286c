"""Serving: an HTTP server that speaks OpenAI's completion protocol, over one engine of ``engines``.

::

    request -> app (asyncio: checks, tokenises, streams)      /metrics <- metrics
                 |  submit, cancel          ^  pieces of text
                 v                          |
               worker (one thread: engine.step(), engine.step(), ...)
"""

from __future__ import annotations

from typing import Any

from trainwright.core.registry import load


def __getattr__(name: str) -> Any:
    if name == "run":  # on demand: the check beside it is made without torch
        return load("trainwright.stages.serve.stage:run", kind="stage")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
