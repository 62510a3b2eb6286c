"""``Event``: one line of ``events.jsonl``, the only thing that monitoring reads."""

from __future__ import annotations

from typing import Literal

from trainwright.core.frozen import dataclass

EventKind = Literal["stage", "metric", "phase", "memory", "progress", "message", "resume", "restart"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Something that happened ``t_s`` seconds (Unix time) into the world.

    * ``stage``: ``name`` started (value 0) or ended (value 1); ``text`` says how ("cache hit", "done").
    * ``metric``: a measured number, for example ``train/loss`` in ``nats/token`` at ``step``.
    * ``phase``: seconds of one phase of ``step``. ``memory``: bytes of one class.
    * ``progress``: ``value`` of ``total`` units of the task ``name`` are done; shown, not stored.
    * ``message``: ``text`` for a person.
    * ``restart``: the task ``name`` begins again after a fault; ``value`` seconds of work since ``step`` are lost.
    * ``resume``: the task ``name`` goes on after ``step``; what stands before it about later steps is undone.
    """

    run: str
    t_s: float
    kind: EventKind
    name: str
    value: float
    unit: str = ""
    step: int | None = None
    rank: int = 0
    total: float | None = None
    text: str = ""
