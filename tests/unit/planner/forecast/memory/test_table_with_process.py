"""Memory of our own trainer where the doctor measured what a process holds; states against the real optimizers."""

from dataclasses import replace

import pytest
import torch

from fixtures.planned_models import LLAMA
from trainwright.hardware.catalogue.stacks import stack
from trainwright.model.decoder import Decoder
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.parameters import block_matrices, total_parameters
from trainwright.planner.counts.process import COMPILE_BYTES, Process
from trainwright.planner.counts.saved.activations import block_bytes, loss_bytes, saved_bytes
from trainwright.planner.counts.saved.micro_batch import MicroBatch
from trainwright.planner.forecast.memory.table import predict_memory
from trainwright.spec.device import ClusterSpec, DeviceSpec, NodeSpec
from trainwright.spec.run import RunSpec
from trainwright.spec.sections.train import TrainSection
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train.optimizer import Optimizers

BATCH = MicroBatch(sequences=4, sequence_tokens=512, dtype="bf16", device_kind="cpu")
PROCESS = Process(baseline_bytes=300 << 20, transient=1.5, waste=0.25)


def predicted(workload, *, model=LLAMA, sequences=4, kind="cpu", compiled=False, process=PROCESS):
    device = DeviceSpec(
        name="x", kind=kind, vendor="", memory_bytes=16 << 30, bytes_per_s=1e10, flops_per_s={"bf16": 1e12}
    )
    cluster = ClusterSpec(node=NodeSpec(device=device, devices=1))
    run = RunSpec(model=model, workload=workload, cluster=cluster, stack=stack("trainwright"))
    plan = ParallelPlan(micro_batch_sequences=sequences, compile=compiled)
    return predict_memory(run, Layouts.of([plan], [workload.recompute], workload), process=process)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_optimizer_state_is_what_torch_holds(shape, name, workload):
    model = Decoder(shape)
    model.initialise(0)
    optimizers = Optimizers(model, TrainSection(optimizer={"name": name}).optimizer)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizers.step(1.0)
    state_bytes = sum(tensor.numel() * 4 for key, tensor in optimizers.tensors() if not key.endswith("step"))
    assert predicted(replace(workload, optimizer=name), model=shape).optimizer[0] == pytest.approx(state_bytes)


def test_the_peak_is_at_the_loss_and_its_parts_sum_to_it(workload):
    table = predicted(workload)
    weights, saved = 4 * total_parameters(LLAMA), saved_bytes(LLAMA, BATCH)
    temporaries = 1.5 * block_bytes(LLAMA, BATCH) + 0.25 * saved
    expected = (300 << 20) + 2 * weights + 2 * weights + saved + loss_bytes(LLAMA, BATCH) + temporaries
    assert table.device_bytes[0] == table.needed_bytes[0] == pytest.approx(expected)
    use = table.use(0)
    assert use.total_bytes == pytest.approx(expected)
    assert (use.weights, use.gradients, use.optimizer) == pytest.approx((weights, weights, 2 * weights))
    assert (use.activations, use.logits) == pytest.approx((saved, loss_bytes(LLAMA, BATCH)))


def test_a_heap_keeps_the_gradients_of_the_step_before_and_a_devices_allocator_does_not(workload):
    """With one micro batch a step."""
    heap, device = (predicted(workload, sequences=8, kind=kind, process=PROCESS) for kind in ("cpu", "cuda"))
    batch = replace(BATCH, sequences=8)
    weights = 4 * total_parameters(LLAMA)
    fewer = heap.device_bytes[0] - device.device_bytes[0]
    # A norm's statistics are kept in fp32 on CUDA, and what attention lays out anew once less.
    saved = saved_bytes(LLAMA, batch) - saved_bytes(LLAMA, replace(batch, device_kind="cuda"))
    block = block_bytes(LLAMA, batch) - block_bytes(LLAMA, replace(batch, device_kind="cuda"))
    assert fewer == pytest.approx(weights + 1.25 * saved + 1.5 * block, rel=0.01)


def test_muon_holds_a_stack_of_directions_while_it_updates(workload):
    large = replace(LLAMA, layers=8, width=512, heads=8, kv_heads=8, ffn_width=1536)
    tiny = replace(workload, sequence_tokens=64, batch_tokens=64, optimizer="muon")
    use = predicted(tiny, model=large, sequences=1, process=replace(PROCESS, transient=0.0, waste=0.0)).use(0)
    stack_elements = min(1 << 24, 8 * 4 * max(rows * columns for rows, columns in block_matrices(large)))
    assert use.total_bytes >= (300 << 20) + use.weights + use.gradients + use.optimizer + 10 * stack_elements / 4


def test_recomputation_needs_less_and_more_sequences_more(workload):
    deep = replace(LLAMA, layers=8)
    plain, again = (predicted(replace(workload, recompute=how), model=deep).device_bytes[0] for how in ("none", "full"))
    assert again < plain
    assert predicted(workload, model=deep, sequences=8).device_bytes[0] > plain


def test_compiling_holds_memory_of_its_own(workload):
    tiny = replace(workload, sequence_tokens=64, batch_tokens=64)
    plain, compiled = (predicted(tiny, sequences=1, compiled=each) for each in (False, True))
    saved = plain.activations[0] - compiled.activations[0]
    assert compiled.device_bytes[0] - plain.device_bytes[0] == pytest.approx(COMPILE_BYTES - saved, rel=0.05)
