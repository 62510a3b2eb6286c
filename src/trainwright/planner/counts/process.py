"""What a training process holds beside tensors, as the doctor's growth probes show it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.counts.saved.activations import block_bytes, saved_bytes
from trainwright.planner.counts.saved.micro_batch import MicroBatch

if TYPE_CHECKING:  # a plan of another machine does not wait for what the doctor writes down
    from trainwright.hardware.machine.probes import GrowthProbe

MASTER_BYTES = 4
"""Gradients of the probed networks are fp32."""
COMPILE_BYTES = 250 << 20
"""What torch.compile holds in the process (docs/lab/log.md: one machine)."""
KEEPS_GRADIENTS = frozenset(("cpu",))
"""Kinds of devices whose heap keeps what it held: the gradients of the step before are there when the next begins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """What a training process of our own trainer holds besides tensors.

    ``baseline_bytes``: with libraries loaded and one product made (CPU), or the device's context (CUDA).
    ``transient``: temporaries of a pass, as a multiple of what one block saves: they come and go with each block.
    ``waste``: resident bytes that no tensor uses, as a share of all that is saved: holes that the allocator cannot give
    back between tensors that live on. Zero on CUDA, where they are ``reserved_unused``.
    """

    baseline_bytes: float
    transient: float
    waste: float


def process_from(probes: Sequence[GrowthProbe], baseline_bytes: float, *, near_bytes: float) -> Process:
    """Returns what growth probes show, taken from the width whose blocks save nearest to ``near_bytes``.

    A pair of depths L gives two equations, growth - gradients - saved(L) = waste saved(L) + transient block.

    Raises:
        ValueError: no width was probed at two depths.
    """
    pairs: list[tuple[float, Process]] = []
    for thin, deep in product(probes, repeat=2):
        if replace(thin.model, layers=deep.model.layers) != deep.model or deep.model.layers <= thin.model.layers:
            continue
        sequences, tokens = thin.sequences, thin.sequence_tokens
        batch = MicroBatch(sequences=sequences, sequence_tokens=tokens, dtype=thin.dtype, device_kind="cpu")
        block = block_bytes(thin.model, batch)
        saved = [saved_bytes(probe.model, batch) for probe in (thin, deep)]
        known = [MASTER_BYTES * total_parameters(probe.model) for probe in (thin, deep)]
        first, second = thin.grown_bytes - known[0] - saved[0], deep.grown_bytes - known[1] - saved[1]
        waste = max(0.0, (second - first) / (saved[1] - saved[0]))
        transient = max(0.0, (first - waste * saved[0]) / block)
        distance = abs(math.log(block / near_bytes))
        pairs.append((distance, Process(baseline_bytes=baseline_bytes, transient=transient, waste=waste)))
    if not pairs:
        raise ValueError("no width was probed at two depths")
    return min(pairs, key=lambda pair: pair[0])[1]
