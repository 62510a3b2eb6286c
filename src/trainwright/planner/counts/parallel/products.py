"""The product of each matrix on one rank: what tensor and expert parallelism leave of it; arrays [L] over layouts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from trainwright.planner.counts.layouts import Layouts, Numbers, Values
from trainwright.planner.counts.parameters import Matrix
from trainwright.planner.counts.ranks import expert_tp, slowest_layers
from trainwright.spec.model import ModelSpec

COLUMN_SPLIT = frozenset(("query", "key", "value", "query_up", "kv_up", "gate", "up", "vocabulary"))
"""Matrices that tensor parallelism splits by outputs, ``ROW_SPLIT`` by inputs (Shoeybi et al., 2019)."""
ROW_SPLIT = frozenset(("output", "down"))


class Product(NamedTuple):
    """Rows, outputs and inputs of a product on a rank, and its number in all layers: [L], or one for all."""

    rows: Numbers
    outputs: Values
    inputs: Values
    number: Values


def product_shape(matrix: Matrix, model: ModelSpec, layouts: Layouts, tokens: Numbers, load: Numbers) -> Product:
    """Returns one matrix's product on a rank that has so many ``tokens`` [L] of a micro batch.

    An expert sees its share of all tokens of the ranks that experts are divided over, on the fullest of these ``load``
    times as many. Where tensor parallelism does not divide it, those are ranks with parts of a sequence.
    """
    rows = layouts.micro_batch * matrix.rows if matrix.per_sequence else tokens * matrix.rows
    outputs, inputs, count = divided(matrix, model, layouts)
    if matrix.part == "experts":
        rows = rows * load * layouts.ep / matrix.copies * expert_tp(model, layouts) / layouts.tp
    return Product(rows, outputs, inputs, count)


def divided(matrix: Matrix, model: ModelSpec, layouts: Layouts) -> tuple[Values, Values, Values]:
    """Returns a matrix's outputs and inputs on a rank, and the number of such matrices there in all layers."""
    split, count = layouts.tp, float(matrix.layers)
    outputs, inputs = float(matrix.outputs), float(matrix.inputs)
    counted: Values = count
    if matrix.part == "experts":
        split = expert_tp(model, layouts)
        counted = count * matrix.copies / layouts.ep
    column: Values = outputs / split if matrix.name in COLUMN_SPLIT else outputs
    row: Values = inputs / split if matrix.name in ROW_SPLIT else inputs
    return column, row, counted


def slowest_elements(model: ModelSpec, layouts: Layouts, some: Iterable[Matrix]) -> Numbers:
    """Returns the elements [L] of some of the blocks' matrices on a rank with most layers, without biases."""
    every: Values = 0.0
    for matrix in some:
        outputs, inputs, count = divided(matrix, model, layouts)
        every = every + outputs * inputs * count
    return np.asarray(every * slowest_layers(model, layouts) / model.blocks)
