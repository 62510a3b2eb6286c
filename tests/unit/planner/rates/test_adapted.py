"""On the ideal machine the seconds of adapters are known too: what is left of products, factors, and their update."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fixtures.planned_models import LLAMA
from trainwright.core.errors import RecipeError
from trainwright.planner.counts.adapters import PLAIN_MOVES
from trainwright.planner.counts.flops import count_flops
from trainwright.planner.counts.methods import adapter_training_flops
from trainwright.planner.counts.parameters import block_matrix_parameters
from trainwright.planner.rates.adapted import PROCESSOR_UNPACKS_BYTES_PER_S
from trainwright.spec.workload import Adapter
from trainwright.testing.machine import BYTES_PER_S
from unit.planner.rates.test_probed import PROBED, RATE, WORK, between_bytes, kernels, run_of

ADAPTER = Adapter(rank=8, targets=("query", "value"))
TOKENS = 1024
SIDES = [
    (LLAMA.width, LLAMA.heads * LLAMA.head_size),
    (LLAMA.width, LLAMA.kv_heads * LLAMA.head_size),
]
"""Inputs and outputs of the matrices that adapters stand beside."""
PARAMETERS = LLAMA.layers * sum(ADAPTER.rank * (inputs + outputs) for inputs, outputs in SIDES)


def timed(adapter=ADAPTER, **plan):
    return kernels(run_of(work=replace(WORK, adapter=adapter)), micro_batch_sequences=2, **plan)


def test_frozen_weights_spare_a_product_and_factors_cost_three() -> None:
    flops = count_flops(LLAMA, sequences=2, sequence_tokens=512)
    factors = 2 * TOKENS * PARAMETERS
    moves = sum(PLAIN_MOVES.inputs * inputs + PLAIN_MOVES.outputs * outputs for inputs, outputs in SIDES)
    moved = (between_bytes(LLAMA, TOKENS) + 2 * TOKENS * LLAMA.layers * moves) / BYTES_PER_S
    backward = moved + between_bytes(LLAMA, TOKENS) / BYTES_PER_S
    found = timed()
    assert found.forward[0] == pytest.approx((flops.linear + flops.attention + factors) / RATE + moved)
    assert found.backward[0] == pytest.approx((flops.linear + 2 * flops.attention + 2 * factors) / RATE + backward)
    assert found.weight[0] == pytest.approx(factors / RATE)
    logits = 16 * TOKENS * LLAMA.vocabulary / BYTES_PER_S
    assert found.head[0] == pytest.approx(2 * flops.head / RATE + logits)
    assert found.head_backward[0] == 0
    # Of the whole step the operations are those that are counted for adapters on frozen weights.
    counted = adapter_training_flops(LLAMA, ADAPTER, sequences=2, sequence_tokens=512)
    assert counted == flops.stem + 2 * (flops.linear + flops.head) + 3 * flops.attention + 3 * factors


def test_the_update_is_of_what_is_trained() -> None:
    assert timed().update[0] == pytest.approx(28 * PARAMETERS / BYTES_PER_S)
    assert timed().accumulate[0] == pytest.approx(12 * PARAMETERS / BYTES_PER_S)
    sharded = kernels(run_of(work=replace(WORK, adapter=ADAPTER), devices=4), dp_shard=4)
    assert sharded.update[0] == pytest.approx(28 * PARAMETERS / 4 / BYTES_PER_S)


def test_nf4_is_made_anew_in_each_pass() -> None:
    whole, packed = timed(), timed(replace(ADAPTER, frozen="nf4"))
    moved = (0.5 + (1 + 4 / 256) / 64 + 2) * block_matrix_parameters(LLAMA)
    slower = PROBED.catalogue.efficiency.dequantised
    added = moved / (PROCESSOR_UNPACKS_BYTES_PER_S if PROBED.probes.device_kind == "cpu" else BYTES_PER_S / slower)
    assert packed.forward[0] - whole.forward[0] == pytest.approx(added)
    assert packed.backward[0] - whole.backward[0] == pytest.approx(added)
    assert packed.update[0] == whole.update[0]


def test_weights_in_fewer_bits_were_not_measured() -> None:
    with pytest.raises(RecipeError, match="products with weights in int8 were not measured"):
        timed(replace(ADAPTER, frozen="int8"))


def test_adapters_widen_the_range_for_nothing_of_them_was_measured() -> None:
    run = run_of(work=replace(WORK, adapter=ADAPTER))
    assert PROBED.spread(run) == pytest.approx(math.hypot(PROBED.spread(run_of()), 0.32))
