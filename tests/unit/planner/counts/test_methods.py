"""What tuning's methods compute and move beside frozen matrices, held to their code counted by hand."""

from dataclasses import replace

import numpy as np
import pytest

from trainwright.hardware.catalogue.devices import device
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.stacks import stack
from trainwright.planner.counts.adapters import adapter_moves
from trainwright.planner.counts.between import kernels
from trainwright.planner.counts.flops import count_flops
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.methods import (
    METHODS,
    AdapterMethod,
    adapter_elements,
    adapter_method,
    adapter_training_flops,
    change_s,
    factor_flops,
    method_bytes,
    method_kernels,
)
from trainwright.planner.counts.parallel.products import product_shape
from trainwright.planner.counts.parameters import Matrix
from trainwright.planner.counts.work import forward_work
from trainwright.planner.forecast.forecast import model_flops_per_token
from trainwright.spec.workload import Adapter, ParallelPlan, Workload

LLAMA, A100 = catalogue_model("llama3-8b"), device("a100-sxm-80gb")
TARGETS = ("query", "key", "value", "output", "gate", "up", "down")
ELEMENTS = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096)
ROWS = 512


def work(method=None, targets=TARGETS):
    plain = Workload(sequence_tokens=ROWS, batch_tokens=ROWS, steps=1, precision="bf16", optimizer="adamw")
    return plain if method is None else replace(plain, adapter=Adapter(rank=16, targets=targets, method=method))


def layouts(**plan):
    return Layouts.of([ParallelPlan(**plan)], ["none"], work())


def step_flops(method, matrix, wide=1.0, **plan):
    """Operations of both passes beside one matrix, on a rank."""
    targets, some = (matrix.name,), layouts(**plan)
    product = product_shape(matrix, LLAMA, some, np.array([float(ROWS)]), np.ones(1))
    return 2 * float(np.ravel(factor_flops(matrix, work(method, targets), product, wide=wide))[0])


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
    kept = method_bytes(LLAMA, work("osf", ("gate",)).adapter, layouts())[0]
    assert kept == 32 * 2 * 4096 * (2 * 14336 + 4096)
    assert method_bytes(LLAMA, work("loha").adapter, layouts()) == method_bytes(LLAMA, None, layouts()) == 0


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


VALUE, DOWN = Matrix("value", 1024, 4096, "attention"), Matrix("down", 4096, 14336, "feed_forward")


@pytest.mark.parametrize(
    ("method", "matrix", "repeated"),
    [
        # Of 1024 x 4096, cut by outputs, each rank has the whole first factor, 16 x 4096; of the cut inputs the second.
        ("lora", VALUE, 3 * 2 * ROWS * 16 * 4096),
        ("lora", DOWN, 3 * 2 * ROWS * 16 * 4096),
        # A whole change has the rows or columns of its matrix, and OSF's vectors too.
        *((method, matrix, 0) for method in ("loha", "osf") for matrix in (VALUE, DOWN)),
        # What is square in the inputs is cut with them; where outputs are cut it is whole on each rank.
        ("frod", VALUE, 10 * ROWS * 4096**2),
        ("frod", DOWN, 0),
        ("boft", VALUE, 2 * (6 * 4096**3 + 3 * ROWS * 4096**2)),
        ("boft", DOWN, 0),
    ],
)
def test_eight_ranks_compute_a_method_once_and_what_none_can_divide_eight_times(method, matrix, repeated):
    whole, rank = step_flops(method, matrix), step_flops(method, matrix, tp=8)
    assert 8 * rank == pytest.approx(whole + 7 * repeated)


def test_a_rank_moves_its_own_inputs_and_outputs():
    """By matrix of Llama 3 8B cut over eight: whole inputs where outputs are cut, and the other way round."""
    cut_by_outputs = sum(5 * 4096 + 6 * each / 8 for each in (4096, 1024, 1024, 14336, 14336))
    cut_by_inputs = sum(5 * each / 8 + 6 * 4096 for each in (4096, 14336))
    moves = adapter_moves(stack("hf-trainer"))
    assert adapter_elements(LLAMA, work("lora"), layouts(tp=8), moves)[0] == cut_by_outputs + cut_by_inputs
    piped = adapter_elements(LLAMA, work("lora"), layouts(pp=4), moves)
    assert piped == adapter_elements(LLAMA, work("lora"), layouts(), moves)  # of an average block


@pytest.mark.parametrize("method", ["lora", "loha", "osf", "frod"])
def test_a_stage_computes_and_moves_its_own_quarter_of_a_method(method):
    one, four = (forward_work(LLAMA, work(method), layouts(pp=each), A100) for each in (1, 4))
    for name in ("products_s", "adapted_s", "changed_s"):
        assert getattr(one, name) == pytest.approx(4 * getattr(four, name)), name
    adapter = work(method).adapter
    assert method_bytes(LLAMA, adapter, layouts()) == pytest.approx(4 * method_bytes(LLAMA, adapter, layouts(pp=4)))


def test_a_rank_keeps_the_singular_vectors_of_its_own_outputs():
    """4096 x 4096 of a gate's vectors are whole on each of eight ranks; 14336 x 4096, and the matrix made, are cut."""
    kept = method_bytes(LLAMA, work("osf", ("gate",)).adapter, layouts(tp=8))
    assert kept == 32 * 2 * 4096 * (2 * 14336 / 8 + 4096)


def test_adapters_of_experts_move_a_row_for_each_expert_of_a_token():
    """Mixtral's tokens pass two of eight experts; a rank of eight has one of them, and an eighth of all tokens."""
    mixtral = catalogue_model("mixtral-8x7b")
    even = replace(work("lora", ("up",)), expert_imbalance=1.0)
    for plan in ({}, {"dp_shard": 8, "ep": 8}):
        assert adapter_elements(mixtral, even, layouts(**plan)) == pytest.approx(2 * (3 * 4096 + 6 * 14336))


def test_a_new_method_is_a_row(monkeypatch):
    """One that makes a matrix in place of each, fetches a square, keeps vectors and its product's input."""
    row = AdapterMethod(
        multiplies=lambda beside: 7.0 * beside.rank * beside.product.rows,
        keeps="products",
        change_bytes=2.0,
        fetched_bytes=3.0,
        vectors=True,
        kernels=0.5,
    )
    matrix, new = Matrix("value", 1024, 4096, "attention"), work("new", ("value",))
    assert step_flops("new", matrix) == step_flops("lora", matrix)
    assert adapter_method(new.adapter).keeps == "inputs"
    monkeypatch.setitem(METHODS, "new", row)
    assert step_flops("new", matrix) == 4 * 7 * 16 * ROWS
    seconds = 32 * 4096 * (1024 / A100.bytes_per_s + 1.5 * 4096 / 8e9)
    assert change_s(LLAMA, new, layouts(), A100) == pytest.approx(seconds)
    assert method_bytes(LLAMA, new.adapter, layouts()) == 32 * 2 * (1024 * 5120 + 1024 * 4096)
    assert method_kernels(LLAMA, new.adapter) == 4096 / 2


def by_hand(method):
    """Operations of a step beside the value matrices of Llama 3 8B, 1024 x 4096 in 32 blocks, for ``ROWS`` tokens."""
    outputs, inputs, rank = 1024, 4096, 16
    return (
        32
        * {
            "lora": 6 * ROWS * rank * (outputs + inputs),
            # One product of its own forward, two back: its input's gradient and that of the change.
            "loha": 6 * ROWS * outputs * inputs,
            "fourierft": 6 * ROWS * outputs * inputs,
            # x V, z S and z U for the frozen product; three gradients of inputs and that of S for the frozen one.
            "frod": 2 * ROWS * (2 * (2 * inputs**2 + outputs * inputs) + inputs**2 - 2 * outputs * inputs),
            "ia3": 0,
            "prefixtuning": 0,
            # U S V once, whose factors get no gradient by a product here, and the gradient of the matrix.
            "osf": 2 * outputs * inputs * outputs + 2 * ROWS * outputs * inputs,
        }[method]
    )


@pytest.mark.parametrize("method", ["lora", "loha", "fourierft", "frod", "ia3", "prefixtuning", "osf"])
def test_operations_of_a_training_are_those_of_its_method(method):
    """Beside the frozen model: its products forward and back once, attention three times, the count of ``Flops``."""
    frozen = count_flops(LLAMA, sequences=1, sequence_tokens=ROWS)
    frozen = 2 * (frozen.linear + frozen.head) + 3 * frozen.attention
    adapter = work(method, ("value",)).adapter
    trained = adapter if method == "lora" else replace(adapter, parameters=1000)
    found = adapter_training_flops(LLAMA, trained, sequences=1, sequence_tokens=ROWS)
    assert found - frozen == by_hand(method)
    assert model_flops_per_token(LLAMA, replace(work(), adapter=trained)) == found / ROWS


def test_operations_of_experts_adapters_are_those_of_the_tokens_experts():
    """Mixtral: two of eight experts see each token, and each of the eight makes its own matrix of vectors."""
    mixtral, rows = catalogue_model("mixtral-8x7b"), 2 * ROWS

    def beside(method):
        adapters = (Adapter(rank=16, targets=("up",), method=each) for each in (method, "ia3"))
        one, none = (adapter_training_flops(mixtral, each, sequences=1, sequence_tokens=ROWS) for each in adapters)
        return one - none

    assert beside("lora") == 32 * 6 * rows * 16 * (14336 + 4096)
    assert beside("osf") == 32 * (8 * 2 * 14336 * 4096 * 4096 + 2 * rows * 14336 * 4096)


def test_a_rank_makes_the_changes_of_its_own_layers_and_parts():
    parts = Layouts.of([ParallelPlan(), ParallelPlan(tp=8), ParallelPlan(dp_shard=4)], ["none"] * 3, work())
    whole, cut, sharded = change_s(LLAMA, work("loha"), parts, A100)
    assert cut == pytest.approx(whole / 8) and sharded == whole
