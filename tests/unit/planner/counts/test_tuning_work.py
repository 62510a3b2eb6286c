"""What fine-tuning adds to a step: dequantised weights, adapters' own traffic, and a host that launches it all."""

from dataclasses import replace

import numpy as np
import pytest

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import stack
from trainwright.planner.counts.between import dequantising_traffic_bytes, kernels
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.methods import prompt_tokens
from trainwright.planner.counts.work import forward_work
from trainwright.planner.forecast.forecast import step_s
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.spec.run import RunSpec
from trainwright.spec.stack import StackMemory
from trainwright.spec.workload import Adapter, ParallelPlan, Workload

LLAMA = catalogue_model("llama3-8b")
TARGETS = ("query", "key", "value", "output", "gate", "up", "down")
ONE = cluster("1xa100-sxm-80gb")


def work(sequence=512, **changes):
    plain = Workload(sequence_tokens=sequence, batch_tokens=sequence, steps=1, precision="bf16", optimizer="adamw")
    return replace(plain, **changes)


def layouts(workload, *, compiled=False, recompute="none"):
    return Layouts.of([ParallelPlan(compile=compiled)], [recompute], workload)


def adapter(frozen="bf16", method="lora"):
    return Adapter(rank=16, targets=TARGETS, frozen=frozen, method=method)


def seconds(workload, *, compiled=False, recompute="none", of="hf-trainer"):
    run = RunSpec(model=LLAMA, workload=replace(workload, recompute=recompute), cluster=ONE, stack=stack(of))
    return float(step_s(run, layouts(workload, compiled=compiled, recompute=recompute), CATALOGUE)[0])


def test_four_bits_are_read_and_sixteen_written_for_every_weight_of_the_blocks():
    # Llama 3 8B (config.json): 32 blocks of q and o 4096 x 4096, k and v 1024 x 4096, three of 14336 x 4096.
    weights = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096)
    quantised = work(adapter=adapter("nf4"))
    for twice, bytes_per_weight in ((True, 2.516), (False, 2.5625)):
        found = dequantising_traffic_bytes(LLAMA, quantised, layouts(quantised), StackMemory(double_quantised=twice))[0]
        assert found == pytest.approx(bytes_per_weight * weights, rel=1e-4)
        for whole in (work(adapter=adapter()), work()):
            assert (
                dequantising_traffic_bytes(LLAMA, whole, layouts(work()), StackMemory(double_quantised=twice))[0] == 0
            )


def test_experts_that_stay_in_16_bits_are_not_made_anew():
    # Qwen3 30B A3B (config.json): attention of 4096 and 512 x 2048, and a router of 128 x 2048, in 48 layers.
    mixture, quantised = catalogue_model("qwen3-30b-a3b"), work(adapter=adapter("nf4"))
    dense = 48 * 2048 * (2 * 4096 + 2 * 512 + 128)
    for whole, weights in ((False, dense), (True, dense + 48 * 128 * 3 * 768 * 2048)):
        memory = StackMemory(quantised_experts=whole)
        found = dequantising_traffic_bytes(mixture, quantised, layouts(quantised), memory)[0]
        assert found == pytest.approx(2.5625 * weights, rel=1e-4)


def test_dequantising_costs_two_passes_and_a_third_where_layers_are_recomputed():
    plain, quantised = work(sequence=4096, adapter=adapter()), work(sequence=4096, adapter=adapter("nf4"))
    device = ONE.device
    counted = forward_work(LLAMA, quantised, layouts(quantised), device, memory=StackMemory(double_quantised=True))
    once = float(counted.dequantised_s[0]) * CATALOGUE.efficiency.dequantised / CATALOGUE.efficiency.bandwidth
    pace = stack("hf-trainer").time.compute * stack("hf-trainer").time.tuned.get("ampere-16", 1.0)
    for recompute, passes in (("none", 2), ("full", 3)):
        more = seconds(quantised, recompute=recompute) - seconds(plain, recompute=recompute)
        assert more == pytest.approx(passes * once * pace, rel=0.05), recompute


def test_adapters_on_all_matrices_are_faster_than_training_all_weights():
    # Freezing saves a third of the products; 0.85 to 0.89 of the time on a processor (benchmarks of PEFT's modules).
    # With one fused update: one operation by operation costs all weights more than freezing saves.
    ratio = seconds(work(4096, adapter=adapter()), of="trl-peft") / seconds(work(4096), of="trl-peft")
    assert 0.66 < ratio < 0.95


def test_code_that_runs_line_by_line_launches_more_and_a_compiler_fewer():
    eager, compiled = (kernels(LLAMA, work(), eager=np.array([flag])) for flag in (True, False))
    assert eager[0] > 1.5 * compiled[0]
    few = forward_work(LLAMA, work(), layouts(work(), compiled=True), ONE.device, eager=True)
    assert few.kernels[0] == 32 * compiled[0]


def test_weights_in_four_bits_launch_three_kernels_more_before_each_product():
    plain, quantised = (kernels(LLAMA, work(adapter=adapter(frozen))) for frozen in ("bf16", "nf4"))
    assert quantised - plain == 3 * 7


def test_short_sequences_wait_for_the_host():
    short, shorter = seconds(work(64, adapter=adapter())), seconds(work(32, adapter=adapter()))
    assert short == pytest.approx(shorter, rel=0.02)
    # 32 blocks, 7 adapted matrices each at 0.24 ms (measured with PEFT 0.21.2), and what the blocks take alone.
    assert short > 32 * 7 * 0.24e-3


def test_a_compiler_changes_time_as_well_as_memory():
    assert seconds(work(4096), compiled=True) < seconds(work(4096))


def test_prompt_tuning_trains_tokens_before_the_sequence():
    trained = Adapter(rank=8, method="prompt_tuning", parameters=200 * 3072)
    assert prompt_tokens(trained, 3072) == 200
    assert prompt_tokens(replace(trained, method="ptuning"), 3072) == prompt_tokens(None, 3072) == 0
