"""Whether the memory of this machine, or of a device, could hold what is asked for."""

from __future__ import annotations

from trainwright.core.errors import MachineError
from trainwright.core.units import format_bytes
from trainwright.hardware.machine.facts import memory
from trainwright.spec.model import ModelSpec

# Not in the planner: the tables are made on this machine whatever is planned for, and no class of a plan counts them.
ROTARY_BYTES = 12
"""For each position and element of a head: angles and one function of them in fp64, both results in fp32, for pairs."""


def check_rotary(model: ModelSpec, *, where: object) -> None:
    """Refuses a context whose tables of rotary positions this machine cannot hold while it makes them.

    Raises:
        MachineError: with the bytes needed and the bytes there.
    """
    size_bytes, there_bytes = ROTARY_BYTES * model.context_tokens * model.head_size, memory()[0]
    if model.positions == "rope" and size_bytes > there_bytes:
        what = f"a context of {model.context_tokens:,} tokens"
        raise _too_large(what, size_bytes, there_bytes, fix="shorten the context").at(where)


def check_places(place_bytes: int, *, places: int, memory_bytes: int | None = None) -> None:
    """Refuses a key/value cache that a device cannot hold: every request may fill its context.

    Args:
        place_bytes: the keys and values of one request.
        places: requests at once.
        memory_bytes: of the device; None: this machine's.

    Raises:
        MachineError: as ``check_rotary``, about ``max_concurrent``.
    """
    there_bytes = memory()[0] if memory_bytes is None else memory_bytes
    if place_bytes * places > there_bytes:
        most = there_bytes // place_bytes
        fix = f"set it to {most}" if most else "take a model with a shorter context"
        what = f"a key/value cache for {places:,} requests"
        raise _too_large(what, place_bytes * places, there_bytes, fix=fix).about("max_concurrent")


def _too_large(what: str, size_bytes: int, there_bytes: int, *, fix: str) -> MachineError:
    """Returns the error for a thing that needs ``size_bytes`` where ``there_bytes`` are."""
    return MachineError(
        "{what} needs more memory than there is",
        seen=format_bytes(size_bytes),
        expected=f"{format_bytes(there_bytes)} at most",
        fix=fix,
        what=what,
    )
