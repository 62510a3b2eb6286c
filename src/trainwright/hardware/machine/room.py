"""Whether the memory of this machine, all of it, could hold what is asked for."""

from __future__ import annotations

from trainwright.core.errors import MachineError
from trainwright.core.units import format_bytes
from trainwright.hardware.machine.facts import memory
from trainwright.spec.model import ModelSpec

ROTARY_BYTES = 12
"""For each position and element of a head: angles and one function of them in fp64, both results in fp32, for pairs."""


def check_rotary(model: ModelSpec, *, where: object) -> None:
    """Refuses a context whose tables of rotary positions this machine cannot hold while it makes them.

    Raises:
        MachineError: with the bytes needed and the bytes there.
    """
    if model.positions == "rope":
        size_bytes = ROTARY_BYTES * model.context_tokens * model.head_size
        _check(size_bytes, memory()[0], f"a context of {model.context_tokens:,} tokens", where, "shorten the context")


def check_cache(model: ModelSpec, *, places: int, element_bytes: int, memory_bytes: int | None = None) -> None:
    """Refuses a key/value cache that a device cannot hold: every request may fill its context.

    Args:
        model: whose keys and values are kept.
        places: requests at once.
        element_bytes: of a number.
        memory_bytes: of the device; None: this machine's.

    Raises:
        MachineError: as ``check_rotary``.
    """
    each = 2 * model.layers * model.context_tokens * model.kv_heads * model.head_size * element_bytes
    there = memory()[0] if memory_bytes is None else memory_bytes
    fix = f"set it to {there // each} at most" if each <= there else "take a model with a shorter context"
    _check(each * places, there, f"a key/value cache for {places:,} requests", "serve.max_concurrent", fix)


def _check(size_bytes: int, there_bytes: int, what: str, where: object, fix: str) -> None:
    if size_bytes > there_bytes:
        raise MachineError(
            "{what} needs more memory than there is",
            where=where,
            seen=format_bytes(size_bytes),
            expected=f"{format_bytes(there_bytes)} at most",
            fix=fix,
            what=what,
        )
