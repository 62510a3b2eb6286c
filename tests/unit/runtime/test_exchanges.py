"""Where a rank waits for others is counted as communication, on ranks whose collectives send nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from fixtures.tiny_models import decoder
from trainwright.model.parallel.parallelize import parallelize
from trainwright.runtime.exchanges import BLOCKING, WAITS_OF_FSDP, exchanges_counted
from trainwright.runtime.mesh import Mesh, mesh_of
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.workload import ParallelPlan

CPU = torch.device("cpu")
SHARDED = ParallelPlan(dp_shard=2, zero_stage=3)


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield mesh_of(SHARDED, "cpu")
    dist.destroy_process_group()


@pytest.fixture
def clock() -> PhaseClock:
    made = PhaseClock(CPU)
    made.start()
    return made


def test_gathering_weights_and_reducing_gradients_is_no_part_of_a_pass(mesh, clock) -> None:
    network = decoder().requires_grad_(True).train()
    parallelize(network, mesh, compiled=False)
    with exchanges_counted(network, clock):
        with clock.phase("forward"):
            hidden = network(torch.ones((2, 16), dtype=torch.int64))
        forward = [span.phase for span in clock.spans()]
        with clock.phase("backward"):
            hidden.sum().backward()
        backward = [span.phase for span in clock.spans()]
        with clock.phase("evaluate"):
            network(torch.ones((2, 16), dtype=torch.int64))
        beside = {span.phase for span in clock.spans()}
    groups = sum(isinstance(module, FSDPModule) for module in network.modules())
    assert forward.count("communicate") >= groups, "each group's weights are waited for"
    assert backward.count("communicate") >= groups, "each group's gradients are reduced"
    assert set(forward) == {"other", "forward", "communicate"}
    assert beside == {"other", "evaluate"}, "an evaluation keeps what it waits for"


def test_a_sum_is_waited_for(mesh, clock) -> None:
    with exchanges_counted(torch.nn.Linear(1, 1), clock), clock.phase("update"):
        mesh.sum(torch.ones(()), "dp_shard")
    assert [span.phase for span in clock.spans()].count("communicate") == 1


def test_work_is_waited_for_where_it_is_needed(clock) -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with exchanges_counted(torch.nn.Linear(1, 1), clock), clock.phase("update"):
            work = dist.all_reduce(torch.ones(()), async_op=True)
            clock.stop()
            work.wait()
            functional.wait_tensor(torch.ones(()))
    finally:
        dist.destroy_process_group()
    assert [span.phase for span in clock.spans()].count("communicate") == 2


def test_a_thread_beside_training_does_not_move_the_clock(mesh, clock) -> None:
    with exchanges_counted(torch.nn.Linear(1, 1), clock), clock.phase("forward"):
        thread = threading.Thread(target=lambda: dist.all_reduce(torch.ones(())))
        thread.start()
        thread.join()
    assert "communicate" not in [span.phase for span in clock.spans()]


def test_all_is_put_back(mesh, clock) -> None:
    network = decoder().requires_grad_(True)
    parallelize(network, mesh, compiled=False)
    state = fully_shard.state(network)._fsdp_param_group  # noqa: SLF001  # torch has no public name for it
    before = [getattr(dist, name, None) for name in BLOCKING], dist.Work.wait, functional.wait_tensor
    with exchanges_counted(network, clock):
        assert dist.all_reduce is not before[0][BLOCKING.index("all_reduce")]
        assert all(name in vars(state) for name in WAITS_OF_FSDP)
    assert before == ([getattr(dist, name, None) for name in BLOCKING], dist.Work.wait, functional.wait_tensor)
    assert not any(name in vars(state) for name in WAITS_OF_FSDP)
