from dataclasses import replace

import pytest
import torch

from fixtures.planned_models import LLAMA
from trainwright.model.decoder import Decoder
from trainwright.planner.activations import MicroBatch, block_bytes, loss_bytes, saved_bytes
from trainwright.planner.memory import Process, optimizer_bytes, predict_memory, process_from
from trainwright.planner.parameters import total_parameters
from trainwright.spec.recipe import OptimizerSection
from trainwright.stages.train.optimizer import Optimizers
from trainwright.testing.machine import BASELINE_BYTES, TRANSIENT, WASTE, fake_probes

BATCH = MicroBatch(sequences=4, sequence_tokens=512, dtype="bf16", device_kind="cpu")
PROCESS = Process(baseline_bytes=300 << 20, transient=1.5, waste=0.25)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_optimizer_state_is_what_torch_holds(shape, name, workload):
    model = Decoder(shape)
    model.initialise(0)
    optimizers = Optimizers(model, OptimizerSection(name=name))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizers.step(1.0)
    held = sum(tensor.numel() * 4 for key, tensor in optimizers.tensors() if not key.endswith("step"))
    assert optimizer_bytes(shape, replace(workload, optimizer=name)) == held


def test_probes_at_two_depths_tell_waste_from_temporaries():
    found = process_from(fake_probes().growth, BASELINE_BYTES, near_bytes=1e7)
    assert found.baseline_bytes == BASELINE_BYTES
    assert found.waste == pytest.approx(WASTE, rel=1e-4)
    assert found.transient == pytest.approx(TRANSIENT, rel=1e-4)
    with pytest.raises(ValueError, match="two depths"):
        process_from(fake_probes().growth[:1], BASELINE_BYTES, near_bytes=1e7)


def test_the_peak_is_at_the_loss_and_its_parts_sum_to_it(workload):
    use = predict_memory(LLAMA, workload, BATCH, PROCESS, accumulation=2)
    weights = 4 * total_parameters(LLAMA)
    saved = saved_bytes(LLAMA, BATCH)
    temporaries = 1.5 * block_bytes(LLAMA, BATCH) + 0.25 * saved
    expected = (300 << 20) + 2 * weights + 2 * weights + saved + loss_bytes(LLAMA, BATCH) + temporaries
    assert use.total_bytes == pytest.approx(expected)
    assert (use.weights, use.gradients, use.optimizer) == (weights, weights, 2 * weights)


def test_a_huge_head_peaks_in_the_update(workload):
    large = replace(LLAMA, vocabulary=200_000, tied=False)
    small = replace(BATCH, sequences=1, sequence_tokens=64)
    use = predict_memory(large, workload, small, PROCESS, accumulation=1)
    assert use.total_bytes >= (300 << 20) + 4 * 4 * total_parameters(large)


def test_recomputation_needs_less_and_more_sequences_more(workload):
    deep = replace(LLAMA, layers=8)
    plain, again = (
        predict_memory(deep, replace(workload, recompute=how), BATCH, PROCESS, accumulation=1).total_bytes
        for how in ("none", "full")
    )
    assert again < plain
    double = predict_memory(deep, workload, replace(BATCH, sequences=8), PROCESS, accumulation=1).total_bytes
    assert double > plain
