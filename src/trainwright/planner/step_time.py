"""Seconds of one step, phase by phase, from a device's rates; and of a whole run.

A step is ``accumulation`` micro batches, each a forward pass (blocks and loss; the loss takes its gradient there) and a
backward pass, then one update. Within a micro batch: matrix products by shape, attention, and the rest of the blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainwright.planner.activations import MicroBatch
from trainwright.planner.parameters import block_matrices, block_matrix_parameters, total_parameters
from trainwright.planner.rates import DIRECTIONS, Rates, linear_s
from trainwright.spec.measures import PhaseTimes
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class PassTimes:
    """Seconds of one micro batch's pass by what is done."""

    products: float
    attention: float
    rest: float
    loss: float

    @property
    def total_s(self) -> float:
        """Seconds of the pass."""
        return self.products + self.attention + self.rest + self.loss


def forward_times(rates: Rates, model: ModelSpec, batch: MicroBatch) -> PassTimes:
    """Tokens to loss, the loss's gradient included."""
    head = sum(
        rates.matmul_s(direction, tokens=batch.tokens, inputs=model.width, outputs=model.vocabulary, dtype=batch.dtype)
        for direction in DIRECTIONS
    )
    return PassTimes(
        products=linear_s(rates, model, tokens=batch.tokens, dtype=batch.dtype, backward=False),
        attention=_attention_s(rates, model, batch, backward=False),
        rest=rates.blocks_rest_s(model, tokens=batch.tokens, dtype=batch.dtype, backward=False),
        loss=head + rates.loss_rest_s(tokens=batch.tokens, vocabulary=model.vocabulary, dtype=batch.dtype),
    )


def backward_times(rates: Rates, model: ModelSpec, batch: MicroBatch, *, recompute: bool, first: bool) -> PassTimes:
    """Hidden states to gradients; what is recomputed of the forward pass is counted here.

    Gradients beyond the ``first`` micro batch's are added to those before (two reads, one write). The embedding's and
    the
    head's gradients are dense.
    """
    again = forward_times(rates, model, batch) if recompute else None
    products = linear_s(rates, model, tokens=batch.tokens, dtype=batch.dtype, backward=True)
    attention = _attention_s(rates, model, batch, backward=True)
    rest = rates.blocks_rest_s(model, tokens=batch.tokens, dtype=batch.dtype, backward=True)
    table_bytes = 4.0 * model.vocabulary * model.width
    added = 0.0 if first else 12.0 * total_parameters(model)
    return PassTimes(
        products=products + (again.products if again else 0.0),
        attention=attention + (again.attention if again else 0.0),
        rest=rest
        + (again.rest if again else 0.0)
        + rates.stream_s(added, pieces=model.layers * len(block_matrices(model)) + 2),
        loss=rates.stream_s(3 * table_bytes),
    )


def update_s(rates: Rates, model: ModelSpec, workload: Workload) -> float:
    """One optimizer update, with clipping: a pass for the norm (one read) and one to scale (read, write)."""
    if workload.optimizer == "adamw":
        return rates.adamw_s(total_parameters(model))
    orthogonalised = block_matrix_parameters(model)
    muon = model.layers * sum(rates.muon_s(rows, columns) for rows, columns in block_matrices(model))
    clipping = rates.stream_s(12.0 * orthogonalised, pieces=model.layers * len(block_matrices(model)))
    return muon + clipping + rates.adamw_s(total_parameters(model) - orthogonalised)


def step_phases(
    rates: Rates, model: ModelSpec, workload: Workload, batch: MicroBatch, *, accumulation: int
) -> PhaseTimes:
    """Seconds of one step by phase."""
    recompute = workload.recompute == "full"
    first = backward_times(rates, model, batch, recompute=recompute, first=True).total_s
    later = backward_times(rates, model, batch, recompute=recompute, first=False).total_s
    return PhaseTimes(
        forward=accumulation * forward_times(rates, model, batch).total_s,
        backward=first + (accumulation - 1) * later,
        update=update_s(rates, model, workload),
    )


def validation_s(rates: Rates, model: ModelSpec, workload: Workload, batch: MicroBatch) -> float:
    """All validations of the run: forward passes, the head's product once, and a third of the loss's other work."""
    if not workload.validations:
        return 0.0
    blocks = forward_times(rates, model, batch)
    head = (
        rates.matmul_s("forward", tokens=batch.tokens, inputs=model.width, outputs=model.vocabulary, dtype=batch.dtype)
        + rates.loss_rest_s(tokens=batch.tokens, vocabulary=model.vocabulary, dtype=batch.dtype) / 3
    )
    passes = math.ceil(workload.validation_tokens / batch.tokens)
    return workload.validations * passes * (blocks.total_s - blocks.loss + head)


def _attention_s(rates: Rates, model: ModelSpec, batch: MicroBatch, *, backward: bool) -> float:
    return model.layers * rates.attention_s(
        sequences=batch.sequences, heads=model.heads, tokens=batch.sequence_tokens, head_size=model.head_size,
        dtype=batch.dtype, backward=backward,
    )  # fmt: skip
