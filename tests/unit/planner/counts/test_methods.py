"""What tuning's methods compute and move beside frozen matrices, held to their code counted by hand."""

from dataclasses import replace

import numpy as np
import pytest

from trainwright.hardware.catalogue.devices import device
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.stacks import stack
from trainwright.planner.counts.adapters import adapter_moves
from trainwright.planner.counts.between import kernels
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.methods import adapter_elements, change_s, factor_flops, method_bytes, method_kernels
from trainwright.planner.counts.parameters import Matrix
from trainwright.planner.counts.work import forward_work
from trainwright.spec.workload import Adapter, ParallelPlan, Workload

LLAMA, A100 = catalogue_model("llama3-8b"), device("a100-sxm-80gb")
TARGETS = ("query", "key", "value", "output", "gate", "up", "down")
ELEMENTS = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096)
ROWS = 512


def work(method=None, targets=TARGETS):
    plain = Workload(sequence_tokens=ROWS, batch_tokens=ROWS, steps=1, precision="bf16", optimizer="adamw")
    return plain if method is None else replace(plain, adapter=Adapter(rank=16, targets=targets, method=method))


def layouts():
    return Layouts.of([ParallelPlan()], ["none"], work())


def step_flops(method, matrix, wide=1.0):
    """Operations of both passes beside one matrix."""
    targets = (matrix.name,)
    beside = factor_flops(matrix, work(method, targets), np.array([float(ROWS)]), 1.0, wide=wide)
    return 2 * float(np.ravel(beside)[0])


def test_adapters_move_the_inputs_and_outputs_of_their_matrices_and_prompts_nothing():
    inputs, outputs = 2 * 4096 + 2 * 4096 + 2 * 4096 + 14336, 2 * 4096 + 2 * 1024 + 2 * 14336 + 4096
    # PEFT: cast to fp32 and read again; product, scale, sum. Unsloth: one read; and the sum's own product.
    for name, moved in (("hf-trainer", 5 * inputs + 6 * outputs), ("unsloth", inputs + 2 * outputs)):
        found = adapter_elements(LLAMA, work("lora"), layouts(), adapter_moves(stack(name)))
        assert found[0] == moved, name
    assert adapter_elements(LLAMA, work("prefixtuning"), layouts())[0] == 0


def test_two_factors_have_three_products_each():
    matrix = Matrix("value", 1024, 4096, "attention")
    assert step_flops("lora", matrix) == 3 * 2 * ROWS * 16 * (1024 + 4096)
    assert step_flops("ia3", matrix) == 0


def test_a_whole_change_moves_its_elements_and_multiplies_in_full_precision():
    assert change_s(LLAMA, work("loha"), layouts(), A100) == pytest.approx(28 * ELEMENTS / A100.bytes_per_s)
    assert change_s(LLAMA, work("lora"), layouts(), A100) == change_s(LLAMA, work(), layouts(), A100) == 0
    frozen = forward_work(LLAMA, work("ia3"), layouts(), A100).products_s[0]
    more = forward_work(LLAMA, work("loha"), layouts(), A100).products_s[0] - frozen
    # Two products of its own gradients in the backward pass, where the frozen one has one: at 19.5 TFLOP/s in fp32.
    assert more * A100.flops_per_s["fp32"] == pytest.approx(1.5 * 2 * ROWS * ELEMENTS)


def test_osf_makes_its_matrix_of_singular_vectors_and_stays_in_sixteen_bits():
    """osf/utils.py: high and low vectors have as many columns together as the smaller side; a gradient for the sum."""
    matrix = Matrix("gate", 14336, 4096, "feed_forward")
    made, gradient = 2 * 14336 * 4096 * 4096, 2 * ROWS * 14336 * 4096
    assert step_flops("osf", matrix) == step_flops("osf", matrix, wide=16.0) == made + gradient
    # In 16 bits: 14336 x 4096 and 4096 x 4096 vectors of each gate, and 14336 x 4096 that it makes of them.
    kept = method_bytes(LLAMA, work("osf", ("gate",)).adapter)
    assert kept == 32 * 2 * 4096 * (2 * 14336 + 4096)
    assert method_bytes(LLAMA, work("loha").adapter) == method_bytes(LLAMA, None) == 0


def test_frod_passes_three_factors_in_place_of_the_frozen_matrix():
    """frod/layer.py: x V, z S and U forward; their inputs' gradients and that of S back; the matrix itself has two."""
    matrix = Matrix("value", 1024, 4096, "attention")
    forward, frozen = 2 * 4096 * 4096 + 4096 * 1024, 4096 * 1024
    assert step_flops("frod", matrix) == 2 * ROWS * (2 * forward + 4096 * 4096 - 2 * frozen)
    # V comes from the host's pageable memory: 33.5 MB for each matrix, 64 of them, once a step.
    half = change_s(LLAMA, work("frod", ("query", "value")), layouts(), A100)
    assert 2 * half == pytest.approx(64 * 2 * 4096**2 / 8e9)


def test_boft_makes_a_rotation_and_copies_its_blocks_one_by_one():
    """boft/layer.py: three square products forward and three back, the input's rotation; a kernel for each block."""
    matrix = Matrix("value", 1024, 4096, "attention")
    assert step_flops("boft", matrix) == 2 * (6 * 4096**3 + 3 * ROWS * 4096**2)
    looped, plain = (kernels(LLAMA, work(name, ("query", "value"))) for name in ("boft", "lora"))
    assert 3 * (looped - plain) == pytest.approx(2 * 2 * 4096 / 4)
    assert method_kernels(LLAMA, None) == method_kernels(LLAMA, work("lora").adapter) == 0


def test_a_rank_makes_the_changes_of_its_own_layers_and_parts():
    parts = Layouts.of([ParallelPlan(), ParallelPlan(tp=8), ParallelPlan(dp_shard=4)], ["none"] * 3, work())
    whole, cut, sharded = change_s(LLAMA, work("loha"), parts, A100)
    assert cut == pytest.approx(whole / 8) and sharded == whole
