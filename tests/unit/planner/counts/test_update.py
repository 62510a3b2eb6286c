"""Bytes of AdamW's operations against what torch's own optimizer reads and writes, tensor by tensor."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fixtures.planned_models import LLAMA
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.parameters import block_matrix_parameters, total_parameters
from trainwright.planner.counts.update import (
    FUSED_BYTES,
    OPERATIONS,
    UNFUSED_BYTES,
    averaging_bytes,
    unfused_bytes,
    update_bytes,
)
from trainwright.spec.workload import KernelChoice, ParallelPlan, Workload

SIZE = 1000


class Traffic(TorchDispatchMode):
    """Bytes of the large tensors that each operation reads and writes, and the operations."""

    def __init__(self):
        super().__init__()
        self.moved = self.operations = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        read = {id(each): each for each in tree_leaves((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        big = [each for each in (*read.values(), result) if isinstance(each, torch.Tensor) and each.numel() == SIZE]
        self.moved += 4 * SIZE * len(big)
        self.operations += bool(big)
        return result


def test_the_loop_moves_what_is_counted():
    weight = torch.ones(SIZE, requires_grad=True)
    optimizer = torch.optim.AdamW([weight], lr=0.1, weight_decay=0.1, fused=False, foreach=False)
    weight.grad = torch.ones(SIZE)
    optimizer.step()  # makes the moments
    with Traffic() as traffic:
        optimizer.step()
    assert traffic.moved == UNFUSED_BYTES * SIZE
    assert traffic.operations == OPERATIONS


@pytest.mark.parametrize(("optimizer", "left"), [("adamw", 0), ("muon", block_matrix_parameters(LLAMA))])
def test_only_what_adamw_updates_is_moved_more_often(optimizer, left):
    work = Workload(sequence_tokens=64, batch_tokens=64, steps=1, precision="fp32", optimizer=optimizer)
    alone = Layouts.of([ParallelPlan()], ["none"], work)
    (more,) = unfused_bytes(LLAMA, work, alone, KernelChoice(update="loop"))
    assert more == pytest.approx((UNFUSED_BYTES - FUSED_BYTES) * (total_parameters(LLAMA) - left))
    assert not unfused_bytes(LLAMA, work, alone, KernelChoice()).any()


def test_an_average_moves_what_torch_reads_and_writes():
    average, weight = torch.ones(SIZE), torch.zeros(SIZE)
    with Traffic() as traffic:
        average.lerp_(weight, 0.1)
    work = Workload(sequence_tokens=64, batch_tokens=64, steps=1, precision="fp32", optimizer="adamw", average_every=4)
    (each,) = averaging_bytes(LLAMA, work, Layouts.of([ParallelPlan()], ["none"], work)) / total_parameters(LLAMA)
    assert each == pytest.approx(traffic.moved / SIZE / 4)


@pytest.mark.parametrize(("states", "share"), [("fp32", 1.0), ("mixed", 1.0), ("pure", 0.5)])
def test_what_software_moves_is_counted_beside_the_fused_kernel(states, share):
    work = Workload(sequence_tokens=64, batch_tokens=64, steps=1, precision="bf16", optimizer="adamw", states=states)
    alone = Layouts.of([ParallelPlan()], ["none"], work)
    plain, more = (update_bytes(LLAMA, work, alone, written_bytes=each)[0] for each in (FUSED_BYTES, UNFUSED_BYTES))
    assert more - plain == pytest.approx((UNFUSED_BYTES - FUSED_BYTES) * share * total_parameters(LLAMA))
