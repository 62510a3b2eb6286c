"""One update by a pipeline: micro batches pass through the stages of all ranks in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainwright.core.errors import RecipeError
from trainwright.model.losses import Loss
from trainwright.model.parallel.stages import pipeline_of
from trainwright.model.tasks.task import Batch
from trainwright.runtime.memory import LiveBytes, SavedBytes
from trainwright.runtime.norms import add_copies, clip, local
from trainwright.stages.train.ranks.pipeline.relay import Relay
from trainwright.stages.train.ranks.pipeline.schedules import Stage, gather, held, passes, schedule_of
from trainwright.stages.train.ranks.step import RankedStep


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What a task makes of a micro batch: of its sequences, and of as many as every micro batch must have."""

    own: Batch
    full: Batch
    sequences: int


class PipelinedStep(RankedStep):
    """A step whose network lies on several ranks: each has the batch, and some blocks."""

    stage: Callable[..., Stage] = Stage

    def __init__(self, *arguments: Any, copies: Mapping[str, tuple[int, ...]], **options: Any) -> None:
        """Bind what a step works on.

        Args:
            arguments: those of ``TrainingStep``.
            copies: the pipeline ranks of each parameter that several of them have, such as a tied embedding.
            options: those of ``RankedStep``.
        """
        # Blocks are compiled one by one: a rank never calls its network as a whole.
        super().__init__(*arguments, **options | {"compiled": False})
        if self._tells is not None:  # the other stages would have nothing to add up with it
            raise RecipeError(
                "a task that tells parts of its loss has no stages: the last one alone sees any",
                where="train.exec.layout",
                seen=f"pp={self.mesh.size('pp')}",
                fix="set pp=1",
            )
        parallel = self.mesh.parallel
        self.pipeline = pipeline_of(self.network.spec, parallel)
        axis = self.mesh.axis("pp")
        assert axis is not None
        self.group, self.place = axis.get_group(), self.mesh.index("pp")
        named = dict(self.network.named_parameters())
        self._copies = {named[name]: owners for name, owners in copies.items() if self.place in owners}
        self._micro: list[MicroBatch] = []
        self._parts: list[Tensor] = []
        self._denominator = torch.ones(())
        self._schedules: dict[tuple[torch.Size, int], tuple[Any, list[Stage]]] = {}

    def _passes(self) -> int:
        """Returns how many micro batches each rank has, so many that the schedule can have them."""
        return passes(self.mesh.parallel, super()._passes())

    def gradient(self, batch: Batch) -> Loss:
        """Accumulate the gradient of the batch's mean loss into ``.grad``; the summed loss and its weight."""
        with self.clock.phase("preprocess"):
            self._denominator = self.denominator(batch)
            self.before_update(batch)
            self._micro = [self._micro_batch(micro) for micro in self.micro_batches(batch)]
            exact = torch.promote_types(self.network.compute_dtype, torch.float32)
            self._parts = [torch.zeros((), dtype=exact, device=self.device)]
        schedule, stages = self._schedule()
        numbers = torch.arange(len(self._micro))
        gather(self.network)
        # What is neither a forward nor a backward pass in there waits for other stages.
        with self.clock.phase("communicate"):
            schedule.step(numbers, micro=numbers, target=numbers, return_outputs=False)
        stages[0].reduce()
        if self.scale is not None:
            self.scale.divide(self.parameters)
        with self.clock.phase("communicate"):
            add_copies(self.parameters)
            self._add_copies()
        return self.summed_up(reduce(torch.add, self._parts)), self._denominator

    def clip(self) -> Tensor:
        """Returns the norm of the whole gradient, before it is scaled down; what two stages have counts once."""
        again = [parameter for parameter, owners in self._copies.items() if self.place != owners[0]]
        return clip(self.parameters, self.clip_norm, self.mesh, again=again)

    def _micro_batch(self, micro: Batch) -> MicroBatch:
        """Fills a micro batch up with sequences of zeros, since stages send tensors of one shape alone.

        Losses are those of its own sequences, so that the others have no part in any gradient.
        """
        sequences = next(iter(micro.values())).shape[0]
        missing = self.micro_batch - sequences
        own = self.inputs(micro)
        if not missing:
            return MicroBatch(own, own, sequences)
        filled = {
            name: torch.cat([tensor, tensor.new_zeros(missing, *tensor.shape[1:])]) for name, tensor in micro.items()
        }
        return MicroBatch(own, self.inputs(filled), sequences)

    def _schedule(self) -> tuple[Any, list[Stage]]:
        """Returns the schedule for the micro batches at hand, and this rank's stages."""
        shape = self._micro[0].full["tokens"].shape
        kind = shape, len(self._micro)
        if kind not in self._schedules:
            total = len(self.pipeline.parts)
            stream = torch.empty(
                self._stream(shape), dtype=self.network.compute_dtype, device="meta", requires_grad=True
            )
            stages = [
                self.stage(
                    self.network,
                    partial(self._run, number),
                    self.clock,
                    place=(number, total),
                    stream=stream,
                    group=self.group,
                )
                for number in self.pipeline.of(self.place)
            ]
            schedule = schedule_of(self.mesh.parallel, stages, len(self._micro), self._loss)
            self._schedules[kind] = schedule, stages
        return self._schedules[kind]

    def _stream(self, tokens: torch.Size) -> tuple[int, ...]:
        """Returns the shape of what a stage hands on of a micro batch."""
        return *tokens[:1], *map(self.network.stream_tokens, tokens[1:]), self.network.spec.width

    def _run(self, number: int, stream: Tensor | None, micro: Tensor) -> Tensor:
        """Returns what a stage makes of a micro batch: hidden states, in the end normalised ones."""

        def part(tokens: Tensor, **inputs: Any) -> Tensor:
            hidden: Tensor = self.network(
                tokens if stream is None else stream, part=self.pipeline.parts[number], **inputs
            )
            return hidden

        self.network.counts_sequences(self._at(micro).sequences)
        relay = Relay(self.network, part)
        with self.network.keeping():
            self.task.hidden(relay, self._at(micro).full)
        assert relay.output is not None
        return relay.output

    def _loss(self, output: Tensor, number: Tensor) -> Tensor:
        """Returns a micro batch's share of the batch's mean loss, and keeps its sum."""
        micro = self._at(number)
        with self.clock.phase("forward"):
            part, _ = self._task_loss(output, micro)
            self._parts.append(part.detach())
            return self.scaled(part / self._denominator)

    def _at(self, number: Tensor) -> MicroBatch:
        """Returns the micro batch of a number ``[1]``, as torch's schedules pass it on."""
        return self._micro[int(number)]

    def _task_loss(self, output: Tensor, micro: MicroBatch) -> Loss:
        hidden = self.task.hidden(Relay(self.network, lambda *_, **__: output), micro.full)
        return self.task.loss(self.network, hidden[: micro.sequences], micro.own)

    def _add_copies(self) -> None:
        """Adds up the gradients of parameters that several stages have, in one order on all of them."""
        for parameter, owners in self._copies.items():
            assert parameter.grad is not None
            mine = local(parameter.grad)
            theirs = {owner: torch.empty_like(mine) for owner in owners if owner != self.place}
            exchange = [
                dist.P2POp(how, tensor, group=self.group, group_peer=owner)
                for owner, buffer in theirs.items()
                for how, tensor in ((dist.isend, mine), (dist.irecv, buffer))
            ]
            for work in dist.batch_isend_irecv(exchange):
                work.wait()
            whole = reduce(torch.add, [mine if owner == self.place else theirs[owner] for owner in owners])
            mine.copy_(whole)

    def rehearse(self, micro: Batch, parameters: Iterable[Tensor], *, caches: bool) -> tuple[int, int]:
        """Runs this rank's stages on one micro batch without the others; returns bytes, as ``TrainingStep`` does.

        What is saved for the backward pass counts as often as the schedule keeps it.
        """
        self._micro = [self._micro_batch(micro)] * self.passes
        schedule, stages = self._schedule()
        known, first = list(parameters), torch.zeros(1, dtype=torch.long)
        shape = self._stream(self._micro[0].full["tokens"].shape)
        logits_bytes = activation_bytes = 0
        for stage in stages:
            saved = SavedBytes(known)
            given = torch.zeros(shape, dtype=self.network.compute_dtype, device=self.device, requires_grad=True)
            with saved.counting():
                output = self._run(stage.stage_index, None if stage.is_first else given, first)
            activation_bytes += saved.total_bytes * held(self.mesh.parallel, schedule, stage)
            leaf = output.detach().requires_grad_()
            if stage.is_last:
                with LiveBytes() as live:
                    part, _ = self._task_loss(leaf, self._micro[0])
                part.backward()
                logits_bytes = live.peak_bytes
            output.backward(torch.zeros_like(output) if leaf.grad is None else leaf.grad)
        self.optimizers.zero_grad()
        return logits_bytes, activation_bytes
