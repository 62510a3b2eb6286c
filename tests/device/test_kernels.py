"""Kernels that only an accelerator has, beside torch's fused attention and beside launches one by one."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from trainwright.model.build import build_network
from trainwright.model.tasks.next_token import NextToken
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.sections.updates.optimizer import AdamWSection
from trainwright.spec.workload import KernelChoice
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.step import TrainingStep

pytestmark = pytest.mark.cuda
END_OF_TEXT = 1
TOKENS = 384
"""Three blocks of flex_attention."""


def step_of(kernels: KernelChoice, *, family: str = "llama", compiled: bool = False) -> TrainingStep:
    device = torch.device("cuda")
    shape = ModelSection(family=family, layers=2, width=256, heads=4, context_tokens=TOKENS)
    network = build_network(shape.spec(vocabulary=300), dtype=torch.bfloat16, kernels=kernels)
    network.initialise(3)
    network = network.to(device)
    clock = PhaseClock(device)
    clock.start()
    task, optimizers = NextToken(sequence_tokens=TOKENS, end_of_text=END_OF_TEXT), Optimizers(network, AdamWSection())
    return TrainingStep(task, network, optimizers, clock, micro_batch=2, clip_norm=1.0, compiled=compiled)


def batch_of(number: int, sequences: int = 4) -> dict[str, torch.Tensor]:
    """Sequences of several documents."""
    tokens = torch.randint(2, 300, (sequences, TOKENS + 1), generator=torch.Generator().manual_seed(number))
    tokens[::2, 9] = tokens[:, 200] = tokens[1, 300] = END_OF_TEXT
    return {"tokens": tokens}


def losses(kernels: KernelChoice, **options: object) -> list[float]:
    step = step_of(kernels, **options)
    return [float(step(batch_of(number), 1.0).loss_sum) for number in range(5)]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_flex_loses_as_much_as_sdpa(family: str, compiled: bool) -> None:
    found = losses(KernelChoice(attention="flex"), family=family, compiled=compiled)
    assert found == pytest.approx(losses(KernelChoice(attention="sdpa"), family=family), rel=2e-3)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kernel", ["flex", "fa3"])
def test_no_other_document_sees_a_change(kernel: str, compiled: bool) -> None:
    if kernel == "fa3":
        needs_flash3()
    step = step_of(KernelChoice(attention=kernel), compiled=compiled)
    tokens = batch_of(0)["tokens"].cuda()
    other = tokens.clone()
    other[:, 250] = 2 + (tokens[:, 250] + 100) % 298
    before, after = (step.task.hidden(step.network, step.inputs({"tokens": each})) for each in (tokens, other))
    assert torch.equal(after[:, :250], before[:, :250])
    assert torch.equal(after[1, 300:], before[1, 300:])
    assert bool((after[:, 250:300] != before[:, 250:300]).any())


def test_flex_takes_no_memory_for_scores() -> None:
    """At 8,192 tokens the scores of one layer would take 512 MiB in bf16, a mask 128 MiB."""
    query = torch.randn(1, 4, 8192, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    network = build_network(ModelSection(layers=1, width=256, heads=4).spec(vocabulary=300))
    network.use(KernelChoice(attention="flex"))
    documents = torch.arange(8192, device="cuda").div(1000, rounding_mode="floor").unsqueeze(0)
    for _ in range(2):  # the first time it is compiled
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        kernel = network.masked_kernel_of(documents, first=0, keys=8192, device=query.device)
        kernel(query, query, query).sum().backward()
    assert torch.cuda.max_memory_allocated() - before < 64 << 20


def needs_flash3() -> None:
    if find_spec("flash_attn_interface") is None or torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("FlashAttention-3 is not installed, or the device is not Hopper")


def test_flash_attention_3_loses_as_much_as_sdpa() -> None:
    needs_flash3()
    found = losses(KernelChoice(attention="fa3"))
    assert found == pytest.approx(losses(KernelChoice(attention="sdpa")), rel=2e-3)


@pytest.mark.parametrize("attention", ["sdpa", "flex"])
def test_recorded_graphs_lose_as_much_as_launches_one_by_one(attention: str) -> None:
    """Two micro batches an update: gradients are added up between recorded passes."""
    graphs = losses(KernelChoice(attention=attention, cuda_graphs=True), compiled=True)
    assert graphs == pytest.approx(losses(KernelChoice(attention=attention), compiled=True), rel=1e-4)
