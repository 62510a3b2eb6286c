"""Evaluation by a pipeline: the last stage measures, the others compute what it asks for.

The task runs where the head is. Whenever it calls the network, the other stages hear the tokens and compute their part;
in the end they hear the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainwright.artifact.shards import TokenSplit
from trainwright.model.network import Network
from trainwright.model.parallel.stages import pipeline_of
from trainwright.model.tasks.task import Evaluation, EvaluationOptions, Task
from trainwright.runtime.mesh import Mesh
from trainwright.stages.train.ranks.pipeline.relay import Relay

FILLING = 2
"""Micro batches on the way for each rank: with twice as many as ranks a pipeline works two thirds of the time."""


@dataclass(frozen=True)
class Asked:
    """A forward pass that all stages take part in."""

    tokens: Tensor
    inputs: Mapping[str, Any]


@dataclass(frozen=True)
class Ended:
    """The measurement is over."""

    result: Evaluation | Exception


def evaluate(task: Task, network: Network, split: TokenSplit, options: EvaluationOptions, *, mesh: Mesh) -> Evaluation:
    """Returns what the task measures, on every rank; all ranks of the pipeline call it together.

    Raises:
        DataError: as ``Task.evaluate``.
    """
    stages = _Stages(network, mesh, rows=options.batch_sequences)
    many = replace(options, batch_sequences=options.batch_sequences * FILLING * mesh.size("pp"))
    if not stages.lead:
        return _follow(stages)
    try:
        result = task.evaluate(Relay(network, stages.ask), split, many)
    except Exception as error:
        stages.tell(Ended(error))
        raise
    stages.tell(Ended(result))
    return result


def _follow(stages: _Stages) -> Evaluation:
    """Computes passes until the measurement is over; returns its result, or raises its error."""
    training = stages.network.training
    stages.network.eval()
    try:
        with torch.inference_mode():
            while isinstance(heard := stages.hear(), Asked):
                stages.compute(heard)
    finally:
        stages.network.train(training)
    if isinstance(heard.result, Exception):
        raise heard.result
    return heard.result


class _Stages:
    """This rank's stages, and how they hear of work."""

    def __init__(self, network: Network, mesh: Mesh, *, rows: int) -> None:
        axis = mesh.axis("pp")
        assert axis is not None
        self.network, self.rows = network, rows
        self.group, self.place = axis.get_group(), mesh.index("pp")
        self.pipeline = pipeline_of(network.spec, mesh.parallel)
        self.leader = self.pipeline.owners[-1]
        self.lead = self.place == self.leader

    def tell(self, message: Asked | Ended) -> None:
        """Lets the other ranks hear."""
        dist.broadcast_object_list([message], group=self.group, group_src=self.leader)

    def hear(self) -> Asked | Ended:
        """Waits for what the leader tells."""
        heard: list[Any] = [None]
        dist.broadcast_object_list(heard, group=self.group, group_src=self.leader)
        message: Asked | Ended = heard[0]
        return message

    def ask(self, tokens: Tensor, **inputs: Any) -> Tensor:
        """Returns normalised hidden states, by all stages."""
        given = {name: value for name, value in inputs.items() if value is not None}
        asked = Asked(tokens.cpu(), {name: value.cpu() for name, value in given.items()})
        self.tell(asked)
        return torch.cat(self.compute(asked))

    def compute(self, asked: Asked) -> list[Tensor]:
        """Runs this rank's stages in turn on pieces of the batch; returns what the last of them made."""
        device = self.network.device
        tokens = asked.tokens.to(device).split(self.rows)
        inputs = {name: value.to(device) for name, value in asked.inputs.items()}
        pieces = [
            {name: value if value.shape[0] == 1 else value[start : start + self.rows] for name, value in inputs.items()}
            for start in range(0, len(asked.tokens), self.rows)
        ]
        made: list[Tensor] = []
        sending: list[tuple[Tensor, dist.Work | None]] = []
        for stage in self.pipeline.of(self.place):
            before, made = made, []
            following = self._owner(stage + 1)
            for number, piece in enumerate(tokens):
                given = self._given(stage, piece, before, number)
                made.append(self.network(given, part=self.pipeline.parts[stage], **pieces[number]))
                if following is not None and following not in (0, self.place):
                    sending.append(self._sent(made[-1], following))
            if following == 0 and self.place > 0:
                # The first rank receives when it has sent everything: NCCL keeps two ranks' messages in one order.
                sending += [self._sent(each, following) for each in made]
        for _, work in sending:
            if work is not None:
                work.wait()
        return made

    def _sent(self, tensor: Tensor, rank: int) -> tuple[Tensor, dist.Work | None]:
        """Returns a tensor on its way, which must be kept until it has arrived."""
        return tensor, dist.isend(tensor, group=self.group, group_dst=rank)

    def _given(self, stage: int, tokens: Tensor, before: list[Tensor], number: int) -> Tensor:
        """Returns the input of a stage: tokens, what this rank made just now, or what another rank sends."""
        owner = self._owner(stage - 1)
        if owner is None:
            return tokens
        if owner == self.place:
            return before[number]
        shape = (tokens.shape[0], self.network.stream_tokens(tokens.shape[1]), self.network.spec.width)
        stream = torch.empty(shape, dtype=self.network.compute_dtype, device=tokens.device)
        dist.recv(stream, group=self.group, group_src=owner)
        return stream

    def _owner(self, stage: int) -> int | None:
        return self.pipeline.owners[stage] if 0 <= stage < len(self.pipeline.owners) else None
