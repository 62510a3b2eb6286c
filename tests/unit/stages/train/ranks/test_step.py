"""The passes of a rank: as many as of the rank with most sequences, empty ones at the end."""

from __future__ import annotations

import pytest
import torch

from fixtures.tiny_models import decoder
from trainwright.model.tasks.next_token import NextToken
from trainwright.runtime.mesh import Mesh
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.sections.updates.optimizer import AdamWSection
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.ranks.step import RankedStep


@pytest.mark.parametrize(
    ("sequences", "ranks", "micro_batch", "here", "sizes"),
    [
        (8, 2, 2, 4, [2, 2]),
        (7, 2, 2, 3, [2, 1]),
        (7, 2, 3, 4, [3, 1]),
        (7, 2, 3, 3, [3, 0]),
        (3, 4, 1, 0, [0]),
        (5, 4, 1, 1, [1, 0]),
    ],
)
def test_all_ranks_make_as_many_passes(sequences, ranks, micro_batch, here, sizes) -> None:
    network = decoder()
    clock = PhaseClock(torch.device("cpu"))
    step = RankedStep(
        *(NextToken(sequence_tokens=16), network, Optimizers(network, AdamWSection()), clock),
        mesh=Mesh(parallel=ParallelPlan(dp_replicate=ranks)),
        batch_sequences=sequences,
        micro_batch=micro_batch,
        clip_norm=None,
        compiled=False,
    )
    batch = {"tokens": torch.ones((here, 17), dtype=torch.int64)}
    assert [len(micro["tokens"]) for micro in step.micro_batches(batch)] == sizes
