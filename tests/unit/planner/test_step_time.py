from dataclasses import replace

import pytest

from fixtures.planned_models import LLAMA
from trainwright.planner.activations import MicroBatch
from trainwright.planner.flops import count_flops
from trainwright.planner.parameters import block_matrices, block_matrix_parameters, total_parameters
from trainwright.planner.rates import muon_flops
from trainwright.planner.step_time import backward_times, forward_times, step_phases, update_s, validation_s
from trainwright.planner.traffic import block_traffic
from trainwright.testing.machine import BYTES_PER_S, FLOPS_PER_S

BATCH = MicroBatch(sequences=2, sequence_tokens=512, dtype="bf16", device_kind="cpu")
RATE = FLOPS_PER_S["bf16"]


def test_a_pass_is_products_attention_traffic_and_loss(shape, device):
    flops = count_flops(shape, sequences=2, sequence_tokens=512)
    traffic = block_traffic(shape, tokens=1024, dtype="bf16")
    logits_s = 16 * 1024 * shape.vocabulary / BYTES_PER_S
    expected = (
        (flops.linear + flops.attention + 3 * flops.head) / RATE
        + (traffic.forward_bytes + traffic.cast_bytes) / BYTES_PER_S
        + logits_s
    )
    assert forward_times(device.rates, shape, BATCH).total_s == pytest.approx(expected)
    back = 2 * (flops.linear + flops.attention) / RATE + (traffic.backward_bytes + traffic.cast_bytes) / BYTES_PER_S
    tables = 3 * 4 * shape.vocabulary * shape.width / BYTES_PER_S
    measured = backward_times(device.rates, shape, BATCH, recompute=False, first=True).total_s
    assert measured == pytest.approx(back + tables)


def test_recomputation_adds_the_forward_pass_of_the_blocks(device):
    forward = forward_times(device.rates, LLAMA, BATCH)
    plain, again = (backward_times(device.rates, LLAMA, BATCH, recompute=r, first=True).total_s for r in (False, True))
    assert again - plain == pytest.approx(forward.total_s - forward.loss)


def test_later_micro_batches_also_add_gradients(device, workload):
    one = step_phases(device.rates, LLAMA, workload, replace(BATCH, sequences=8), accumulation=1)
    four = step_phases(device.rates, LLAMA, workload, BATCH, accumulation=4)
    added = 3 * 12 * total_parameters(LLAMA) / BYTES_PER_S
    assert four.backward > one.backward + 0.99 * added
    assert four.update == one.update
    assert four.total_s == pytest.approx(four.forward + four.backward + four.update)


def test_updates(device, workload):
    assert update_s(device.rates, LLAMA, workload) == pytest.approx(28 * total_parameters(LLAMA) / BYTES_PER_S)
    matrices = block_matrix_parameters(LLAMA)
    flops = LLAMA.layers * sum(muon_flops(*matrix) for matrix in block_matrices(LLAMA))
    rest = 28 * (total_parameters(LLAMA) - matrices) + 12 * matrices
    muon = update_s(device.rates, LLAMA, replace(workload, optimizer="muon"))
    assert muon == pytest.approx(flops / FLOPS_PER_S["fp32"] + rest / BYTES_PER_S)


def test_validation_is_forward_passes_over_its_tokens(device, workload):
    once = validation_s(device.rates, LLAMA, replace(workload, validations=1), BATCH)
    assert validation_s(device.rates, LLAMA, workload, BATCH) == pytest.approx(2 * once)
    assert once < 8 * forward_times(device.rates, LLAMA, BATCH).total_s
    assert validation_s(device.rates, LLAMA, replace(workload, validations=0), BATCH) == 0
