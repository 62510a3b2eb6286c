"""Rates of adapters on a machine that the doctor measured: those of its products, less what frozen weights spare.

Nothing of adapters is probed. Frozen matrices need no gradient, so that a product is made twice, not three times (Hu et
al., 2021, arXiv 2106.09685, section 4.1); a matrix's two factors are products of the probed kind with an outer size of
the rank, whose rate is interpolated as any other's; a weight that is kept in the dtype of products is never cast; one
in nf4 is made anew for each product; and the update is of what is trained alone. DoRA's lengths of rows, which it takes
of each whole matrix in every pass, are not counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from trainwright.core.errors import RecipeError
from trainwright.hardware.machine.probes import MatmulPass
from trainwright.planner.counts.adapters import (
    QUANTISED_FROZEN,
    adapter_parameters,
    stands_beside,
)
from trainwright.planner.counts.between import dequantising_traffic_bytes
from trainwright.planner.counts.kernels import Kind
from trainwright.planner.counts.methods import adapter_elements
from trainwright.planner.counts.parallel.products import product_shape
from trainwright.planner.counts.parameters import BLOCK_PARTS, matrices
from trainwright.planner.counts.ranks import fullest, owners
from trainwright.planner.rates.probed import DIRECTIONS, LayoutShapes, Probed
from trainwright.spec.device import DTYPE_BYTES
from trainwright.spec.stack import StackMemory

OUR_MEMORY = StackMemory(double_quantised=True)
"""How this trainer keeps nf4: see ``catalog/stacks/trainwright.toml``; a base with experts it does not."""
PROCESSOR_UNPACKS_BYTES_PER_S = 1.5e9
"""What making a matrix of nf4 moves on a processor, an element at a time: bitsandbytes 0.50.2 on one core
with AVX-512 in fp32, 1.6e9 in bf16 (29 November 2026). On other devices it takes as long as the catalogue says."""


def at(probed: Probed) -> ProbedAdapters:
    """Returns the rates of adapters on a machine that was measured."""
    return ProbedAdapters(probes=probed.probes, catalogue=probed.catalogue)


@dataclass(frozen=True, kw_only=True)
class ProbedAdapters(Probed):
    """``Probed`` for runs that train adapters beside frozen weights."""

    def row(self, shapes: LayoutShapes, without: Collection[Kind]) -> dict[str, float]:
        """Returns the fields of ``Kernels`` for one layout.

        Raises:
            RecipeError: frozen weights are kept in fewer bits, whose way back was not measured.
        """
        adapter = shapes.workload.adapter
        if adapter is not None and adapter.frozen in QUANTISED_FROZEN - {"nf4"}:
            what = "products with weights in {frozen} were not measured"
            raise RecipeError(what, where=self.probes.device_name, frozen=adapter.frozen)
        # Gradients beyond the first micro batch's are added to those before: two reads, one write.
        added_s = self.stream_s(12.0 * _trained(shapes))
        return super().row(shapes, without) | {"accumulate": added_s}

    def _products(self, shapes: LayoutShapes, *, beside: bool = False) -> dict[MatmulPass, float]:
        """Returns the seconds of products by direction: of frozen weights no gradient, of their factors all three."""
        sums = super()._products(shapes, beside=beside)
        if shapes.workload.adapter is None:  # of a probed block, all of whose weights were trained
            return sums
        sums["grad_weight"] = 0.0
        if beside:
            return sums
        for rows, outputs, inputs, count in _factors(shapes):
            for direction in DIRECTIONS:
                each = self.matmul_s(
                    direction, tokens=rows, inputs=inputs, outputs=outputs, dtype=shapes.workload.precision
                )
                sums[direction] += count * each
        return sums

    def _between(self, shapes: LayoutShapes) -> tuple[float, float]:
        """Returns the seconds of the blocks beside products and attention, with what adapters move there."""
        forward, backward = super()._between(shapes)
        elements = float(adapter_elements(shapes.model, shapes.workload, shapes.layouts)[0])
        moved = DTYPE_BYTES[shapes.workload.precision] * shapes.tokens * shapes.layers * elements
        added_s = self.stream_s(moved) + self._unpacked_s(shapes)
        return forward + added_s, backward + added_s

    def _unpacked_s(self, shapes: LayoutShapes) -> float:
        """Returns the seconds of making matrices of nf4 in one pass of a micro batch."""
        moved = dequantising_traffic_bytes(shapes.model, shapes.workload, shapes.layouts, OUR_MEMORY)
        if self.probes.device_kind == "cpu":
            return float(moved[0]) / PROCESSOR_UNPACKS_BYTES_PER_S
        return self.catalogue.efficiency.dequantised * self.stream_s(float(moved[0]))

    def _casts_s(self, shapes: LayoutShapes) -> float:
        """Returns nothing for frozen weights, which are kept in the dtype of products."""
        return 0.0 if shapes.workload.adapter is not None else super()._casts_s(shapes)

    def _head(self, shapes: LayoutShapes) -> tuple[float, float, float]:
        """Returns head and loss: forward, where the loss takes its gradient; backward; and without gradients."""
        forward, _, evaluated = super()._head(shapes)
        return forward, 0.0, evaluated

    def _added_chunks_s(self, shapes: LayoutShapes, classes: float) -> float:
        """Returns nothing: no gradient of the head is added up."""
        return 0.0

    def _update(self, shapes: LayoutShapes) -> float:
        """Returns the seconds of an update of what is trained, as AdamW's, whatever the optimizer."""
        return self.adamw_s(_trained(shapes) / float(np.ravel(owners(shapes.layouts))[0]))


def _trained(shapes: LayoutShapes) -> float:
    """Returns the parameters that are trained."""
    assert shapes.workload.adapter is not None
    return float(adapter_parameters(shapes.model, shapes.workload.adapter))


def _factors(shapes: LayoutShapes) -> Iterator[tuple[float, float, float, float]]:
    """Yields rows, outputs and inputs of each factor's product on a rank, and its number in a micro batch there."""
    adapter, model = shapes.workload.adapter, shapes.model
    assert adapter is not None
    load, tokens = fullest(model, shapes.workload, shapes.layouts), np.asarray([shapes.tokens])
    for matrix in matrices(model):
        if matrix.part in BLOCK_PARTS and stands_beside(adapter, matrix):
            shape = product_shape(matrix, model, shapes.layouts, tokens, load)
            rows, outputs, inputs, count = (float(np.ravel(each)[0]) for each in shape)
            count *= shapes.layers / model.blocks
            yield rows, adapter.rank, inputs, count
            yield rows, outputs, adapter.rank, count
