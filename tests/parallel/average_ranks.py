"""The program of a rank: averages weights in each layout, and looks at what a validation in between leaves behind."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from fixtures.meeting import gloo, mesh_for
from parallel.cases import SEQUENCES, Case
from parallel.ranks import Training, batch_of
from trainwright.artifact.checkpoint.index import AVERAGE
from trainwright.spec.sections.weights.average import EmaSection
from trainwright.stages.train.ranks.world import world_of
from trainwright.stages.train.weights.average import AveragedOptimizers
from trainwright.stages.train.weights.schedule_free import ScheduleFreeOptimizers
from trainwright.stages.train.world import ALONE, World

RANKS, STEPS, DECAY = 2, 4, 0.6
LAYOUTS: Mapping[str, Mapping[str, object]] = {
    "copies": {"dp_replicate": 2},
    "shards": {"dp_shard": 2, "zero_stage": 3},
    "shared state": {"dp_shard": 2, "zero_stage": 1},
    "matrices": {"tp": 2},
    "stages": {"pp": 2},
    "sequences": {"cp": 2},
}


SCHEDULE_FREE = ("shards", "shared state", "matrices")
"""Of them those in which the optimizer's own average is looked at too."""


class Averaging(Training):
    """A training with an average."""

    def __init__(self, case: Case, world: World) -> None:
        super().__init__(case, world)
        if case.optimizer == "schedule-free":
            self.optimizers = ScheduleFreeOptimizers(self.network, self.optimizers)
        else:
            self.optimizers = AveragedOptimizers(self.network, self.optimizers, EmaSection(decay=DECAY), 0)

    def steps(self, *, looking: bool) -> list[dict[str, Tensor]]:
        """Every whole weight before the first update and after each; ``looking`` has passes of the average between."""
        seen = [self._whole()]
        for step in range(STEPS):
            if looking and step:
                with self.optimizers.result(), torch.no_grad():
                    self.loss(step)
            self.gradient(step)
            self.update()
            seen.append(self._whole())
        return seen

    def _whole(self) -> dict[str, Tensor]:
        return {name: weight.detach().clone() for name, weight in self.weights().items()}

    def averages(self) -> dict[str, Tensor]:
        """Every whole average."""
        whole = dict(self.world.whole(self.optimizers.tensors()))
        return {name.removesuffix(f".{AVERAGE}"): each for name, each in whole.items() if name.endswith(f".{AVERAGE}")}

    def loss(self, step: int) -> Tensor:
        """The summed loss of a batch, over all ranks; the network computes it without gradients."""
        rows = self.world.rows(SEQUENCES)
        batch = batch_of(self.case, step)
        part = batch if rows is None else {name: tensor[rows.start : rows.stop] for name, tensor in batch.items()}
        losses = [self.step.loss(micro)[0] for micro in self.step.micro_batches(part)]
        return self.step.summed_up(torch.stack(losses).sum())


def far(some: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> float:
    """The largest difference of any element."""
    assert some.keys() == others.keys()
    return max(float((some[name] - others[name]).abs().max()) for name in others)


def facts(layout: Mapping[str, object], optimizer: str = "adamw") -> dict[str, float]:
    """How far a layout's average is from the mean of its own weights, and what a validation changes."""
    case = Case(layout=layout, family="llama", optimizer=optimizer)
    ranked = Averaging(case, world_of(mesh_for(case.parallel), batch_sequences=SEQUENCES))
    pipelined = "pp" in layout
    seen = ranked.steps(looking=not pipelined)
    averages = ranked.averages()
    with ranked.optimizers.result():
        given = ranked._whole()  # noqa: SLF001  # of this file
        loss = torch.zeros(()) if pipelined else ranked.loss(9)
    after = ranked._whole()  # noqa: SLF001  # the same
    if dist.get_rank() != 0:
        return {}
    truth = seen[0]
    for weights in seen[1:]:
        truth = {name: DECAY * mean + (1 - DECAY) * weights[name] for name, mean in truth.items()}
    alone = Averaging(case, ALONE)
    weights = alone.steps(looking=False)[-1]
    with alone.optimizers.result(), torch.no_grad():
        loss_alone = torch.zeros(()) if pipelined else alone.loss(9)
    return {
        "average": far(averages, truth),
        "average alone": far(averages, alone.averages()),
        "given": far(given, averages),
        "left behind": far(after, seen[-1]),
        "weights alone": far(seen[-1], weights),
        "loss": float((loss.detach() - loss_alone).abs()),
    }


def main(rank: int, ranks: int, folder: str) -> None:
    """Runs as one rank; the first writes ``facts.json``."""
    torch.set_num_threads(1)
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "OFF"
    with gloo(rank, ranks, folder):
        found = {name: facts(layout) for name, layout in LAYOUTS.items()}
        found |= {f"schedule-free, {name}": facts(LAYOUTS[name], "schedule-free") for name in SCHEDULE_FREE}
        if rank == 0:
            Path(folder, "facts.json").write_text(json.dumps(found))
