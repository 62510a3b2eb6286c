"""Schedules of a pipeline: which micro batch a rank works on next. They are torch's own.

``torch.distributed.pipelining`` runs them and sends what stages hand on. Sharded weights stay gathered over all micro
batches of a step: in a pipeline ZeRO-3 holds what ZeRO-1 does (``planner.search.candidates`` counts on that).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import P2POp, ProcessGroup
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

from trainwright.model.network import Network
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.workload import ParallelPlan

SEVERAL = {
    "interleaved": ScheduleInterleaved1F1B,
    "zero_bubble": ScheduleInterleavedZeroBubble,
    "dualpipe": ScheduleDualPipeV,
}
"""Schedules of a rank with any number of stages; GPipe and 1F1B have one."""

Run = Callable[[Tensor | None, Tensor], Tensor]
"""What a stage makes of another's output (of nothing, the first) for a micro batch, by its number ``[1]``."""


class _Whole(nn.Module):
    """Hides from torch's schedules that a network is sharded: of a rank's stages one would shard all of them again."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network


class Stage(PipelineStage):
    """A stage of a rank whose network has all of its stages; the clock hears of each pass."""

    def __init__(
        self,
        network: Network,
        run: Run,
        clock: PhaseClock,
        *,
        place: tuple[int, int],
        stream: Tensor,
        group: ProcessGroup,
    ) -> None:
        """Binds a stage.

        Args:
            network: this rank's part, sharded or not.
            run: computes this stage.
            clock: started.
            place: number of the stage, and of all stages.
            stream: shape and dtype of what stages hand on, on the meta device.
            group: the ranks of the pipeline.
        """
        number = torch.empty(1, dtype=torch.long, device="meta")
        super().__init__(
            _Whole(network),
            *place,
            network.device,
            input_args=(number if place[0] == 0 else stream,),
            output_args=(stream,),
            group=group,
        )
        self._network, self._run, self._clock = network, run, clock
        self._stream = stream

    # torch makes a buffer for what each micro batch of a step receives, and keeps them all: as many hidden states as
    # there are micro batches, and as many gradients. Here each is made when it comes, and belongs to its micro batch.

    def _prepare_forward_infra(self, num_microbatches: int, *arguments: Any, **options: Any) -> Any:
        found = super()._prepare_forward_infra(1, *arguments, **options)
        _spread(self.args_recv_info, num_microbatches)
        return found

    def _prepare_backward_infra(self, num_microbatches: int, *arguments: Any, **options: Any) -> Any:
        found = super()._prepare_backward_infra(1, *arguments, **options)
        self.chunks = num_microbatches
        _spread(self.grad_recv_info, num_microbatches)
        return found

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[P2POp]:
        """Returns what receives a micro batch's input."""
        self._make_room(self.args_recv_info[fwd_chunk_id] if not self.is_first else ())
        ops: list[P2POp] = super().get_fwd_recv_ops(fwd_chunk_id)
        return ops

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[P2POp]:
        """Returns what receives the gradient of a micro batch's output."""
        self._make_room(self.grad_recv_info[bwd_chunk_id])
        ops: list[P2POp] = super().get_bwd_recv_ops(bwd_chunk_id)
        return ops

    def _make_room(self, received: Iterable[Any]) -> None:
        for each in received:
            each.buffer = torch.empty_like(self._stream, device=self.device, requires_grad=False)

    def _retrieve_recv_activations(self, fwd_chunk_id: int) -> Any:
        received: tuple[Any, ...] = self.args_recv_info[fwd_chunk_id]
        for each in received:
            each.buffer.requires_grad_()
        return self._taken(super()._retrieve_recv_activations(fwd_chunk_id), received)

    def _retrieve_recv_grads(self, bwd_chunk_id: int) -> Any:
        return self._taken(super()._retrieve_recv_grads(bwd_chunk_id), self.grad_recv_info[bwd_chunk_id])

    def _taken(self, tensors: Any, received: Iterable[Any]) -> Any:
        for each in received:
            each.buffer = None
        return tensors

    def _validate_fwd_outputs(self, outputs: tuple[Tensor, ...]) -> None:
        """Looks at what is handed on, as torch 2.11 does: the last stage's output has all tokens, and goes nowhere."""
        if not self.is_last:
            of_torch: Any = super()
            of_torch._validate_fwd_outputs(outputs)  # noqa: SLF001  # of torch 2.11; 2.13 has none

    def clear_runtime_states(self) -> None:
        """Forgets a step. No buffer stays whose gradient would have to be cleared; torch 2.11 takes all for there."""
        self.fwd_cache.clear()
        self.output_chunks.clear()

    def forward_maybe_with_nosync(self, *given: Tensor, micro: Tensor) -> Tensor:
        """Returns what this stage makes of a micro batch; instead of a call of the whole module."""
        with self._clock.phase("forward"):
            return self._run(None if self.is_first else given[0], micro)

    def backward_one_chunk(self, *arguments: Any, **options: Any) -> None:
        """Computes gradients of a micro batch, of its inputs alone where the schedule splits them.

        torch keeps the losses of a whole step; one that knew its graph would keep each micro batch's input with it.
        """
        with self._clock.phase("backward"):
            super().backward_one_chunk(*arguments, **options)
        if options.get("loss") is not None:
            options["loss"].detach_()

    def backward_weight_one_chunk(self, *arguments: Any, **options: Any) -> None:
        """Computes the rest of the gradients of a micro batch."""
        with self._clock.phase("backward"):
            super().backward_weight_one_chunk(*arguments, **options)

    def reduce(self) -> None:
        """Adds up the gradients of all of this rank's stages over the ranks that share them, and shards weights."""
        hiding, self.submod = self.submod, self._network
        with self._clock.phase("communicate"):
            self.perform_reduce_grad(1)
        self.submod = hiding


def _spread(received: dict[int, tuple[Any, ...]], micro_batches: int) -> None:
    """Lets all micro batches receive as the first one does, each into a buffer of its own that is made later."""
    first = received.pop(0, ())
    for number in range(micro_batches):
        received[number] = tuple(copy(each) for each in first)
        for each in received[number]:
            each.buffer = None


def gather(network: Network) -> None:
    """Lets the coming passes leave weights and gradients whole, until ``Stage.reduce``."""
    if isinstance(network, FSDPModule):
        network.set_is_last_backward(False)
        network.set_requires_gradient_sync(False)
        network.set_reshard_after_backward(False)


def passes(parallel: ParallelPlan, micro_batches: int) -> int:
    """Returns how many micro batches the schedule needs to run so many; those beyond are empty."""
    if parallel.schedule == "dualpipe":
        return max(micro_batches, 2 * parallel.pp)
    if parallel.schedule in SEVERAL:
        # They work in rounds of as many micro batches, one for each rank or a few more.
        while micro_batches % max(1, micro_batches // parallel.pp):
            micro_batches += 1
    return micro_batches


def schedule_of(
    parallel: ParallelPlan, stages: Sequence[Stage], micro_batches: int, loss: Callable[..., Tensor]
) -> Any:
    """Returns what runs a step; gradients are those of the sum of the losses.

    Args:
        parallel: the layout.
        stages: of this rank.
        micro_batches: a number that ``passes`` returned.
        loss: of the last stage's output and a micro batch's number.
    """
    options: dict[str, Any] = {"loss_fn": loss, "scale_grads": False}
    if parallel.schedule in SEVERAL:
        return SEVERAL[parallel.schedule](list(stages), micro_batches, **options)
    # With fewer micro batches than stages no backward pass can begin before the last forward pass has.
    eager = parallel.schedule == "1f1b" and micro_batches >= parallel.pp
    return (Schedule1F1B if eager else ScheduleGPipe)(stages[0], micro_batches, **options)


def held(parallel: ParallelPlan, schedule: Any, stage: Stage) -> int:
    """Returns the most micro batches whose activations a stage keeps at one time."""
    micro_batches: int = schedule._n_microbatches  # noqa: SLF001  # torch gives it no other name
    if parallel.schedule not in SEVERAL:
        waits = stage.num_stages - stage.stage_index
        return min(micro_batches, waits) if isinstance(schedule, Schedule1F1B) else micro_batches
    now = most = 0
    for action in schedule.pipeline_order[stage.group_rank]:
        for each in () if action is None else (action.sub_actions or (action,)):
            if each.stage_index == stage.stage_index:
                what = each.computation_type.name
                now += (what == "FORWARD") - (what in ("FULL_BACKWARD", "BACKWARD_WEIGHT"))
                most = max(most, now)
    return most
