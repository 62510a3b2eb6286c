"""The reference of a task: what the weights that training begins with say of the dataset, asked once.

So no second network is kept. Adapters are switched off meanwhile: their base is the reference.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trainwright.artifact.events import Events
from trainwright.artifact.shards import TokenDataset, TokenSplit
from trainwright.artifact.stage import Context
from trainwright.model.adapters.attach import switched_off
from trainwright.model.network import Network
from trainwright.model.tasks.preferences.references import missing_splits, read_references, write_split
from trainwright.model.tasks.task import RefersToStart, Task
from trainwright.stages.train.world import World


def refer(
    task: RefersToStart,
    network: Network,
    dataset: TokenDataset,
    context: Context,
    *,
    world: World,
    sequences: int,
) -> Task:
    """Returns the task with its reference, of all splits, which the training's folder keeps; every process must ask.

    Args:
        task: that needs it.
        network: shared, with the weights that training begins with.
        dataset: with the splits.
        context: of the training, whose folder all processes see; what is whole there is read.
        world: the processes that train together.
        sequences: of a forward pass of each process.
    """
    out = context.out
    missing: list[str] = world.gathered(missing_splits(out, dataset) if world.leads else [])[0]
    for name in missing:
        split = dataset.splits[name]
        parts = _parts(task, network, split, context.events, world, sequences)
        if world.leads:
            write_split(out, dataset, name, parts)
        else:
            for _ in parts:
                pass
    world.gathered(None)  # what the leading process wrote is there for all
    return task.referring(read_references(out, dataset))


def _parts(  # noqa: PLR0917  # what refer was given
    task: RefersToStart,
    network: Network,
    split: TokenSplit,
    events: Events,
    world: World,
    sequences: int,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Yields what all processes found of a split."""
    with switched_off(network):
        passes = task.reference_parts(network, split, batch_sequences=sequences * world.ranks, rows=world.rows)
        for places, values, done, total in passes:
            yield from world.gathered((places, values))
            events.progress(f"reference of {split.name}", min(done, total), total=total, unit="sequences")
