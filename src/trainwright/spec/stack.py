"""``Stack``: the software that trains, as a few numbers that say how well it uses a device and what it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from trainwright.spec.workload import States

MemoryKind = Literal["allocated", "reserved", "device"]
"""torch's peak of allocated bytes, of reserved bytes, or what the driver reports for the process, context included."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StackTime:
    """How a stack's step differs from the device's own limits; fitted to published runs (see ``source``).

    ``products``, ``attention``, ``traffic`` and ``link`` multiply the device's rates of matrix products, fused
    attention, memory traffic between products, and links. ``passes`` is memory traffic between products against fully
    fused operations. ``launch_s`` is seconds from one kernel to the next that the host can keep up with; ``hidden`` is
    the share of communication of weights and gradients that runs beside compute; ``step_s`` is spent once a step.
    ``spread`` is the standard deviation of the logarithm of measured over predicted time.
    """

    products: float = 1.0
    attention: float = 1.0
    passes: float = 1.0
    link: float = 1.0
    launch_s: float = 8e-6
    hidden: float = 0.8
    step_s: float = 0.0
    spread: float = 0.15


@dataclass(frozen=True, kw_only=True, slots=True)
class StackMemory:
    """What a stack holds beside weights, gradients and moments; fitted to published runs (see ``source``).

    ``activations`` multiplies the counted activations; ``spread`` is the standard deviation of the logarithm of
    measured over predicted peak.
    """

    reports: MemoryKind = "allocated"
    """What the stack prints as its peak."""
    activations: float = 1.0
    spread: float = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """A training framework in one of its usual configurations.

    ``aliases`` are names by which published tables call it; ``states`` how it keeps trained weights by default.
    """

    name: str
    title: str
    states: States
    sequence_parallel: bool = True
    """Whether tensor parallelism splits activations between its regions too, where a source does not say."""
    aliases: tuple[str, ...] = ()
    time: StackTime = field(default_factory=StackTime)
    memory: StackMemory = field(default_factory=StackMemory)
    source: str = ""
    fit: Mapping[str, float] = field(default_factory=dict)
    """Errors on the rows that the numbers were fitted to: rows, median and 90th percentile, and source left out."""
