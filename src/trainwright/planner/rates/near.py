"""How much a block of a network saves: by it the growth probes of like networks are found."""

from __future__ import annotations

from trainwright.core.registry import load
from trainwright.hardware.machine.probes import Probes
from trainwright.planner.counts.saved.activations import block_bytes
from trainwright.planner.counts.saved.micro_batch import MicroBatch
from trainwright.spec.model import ModelSpec
from trainwright.spec.run import RunSpec

NEAR_TOKENS = 2048
"""Memory probes are matched with the model's blocks at about so many tokens, as the doctor probes."""
CONVOLUTIONS = "trainwright.planner.counts.images:saved_bytes"


def near_bytes(run: RunSpec, probes: Probes) -> float:
    """Returns the bytes that a block of the run's network saves; of a convolutional one the mean of its blocks."""
    model, work = run.model, run.workload
    if not isinstance(model, ModelSpec):
        return float(load(CONVOLUTIONS, kind="count")(model, work, work.batch_sequences)) / model.blocks
    batch = MicroBatch(
        sequences=max(1, NEAR_TOKENS // work.sequence_tokens),
        sequence_tokens=work.sequence_tokens,
        dtype=probes.growth[0].dtype,
        device_kind=probes.device_kind,
    )
    return float(block_bytes(model, batch))
