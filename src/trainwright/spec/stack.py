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


Kernels = Literal["eager", "fused", "compiled"]
"""How operations between matrix products are run, which says what they keep for the backward pass. ``eager``: one
kernel for each line of a model's code, norms in fp32; ``fused``: hand-written norms, activations, attention and dropout
(Transformer Engine, Apex); ``compiled``: fused by a compiler, which keeps products' results and computes the rest again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StackMemory:
    """What a stack holds beside weights, gradients and moments.

    The first block of fields follows from the stack's code. ``activations``, ``fragmentation``, ``workspace_bytes`` and
    ``spread`` are fitted to published runs (see ``source``).
    """

    reports: MemoryKind = "allocated"
    """What the stack prints as its peak."""
    kernels: Kernels = "eager"
    dropout: bool = False
    """Whether layers without a gate drop out, and keep masks of one byte."""
    logit_bytes: float = 10.0
    """Bytes for one logit at the loss's peak: copies in reduced precision and fp32, and gradients."""
    fused_logit_bytes: float = 2.0
    """The same where the loss is fused (``Workload.fused_loss``)."""
    hidden_copies: float = 2.0
    """Hidden states beside the logits at that moment."""
    flat_gradients: bool = False
    """Gradients live in one buffer all the time; else they are freed after the update."""
    reduce_copies: float = 0.0
    """Copies of the gradients in buckets of the data-parallel reduction."""
    update_copies: float = 1.0
    """Copies of a parameter that the update makes of all parameters at once (torch's foreach AdamW: one)."""
    repeats_keys: bool = False
    """Grouped keys and values are repeated to one for each query head."""
    double_quantised: bool = False
    """nf4's scales are quantised too."""
    adapter_bytes: float = 4.0
    """Bytes of an adapter's element, and of its cast input."""
    activations: float = 1.0
    """Multiplies counted activations."""
    fragmentation: float = 0.1
    """Reserved over allocated bytes, less one."""
    workspace_bytes: float = 0.1e9
    """Libraries' workspaces, inside what torch counts as allocated."""
    context_bytes: float = 0.6e9
    """The driver's context and the communicators' buffers, outside of it."""
    spread: float = 0.1
    """Standard deviation of the logarithm of measured over predicted peak."""


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
