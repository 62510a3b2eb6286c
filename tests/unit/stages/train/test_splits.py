"""One gradient however the same sequences fall into ranks and micro batches, empty ones and unlabelled ones among them.

Ranks run one after the other in this process, each the step that it would run beside the others; what they exchange
while they work, the weight of the whole batch, is told to them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fixtures.tiny_models import spec
from trainwright.model.build import build_network
from trainwright.model.losses import IGNORE
from trainwright.model.network import Network
from trainwright.model.parallel.context import stretches
from trainwright.model.tasks.classify import Classify
from trainwright.model.tasks.documents.classify_many import ClassifyMany
from trainwright.model.tasks.next_token import NextToken
from trainwright.model.tasks.task import Batch, Task
from trainwright.runtime.mesh import Mesh
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.sections.updates.optimizer import AdamWSection
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.ranks.step import RankedStep
from trainwright.stages.train.step import TrainingStep

TOKENS, END, CLASSES = 8, 1, 3
CLOCK = PhaseClock(torch.device("cpu"))
CLOCK.start()
OPTIONS = {"clip_norm": None, "compiled": False}


def made(task: Task) -> Network:
    shape = {"layers": 2, "width": 16, "heads": 2, "kv_heads": 1, "ffn_width": 24, "vocabulary": 40}
    classes = {} if isinstance(task, NextToken) else {"classes": CLASSES}
    network = build_network(spec("llama", **shape, **classes), dtype=torch.float64).to(torch.float64)
    network.initialise(2)
    return network


NEXT_TOKEN = NextToken(sequence_tokens=TOKENS, end_of_text=END)
CLASSIFY = Classify(sequence_tokens=TOKENS, labels=("a", "b", "c"), class_of_label=(0, 1, 2), padding=0)
MANY = ClassifyMany(sequence_tokens=TOKENS, labels=("a", "b", "c"), has=np.zeros((0, 3), np.float32), padding=0)
NETWORKS = {type(task): made(task) for task in (NEXT_TOKEN, CLASSIFY, MANY)}


class Rank(RankedStep):
    """A rank that has heard the weight of the whole batch."""

    whole_weight: Tensor

    def denominator(self, batch: Batch) -> Tensor:
        return self.whole_weight.clamp_min(1)


def gradient(step: TrainingStep, batch: Batch) -> dict[str, Tensor]:
    step.network.zero_grad(set_to_none=True)
    step.gradient(batch)
    return {name: parameter.grad.clone() for name, parameter in step.network.named_parameters()}


def of_ranks(task: Task, batch: Batch, shares: tuple[int, ...], micro_batch: int) -> dict[str, Tensor]:
    """The sum of the gradients of ranks with these shares of a batch."""
    network, sequences = NETWORKS[type(task)], len(next(iter(batch.values())))
    parallel = ParallelPlan(dp_replicate=len(shares), shares=shares)
    parts = [parallel.rows(sequences, place) for place in range(len(shares))]
    assert [row for part in parts for row in part] == list(range(sequences))
    total: dict[str, Tensor] = {}
    passes = set()
    for rows in parts:
        options = OPTIONS | {"mesh": Mesh(parallel=parallel), "batch_sequences": sequences, "micro_batch": micro_batch}
        step = Rank(task, network, Optimizers(network, AdamWSection()), CLOCK, **options)
        step.whole_weight = task.weight(batch)
        own = {name: tensor[rows.start : rows.stop] for name, tensor in batch.items()}
        passes.add(len(list(step.micro_batches(own))))
        for name, part in gradient(step, own).items():
            total[name] = total.get(name, torch.zeros_like(part)) + part
    assert len(passes) == 1, "ranks that exchange weights in each pass must make as many"
    return total


def alone(task: Task, batch: Batch) -> dict[str, Tensor]:
    network = NETWORKS[type(task)]
    sequences = len(next(iter(batch.values())))
    return gradient(
        TrainingStep(task, network, Optimizers(network, AdamWSection()), CLOCK, micro_batch=sequences, **OPTIONS), batch
    )


def assert_same(found: Mapping[str, Tensor], truth: Mapping[str, Tensor]) -> None:
    assert found.keys() == truth.keys()
    whole = torch.stack([tensor.norm() for tensor in truth.values()]).norm()
    for name, tensor in truth.items():
        assert float((found[name] - tensor).norm()) <= 1e-12 * max(float(tensor.norm()), 1e-2 * float(whole)), name


@st.composite
def split(draw: st.DrawFn) -> tuple[int, tuple[int, ...], int, int]:
    """Sequences of a batch, shares of its ranks, sequences of a micro batch, and a seed."""
    sequences = draw(st.integers(1, 9))
    shares = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    return sequences, shares, draw(st.integers(1, sequences)), draw(st.integers(0, 1000))


@settings(max_examples=25, deadline=None)
@given(split(), st.data())
def test_next_token_has_one_gradient_however_it_is_split(drawn, data) -> None:
    sequences, shares, micro_batch, seed = drawn
    tokens = torch.randint(0, 40, (sequences, TOKENS + 1), generator=torch.Generator().manual_seed(seed))
    for row in range(sequences):  # of some rows all targets are missing, so that ranks may have none
        tokens[row, data.draw(st.sampled_from((1, 4, TOKENS + 1))) :] = IGNORE
    batch = {"tokens": tokens}
    assert_same(of_ranks(NEXT_TOKEN, batch, shares, micro_batch), alone(NEXT_TOKEN, batch))


@settings(max_examples=15, deadline=None)
@given(split())
def test_classify_has_one_gradient_however_it_is_split(drawn) -> None:
    sequences, shares, micro_batch, seed = drawn
    generator = torch.Generator().manual_seed(seed)
    batch = {
        "tokens": torch.randint(0, 40, (sequences, TOKENS), generator=generator),
        "last": torch.randint(0, TOKENS, (sequences,), generator=generator),
        "class": torch.randint(0, CLASSES, (sequences,), generator=generator),
    }
    assert_same(of_ranks(CLASSIFY, batch, shares, micro_batch), alone(CLASSIFY, batch))
    del batch["class"]
    batch["has"] = torch.rand(sequences, CLASSES, generator=generator).round()
    assert_same(of_ranks(MANY, batch, shares, micro_batch), alone(MANY, batch))


@settings(max_examples=25, deadline=None)
@given(split(), st.integers(1, 4), st.sampled_from(("gather", "ulysses")))
def test_parts_of_sequences_have_each_target_once(drawn, ranks, way) -> None:
    """Whatever ranks share a sequence, their tokens, targets and positions together are those of the whole."""
    sequences, _, _, seed = drawn
    generator = torch.Generator().manual_seed(seed)
    whole = 2 * ranks * 3
    inputs = {name: torch.randint(0, 40, (sequences, whole), generator=generator) for name in ("tokens", "targets")}
    last = torch.randint(0, whole, (sequences,), generator=generator)
    document = {"tokens": inputs["tokens"], "last": last, "class": torch.arange(sequences)}
    found, classes = torch.full_like(inputs["targets"], -1), []
    work = set()
    for rank in range(ranks):
        places = torch.cat(
            [torch.arange(part.start, part.stop) for part in stretches(way, whole, rank=rank, ranks=ranks)]
        )
        part = NEXT_TOKEN.part(inputs, places)
        assert torch.equal(part["tokens"], inputs["tokens"][:, places])
        assert bool((found[:, places] == -1).all())
        found[:, places] = part["targets"]
        own = CLASSIFY.part(document, places)
        here = own["here"]
        assert torch.equal(places[own["last"][here]], last[here])
        classes += own["class"][here].tolist()
        work.add(int((places + 1).sum()))
    assert torch.equal(found, inputs["targets"])
    assert sorted(classes) == list(range(sequences))
    assert way == "ulysses" or len(work) == 1, "every rank's queries see as many keys"
