"""Serving: an HTTP server that speaks OpenAI's completion protocol, over one engine with continuous batching.

::

    request -> app (asyncio: checks, tokenises, streams)      /metrics <- metrics
                 |  submit, cancel          ^  pieces of text
                 v                          |
               worker (one thread: Engine.step, Engine.step, ...)
"""

from __future__ import annotations

from trainwright.stages.serve.stage import run

__all__ = ["run"]
