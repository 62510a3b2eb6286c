"""How a step is recorded, on a processor, which records nothing: what torch is told, and where gradients lie."""

from __future__ import annotations

import pytest
import torch

from fixtures.tiny_models import spec
from trainwright.model.build import build_network
from trainwright.model.kernels.graphs import CudaGraphs
from trainwright.model.tasks.next_token import NextToken
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.sections.updates.optimizer import AdamWSection
from trainwright.spec.workload import KernelChoice
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.step import TrainingStep

CPU = torch.device("cpu")


@pytest.fixture
def told(monkeypatch) -> list[dict[str, object]]:
    """What ``torch.compile`` is told, which compiles nothing here."""
    found: list[dict[str, object]] = []

    def compile_(network, **options):
        found.append(options)
        return network

    monkeypatch.setattr(torch, "compile", compile_)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: None)
    return found


def step_of(*, compiled: bool, recorded: bool) -> TrainingStep:
    network = build_network(spec(), kernels=KernelChoice(cuda_graphs=recorded))
    network.initialise(2)
    clock = PhaseClock(CPU)
    clock.start()
    task, optimizers = NextToken(sequence_tokens=16), Optimizers(network, AdamWSection())
    return TrainingStep(task, network, optimizers, clock, micro_batch=2, clip_norm=None, compiled=compiled)


def batch(number: int = 0) -> dict[str, torch.Tensor]:
    return {"tokens": torch.randint(2, 320, (5, 17), generator=torch.Generator().manual_seed(number))}


def test_compiled_code_is_recorded_where_the_recipe_asks_for_it(told) -> None:
    step_of(compiled=True, recorded=True)
    step_of(compiled=True, recorded=False)
    step_of(compiled=False, recorded=False)
    assert [each.get("options") for each in told] == [{"triton.cudagraphs": True}, None]
    assert all(name in torch._inductor.list_options() for name in CudaGraphs.options)  # noqa: SLF001


def test_each_micro_batch_begins_a_pass(told, monkeypatch) -> None:
    begun: list[int] = []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: begun.append(1))
    step = step_of(compiled=True, recorded=True)
    step.gradient(batch())
    assert len(begun) == 3
    step_of(compiled=True, recorded=False).gradient(batch())
    assert len(begun) == 3


def test_gradients_are_added_up_in_memory_of_their_own(told) -> None:
    step = step_of(compiled=True, recorded=True)
    assert step.graphs is not None
    frozen = next(iter(step.network.parameters())).detach()
    graphs = CudaGraphs([*step.parameters, frozen])
    graphs.begin()
    assert frozen.grad is None
    first = {name: parameter.grad for name, parameter in step.network.named_parameters()}
    assert all(grad is not None and not bool(grad.any()) for grad in first.values())
    step.gradient(batch())
    assert all(parameter.grad is first[name] for name, parameter in step.network.named_parameters())
    assert any(bool(grad.any()) for grad in first.values())


def test_updates_are_those_without_graphs_to_the_bit(told) -> None:
    steps = [step_of(compiled=True, recorded=recorded) for recorded in (True, False)]
    for number in range(3):
        one, other = (step(batch(number), 1.0) for step in steps)
        assert torch.equal(one.loss_sum, other.loss_sum)
        assert torch.equal(one.grad_norm, other.grad_norm)
    for ours, theirs in zip(*(step.network.parameters() for step in steps), strict=True):
        assert torch.equal(ours, theirs)
