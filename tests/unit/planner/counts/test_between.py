"""What lies between products, counted line by line of the software that runs it."""

from dataclasses import replace

import numpy as np
import pytest

from trainwright.hardware.catalogue.devices import device
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.planner.counts.between import bias_elements, block_elements, expert_kernels, remade_bytes
from trainwright.planner.counts.layouts import Layouts
from trainwright.spec.workload import ParallelPlan, Workload

H100 = device("h100-sxm")
WORK = Workload(sequence_tokens=512, batch_tokens=512 * 96, steps=1, precision="bf16", optimizer="adamw")
LLAMA_8B, MIXTRAL = catalogue_model("llama3-8b"), catalogue_model("mixtral-8x7b")


def layouts(*plans, work=WORK, recompute="none"):
    return Layouts.of(plans, [recompute] * len(plans), work)


def test_biases_are_added_by_products_and_their_gradients_sum_all_results():
    bert, none = catalogue_model("bert-large"), np.zeros(1)
    nine = 9 * bert.width
    assert bias_elements(bert, layouts(ParallelPlan()), H100, eager=False)[0] == pytest.approx(nine / 3)
    assert bias_elements(bert, layouts(ParallelPlan()), H100, eager=True)[0] == pytest.approx(nine)
    assert bias_elements(LLAMA_8B, layouts(ParallelPlan()), H100, eager=True) == none


def test_grouped_products_leave_the_biases_of_experts_to_kernels_in_32_bits():
    """Bytes of an expert's result, line by line of TEGroupedMLP: weight x bias in fp32, sum, join, cast; and back."""
    model, one = catalogue_model("gpt-oss-20b"), layouts(ParallelPlan())
    forward = (2 + 4) + (2 + 4 + 4) + (4 + 4) + (4 + 2) - 2  # the bias itself is read once for many results
    backward = (2 + 4) + (4 + 2) + (2 + 2) + 2 * (4 + 4 + 4)
    rows = model.experts.active * model.width
    added = bias_elements(model, one, H100, eager=False) - bias_elements(model, one, device("tpu-v6e"), eager=False)
    assert 3 * 2 * added[0] == pytest.approx((forward + backward) * rows)


def test_each_expert_of_a_rank_has_kernels_of_its_own_and_more_in_eight_bits():
    eight = replace(WORK, precision="fp8")
    for ep, experts in ((1, 8), (4, 2)):
        shape = layouts(ParallelPlan(dp_replicate=4, ep=ep))
        assert expert_kernels(MIXTRAL, WORK, shape)[0] == 2 * experts
        assert expert_kernels(MIXTRAL, eight, shape)[0] == 6 * experts
    assert expert_kernels(LLAMA_8B, eight, layouts(ParallelPlan()))[0] == 0


def test_casts_to_eight_bits_read_shared_inputs_once_and_each_gradient_of_a_result():
    """Transformer Engine: bytes of a token in a block, 2 read and 2 written for each element that is cast."""
    eight = replace(WORK, precision="fp8")
    for name, cast in (
        # Llama: norms' results, mixed values, the activation; gradients of q, k, v, output, gate, up and down.
        ("llama3-8b", (2 * 4096 + 4096 + 14336) + (4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096)),
        # Mixtral's two experts do the same for a token each; its router stays in 16 bits.
        ("mixtral-8x7b", (2 * 4096 + 2 * (4096 + 14336)) + (4096 + 2 * 1024 + 4096 + 2 * (2 * 14336 + 4096))),
    ):
        model, one = catalogue_model(name), layouts(ParallelPlan())
        more = block_elements(model, eight, one) - block_elements(model, WORK, one)
        assert 3 * 2 * more[0] == pytest.approx(4 * cast), name


def test_sequence_parallelism_divides_all_that_tensor_parallelism_leaves_whole():
    """Korthikanti et al. (2022, table 2): norms and residuals are whole on each rank without it."""
    plans = [ParallelPlan(tp=8, sequence_parallel=each) for each in (True, False)]
    alone = block_elements(LLAMA_8B, WORK, layouts(ParallelPlan()))[0]
    split, whole = block_elements(LLAMA_8B, WORK, layouts(*plans))
    assert split == pytest.approx(alone / 8)
    # Two norms read and write the width, two sums read two and write one.
    assert whole - split == pytest.approx(10 * LLAMA_8B.width * (1 - 1 / 8))


def test_what_is_made_again_is_read_and_written_once_more():
    """Two norms of the width and two of latents, in and out; gates read two tensors and write one."""
    model, memory = catalogue_model("deepseek-v3"), read_stack("hai-llm").memory
    work = replace(WORK, precision="fp8", expert_imbalance=1.0)
    norms = 2 * (2 * 7168 + 1536 + 512)
    gates = 3 * (3 * 18432 + 59 * (8 + 1) * 2048) / 62
    moved = remade_bytes(model, work, layouts(ParallelPlan(), work=work), memory)[0]
    assert moved == pytest.approx(2 * 512 * 62 * (norms + gates))
    assert remade_bytes(model, work, layouts(ParallelPlan(), work=work), read_stack("megatron-core").memory) == 0
