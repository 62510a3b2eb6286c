"""What a rank of a pipeline does without the others; that its gradients are right is held by ``tests/parallel``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from fixtures.tiny_models import decoder
from trainwright.core.errors import RecipeError
from trainwright.model.parallel.stages import keep_stages
from trainwright.model.tasks.next_token import NextToken
from trainwright.model.tasks.task import Task
from trainwright.runtime.mesh import mesh_of
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.sections.updates.optimizer import AdamWSection
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.ranks.pipeline.step import PipelinedStep
from trainwright.stages.train.step import TrainingStep

TOKENS = torch.randint(2, 320, (2, 17), generator=torch.Generator().manual_seed(0))
TASK = NextToken(sequence_tokens=16)


def clock() -> PhaseClock:
    made = PhaseClock(torch.device("cpu"))
    made.start()
    return made


@pytest.fixture(params=[0, 1])
def rank(request: pytest.FixtureRequest) -> Iterator[int]:
    dist.init_process_group("fake", store=FakeStore(), rank=request.param, world_size=2)
    yield request.param
    dist.destroy_process_group()


def step_of(parallel: ParallelPlan, *, sequences: int, task: Task = TASK) -> PipelinedStep:
    mesh = mesh_of(parallel, "cpu")
    network = decoder(layers=4).requires_grad_(True).train()
    keep_stages(network, mesh)
    return PipelinedStep(
        *(task, network, Optimizers(network, AdamWSection()), clock()),
        mesh=mesh,
        batch_sequences=sequences,
        copies={},
        micro_batch=2,
        clip_norm=None,
        compiled=False,
    )


def alone() -> tuple[int, int]:
    network = decoder(layers=4).requires_grad_(True).train()
    step = TrainingStep(
        *(TASK, network, Optimizers(network, AdamWSection()), clock()), micro_batch=2, clip_norm=None, compiled=False
    )
    return step.rehearse({"tokens": TOKENS}, network.parameters(), caches=False)


def test_a_rehearsal_counts_a_stage_as_often_as_the_schedule_keeps_it(rank: int) -> None:
    logits, activations = alone()
    found = {}
    for schedule in ("1f1b", "gpipe"):
        step = step_of(ParallelPlan(pp=2, schedule=schedule), sequences=12)
        found[schedule] = step.rehearse({"tokens": TOKENS}, step.parameters, caches=False)
        assert all(parameter.grad is None for parameter in step.parameters)
    assert found["1f1b"][0] == found["gpipe"][0] == (logits if rank == 1 else 0)
    kept = 2 - rank
    assert found["gpipe"][1] == found["1f1b"][1] // kept * 6
    assert found["1f1b"][1] // kept == pytest.approx(activations * len(step.network.blocks) / 4, rel=0.15)


@pytest.mark.parametrize(("sequences", "sizes"), [(5, [2, 2, 1]), (4, [2, 2]), (1, [1])])
def test_micro_batches_are_of_one_shape_and_lose_nothing(rank: int, sequences: int, sizes: list[int]) -> None:
    step = step_of(ParallelPlan(pp=2), sequences=sequences)
    tokens = torch.randint(2, 320, (sequences, 17))
    made = [step._micro_batch(micro) for micro in step.micro_batches({"tokens": tokens})]  # noqa: SLF001
    assert [micro.sequences for micro in made] == sizes
    assert {tuple(micro.full["tokens"].shape) for micro in made} == {(2, 16)}
    assert torch.equal(torch.cat([micro.own["tokens"] for micro in made]), tokens[:, :-1])
    assert torch.equal(torch.cat([micro.full["tokens"][: micro.sequences] for micro in made]), tokens[:, :-1])


def test_a_task_that_tells_parts_is_refused_before_the_other_stages_wait_for_it(rank) -> None:
    class Telling(NextToken):
        def told(self) -> dict[str, torch.Tensor]:
            return {}

    with pytest.raises(RecipeError, match=r"train\.exec\.layout: a task that tells parts .*seen pp=2.*set pp=1"):
        step_of(ParallelPlan(pp=2), sequences=4, task=Telling(sequence_tokens=16))
