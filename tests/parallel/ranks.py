"""The program of a rank: trains each case in its layout, and the first rank also alone, and writes how far they are."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from fixtures.flex import flex_on_processor
from fixtures.meeting import gloo, mesh_for
from fixtures.tiny_models import spec
from parallel.batches import LABELS, chats_of, documents_of, pairs_of, records_of
from parallel.cases import END_OF_TEXT, FLOOR, SEQUENCE_TOKENS, SEQUENCES, Case
from trainwright.model.adapters.attach import attach, drop_inputs, initialise
from trainwright.model.adapters.quantised import quantise
from trainwright.model.attention import document_ids
from trainwright.model.build import build_network
from trainwright.model.dropout import sample_keys
from trainwright.model.losses import IGNORE
from trainwright.model.network import Network
from trainwright.model.optimizers.groups import freeze
from trainwright.model.parts.width import follow_width
from trainwright.model.precision.loss_scale import LossScale
from trainwright.model.regularisation.terms import add_terms
from trainwright.model.tasks.chat import Chat
from trainwright.model.tasks.distillation.distill import Distill
from trainwright.model.tasks.documents.classify_many import ClassifyMany
from trainwright.model.tasks.documents.regress import Regress
from trainwright.model.tasks.embeddings.embed import Embed
from trainwright.model.tasks.masked import Gaps, Masked
from trainwright.model.tasks.next_token import NextToken
from trainwright.model.tasks.preferences.preference import Preference
from trainwright.model.tasks.preferences.reward import Reward
from trainwright.model.tasks.task import Task
from trainwright.model.tasks.words.classify_tokens import ClassifyTokens
from trainwright.planner.counts.adapters import placed
from trainwright.runtime.faults.gate import Gate
from trainwright.runtime.norms import local
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.parts.adaptation import LowRank
from trainwright.spec.parts.dropout import Dropout
from trainwright.spec.parts.targets import TargetScale
from trainwright.spec.sections.faults import FaultsSection
from trainwright.spec.sections.tasks.keys import DistillSection, EmbedSection, PreferenceSection
from trainwright.spec.sections.train import LossScaleSection
from trainwright.spec.sections.updates.loss import LossSection
from trainwright.spec.sections.updates.optimizer import (
    AdafactorSection,
    AdamSection,
    AdamWSection,
    GroupSection,
    LionSection,
    MuonSection,
    OptimizerSection,
    ScheduleFreeSection,
    SgdSection,
)
from trainwright.spec.workload import KernelChoice
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.ranks.world import world_of
from trainwright.stages.train.step import TrainingStep, Update
from trainwright.stages.train.weights.beginning import CPU, Beginning, without_memory
from trainwright.stages.train.world import ALONE, World

DROPOUT = Dropout(residual=0.2, embedding=0.1, attention=0.3, depth=0.4)
TERMS = LossSection(label_smoothing=0.2, z_weight=0.01, l1_weight=1e-3, l2_weight=1e-2)
GROWING = (1, 2, 2, 5)
"""Sequences of the first batches of a ramp; all later ones have ``SEQUENCES``."""
DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16}
DECISIONS, FIRST_SCALE, FORCED_STEPS, SPOILT_STEP = 10, 2.0**27, 4, 8
"""Steps; a factor that overflows in every layout for so many steps; a step in which one rank's gradients alone do.

Between them sums of other lengths come to fp16's range at other factors.
"""

GAPS = Gaps(mask=3, vocabulary=spec("bert").vocabulary, never=(END_OF_TEXT,))


def sgd(network: Network, section: OptimizerSection) -> list[torch.optim.Optimizer]:
    """Plain gradient descent: parameters differ by what gradients differ by."""
    return [torch.optim.SGD(network.trained().values(), lr=section.lr)]


SECTIONS: Mapping[str, OptimizerSection] = {
    "sgd": OptimizerSection(name="parallel.ranks:sgd", lr=0.1),
    "adamw": AdamWSection(lr=1e-3),
    "wide": AdamWSection(lr=1e-3, groups=(GroupSection(match="*out.weight", lr="x0.5"),)),
    "muon": MuonSection(lr=1e-3),
    "momentum": SgdSection(lr=0.1, nesterov=True, weight_decay=0.01),
    "adam": AdamSection(lr=1e-3, weight_decay=0.01),
    "adafactor": AdafactorSection(lr=1e-3, weight_decay=0.01),
    "lion": LionSection(lr=1e-3),
    "schedule-free": ScheduleFreeSection(lr=1e-3),
    "groups": AdamWSection(
        lr=1e-3,
        groups=(
            GroupSection(match="blocks.0.*", frozen=True),
            GroupSection(match="*norm*", lr="x10"),
            GroupSection(match="embedding", lr=1e-4),
        ),
    ),
}


def batch_of(case: Case, step: int) -> dict[str, Tensor]:
    """The whole batch of a step; with ``ragged`` one sequence has no target at all, and one half of them."""
    shape = spec(case.family)
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(2, shape.vocabulary, (SEQUENCES, SEQUENCE_TOKENS + 1), generator=generator)
    if case.chats or case.preference or case.whole:
        made = chats_of if case.chats else pairs_of if case.preference else documents_of
        made = records_of if case.whole == "embed" else made
        return made(tokens, generator) | ({"samples": sample_keys(9, step, range(SEQUENCES))} if case.dropout else {})
    if case.documents:
        tokens[::2, 5] = tokens[:, 11] = END_OF_TEXT
    if case.ragged:
        tokens[1, 1:], tokens[-1, 9:] = -100, -100
    batch = {"tokens": tokens}
    if shape.kind == "encoder":
        inputs, targets = GAPS.of(tokens[:, :-1].clamp_min(0).numpy(), range(100 * step, 100 * step + SEQUENCES))
        batch = {"tokens": torch.from_numpy(inputs), "targets": torch.from_numpy(targets)}
        batch["targets"][tokens[:, :-1] < 0] = IGNORE
        batch |= {"documents": document_ids(tokens[:, :-1], END_OF_TEXT)} if case.documents else {}
    return batch | ({"samples": sample_keys(9, step, range(SEQUENCES))} if case.dropout else {})


def adapt(network: Network, method: str, *, dropout: bool) -> None:
    """Puts adapters beside every linear layer that are no longer as they begin."""
    how = LowRank(rank=3, scale=0.5)
    if method == "qlora":
        quantise(network)
    attach(network, dict.fromkeys(placed(network.spec, ["all-linear"]), how), magnitude=method == "dora")
    initialise(network, 4)
    if dropout:
        drop_inputs(network, 0.3)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in network.trained().values():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype), alpha=0.05)


def taught(end_of_text: int | None, dtype: torch.dtype) -> Distill:
    """The task whose teacher has another width and other weights than the network that learns."""
    teacher = build_network(spec("gpt2", width=24, heads=3, kv_heads=3), dtype=dtype).to(dtype)
    teacher.initialise(8)
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.mul_(3)
    how = DistillSection(name="distill", teacher="x", temperature=2.0, alpha=0.6)
    return Distill(sequence_tokens=SEQUENCE_TOKENS, end_of_text=end_of_text, how=how).taught_by(teacher)


def compared(case: Case, step: int) -> bool:
    """Whether what a step computes is held against one process: every step of plain descent, else the ends."""
    return case.optimizer == "sgd" or step in (0, case.steps)


def head_of(case: Case) -> dict[str, object]:
    """Fields of the shape of a head for a document, for its words, or for answers."""
    outputs = LABELS if case.whole in ("many", "words") else 1
    own = case.whole or case.preference == "reward"
    head: dict[str, object] = {"classes": outputs, "language_head": False, "tied": False} if own else {}
    of_tokens = case.whole == "words" and spec(case.family).kind == "decoder"
    head = {"language_head": False, "pooler": False} if case.whole == "embed" else head
    return head | ({"token_classes": True} if of_tokens else {})


def task_of(case: Case, kind: str, dtype: torch.dtype) -> Task:
    """The task of a case, for a network of a kind."""
    apart = END_OF_TEXT if case.documents else None
    task: Task = NextToken(sequence_tokens=SEQUENCE_TOKENS, end_of_text=apart)
    if kind == "encoder":
        task = Masked(sequence_tokens=SEQUENCE_TOKENS, gaps=GAPS, end_of_text=apart)
    if case.chats:
        task = Chat(sequence_tokens=SEQUENCE_TOKENS)
    form = {"sequence_tokens": SEQUENCE_TOKENS, "padding": 0, "frame": (0, 0) if kind == "encoder" else None}
    if case.whole == "many":
        task = ClassifyMany(labels=("a", "b", "c"), has=np.zeros((0, LABELS), np.float32), **form)
    elif case.whole == "words":
        task = ClassifyTokens(labels=("a", "b", "c"), class_of_label=(0, 1, 2), **form)
    elif case.whole == "embed":
        how = EmbedSection(name="embed", group=1, cosine_temperature=0.2)
        task = Embed(how=how, texts=3, **form)
    elif case.whole:
        task = Regress(scale=TargetScale(mean=0.0, std=1.0), error=case.whole, **form)
    if case.preference == "reward":
        task = Reward(sequence_tokens=SEQUENCE_TOKENS, padding=0, center=0.1)
    elif case.preference:
        how = PreferenceSection(name="preference", loss=case.preference, beta=0.5)
        task = Preference(sequence_tokens=SEQUENCE_TOKENS, how=how)
    if case.taught:
        task = taught(apart, dtype)
    return task


class Training:
    """A case in a world: alone, or as one rank of its layout."""

    def __init__(self, case: Case, world: World) -> None:
        self.world, self.case = world, case
        dtype = DTYPES[case.dtype]
        head = head_of(case)
        shape = spec(case.family, **case.model, **head, dropout=DROPOUT if case.dropout else Dropout())
        kept = torch.promote_types(dtype, torch.float32)
        kernels = KernelChoice(reduce=case.reduce, pad_vocabulary=case.pad_vocabulary, attention=case.attention)
        with without_memory():
            self.network = build_network(shape, dtype=dtype, recompute=case.recompute, kernels=kernels).to(kept)
        values: Iterable[tuple[str, Tensor]] = self.network.initial(3)
        if case.optimizer == "wide":
            values = follow_width(self.network, 4.0, values, first=True)
        begun = Beginning(network=self.network, values=values, new_head=None)
        if case.adapter:
            adapt(begun.fill(CPU), case.adapter, dropout=case.dropout)
            self.network.to(kept)
        if case.terms:
            add_terms(self.network, TERMS)
        freeze(self.network, SECTIONS[case.optimizer].groups)
        world.share(self.network, compiled=False)
        if not case.adapter:
            begun.fill(CPU, world)
        task = task_of(case, shape.kind, dtype)
        self.optimizers = Optimizers(self.network, SECTIONS[case.optimizer])
        clock = PhaseClock(torch.device("cpu"))
        clock.start()
        self.step: TrainingStep = world.step(
            task, self.network, self.optimizers, clock, micro_batch=case.micro_batch, clip_norm=0.5, compiled=False
        )
        if case.dtype == "fp16":
            self.step.scale = LossScale(LossScaleSection(), torch.device("cpu"))

    def gradient(self, step: int) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Loss, norm before clipping, and every whole gradient after it, of steps in which they are compared."""
        size = GROWING[step] if self.case.ramp and step < len(GROWING) else SEQUENCES
        rows = self.world.rows(size)
        self.step.resize(size)
        batch = {name: tensor[:size] for name, tensor in batch_of(self.case, step).items()}
        part = batch if rows is None else {name: tensor[rows.start : rows.stop] for name, tensor in batch.items()}
        loss, _ = self.step.gradient(part)
        self.step.penalise()
        norm = self.step.clip()
        if not compared(self.case, step):
            return loss, norm, {}
        named = ((name, parameter.grad) for name, parameter in self.network.named_parameters())
        return loss, norm, dict(self.world.whole((name, grad) for name, grad in named if grad is not None))

    def decisions(self) -> list[tuple[bool, float]]:
        """Of each step whether its update was made, and the factor of the loss after it."""
        cpu, made = torch.device("cpu"), []
        self.step.scale = LossScale(LossScaleSection(initial=FIRST_SCALE, growth_steps=2), cpu)
        gate = Gate(FaultsSection(), [], cpu, scale=self.step.scale)
        for step in range(DECISIONS):
            rows, batch = self.world.rows(SEQUENCES), batch_of(self.case, step)
            part = batch if rows is None else {name: tensor[rows.start : rows.stop] for name, tensor in batch.items()}
            loss, targets = self.step.gradient(part)
            if step == SPOILT_STEP and self.world.rank == self.world.ranks - 1:
                local(list(self.network.parameters())[-1].grad).fill_(torch.inf)
            passes = gate.passes(Update(loss_sum=loss, targets=targets, grad_norm=self.step.clip()))
            if passes:
                self.optimizers.step(1.0)
            self.optimizers.zero_grad()
            made.append((passes, float(self.step.scale.factor)))
        return made

    def update(self) -> None:
        """One step of the optimizer."""
        self.optimizers.step(1.0)
        self.optimizers.zero_grad()
        self.network.after_update(self.step.summed_up, made=True)

    def weights(self) -> dict[str, Tensor]:
        """Every whole parameter, and the biases that balance experts."""
        return dict(self.world.whole(self.network.stored()))


def history(training: Training) -> Iterator[tuple[Tensor, Tensor, dict[str, Tensor]]]:
    """Yields the weights in place of gradients, what each step computed, and the weights again."""
    yield torch.ones(()), torch.ones(()), training.weights()
    for step in range(training.case.steps):
        yield training.gradient(step)
        training.update()
    yield torch.ones(()), torch.ones(()), training.weights()


History = list[tuple[Tensor, Tensor, dict[str, Tensor]]]
_REFERENCE: dict[tuple[str, int], History] = {}


def reference(case: Case, kept: Path | None) -> History:
    """Returns the history of one process; the last one stays, for the next case that asks for the same.

    ``kept``: where all stay, for other ranks in other layouts that ask for the same; None: nowhere.
    """
    key = case.alone.name, case.steps
    file = None if kept is None else kept / f"{zlib.crc32(repr(key).encode()):08x}.pt"
    if key not in _REFERENCE:
        _REFERENCE.clear()
        there = torch.load(file) if file is not None and file.is_file() else {}
        _REFERENCE[key] = there[key] if key in there else alone(case)
        if file is not None and key not in there:
            torch.save(_REFERENCE, file)
    return _REFERENCE[key]


def alone(case: Case) -> History:
    """Trains in one process, without any of the code that shares work."""
    return [
        (loss.clone(), norm.clone(), {name: tensor.detach().clone() for name, tensor in tensors.items()})
        for loss, norm, tensors in history(Training(case.alone, ALONE))
    ]


def differences(case: Case, kept: Path | None) -> Iterator[tuple[str, float]]:
    """Yields how far the layout is from one process: each quantity's name with the relative difference."""
    ranked = Training(case, world_of(mesh_for(case.parallel), batch_sequences=SEQUENCES))
    if dist.get_rank() != 0:
        for _ in history(ranked):
            pass
        return
    pairs = zip(history(ranked), reference(case, kept), strict=True)
    for step, ((loss, norm, gradients), (loss_alone, norm_alone, gradients_alone)) in enumerate(pairs, start=-1):
        if step < 0:
            same = all(torch.equal(gradients[name], whole) for name, whole in gradients_alone.items())
            yield "initial weights", 0.0 if same else 1.0
        elif compared(case, step):
            yield "loss", _relative(loss, loss_alone)
            yield "norm", _relative(norm, norm_alone)
            assert gradients.keys() == gradients_alone.keys(), gradients.keys() ^ gradients_alone.keys()
            yield from _each(step, case.steps, gradients, gradients_alone)


def disagreements(case: Case) -> Iterator[tuple[str, float]]:
    """Yields how often ranks leave out other updates than each other, or than one process where gradients overflow."""
    ranked = Training(case, world_of(mesh_for(case.parallel), batch_sequences=SEQUENCES))
    every = ranked.world.gathered(ranked.decisions())
    if dist.get_rank() != 0:
        return
    alone = Training(case.alone, ALONE).decisions()
    forced = [*range(FORCED_STEPS), SPOILT_STEP]
    assert not any(alone[step][0] for step in forced)
    yield "ranks that decide otherwise", float(sum(each != every[0] for each in every))
    yield "updates left out", float(sum(every[0][step][0] for step in forced))
    yield "factors", float(sum(every[0][step][1] != alone[step][1] for step in forced[:-1]))


def _each(step: int, steps: int, ours: dict[str, Tensor], truth: dict[str, Tensor]) -> Iterator[tuple[str, float]]:
    what = "gradient of" if step < steps else f"after {steps} steps, weight"
    whole = float(torch.stack([tensor.norm() for tensor in truth.values()]).norm())
    for name, tensor in truth.items():
        yield f"{what} {name}", _relative(ours[name], tensor, floor=FLOOR * whole)


def _relative(ours: Tensor, truth: Tensor, *, floor: float = 0.0) -> float:
    return float((ours - truth).norm() / max(float(truth.norm()), floor))


def worst(case: Case, kept: Path | None) -> dict[str, float]:
    """The largest difference of each quantity over the steps."""
    largest: dict[str, float] = {}
    for name, difference in differences(case, kept):
        largest[name] = max(largest.get(name, 0.0), difference)
    return largest


def main(rank: int, world: int, folder: str, cases: tuple[Case, ...], kept: Path | None = None) -> None:
    """Runs as one rank; the first writes ``results.json``: of each case the differences, or the error.

    ``kept``: a folder for what one process computes, where several calls ask for the same.
    """
    torch.set_num_threads(1)
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "OFF"
    with gloo(rank, world, folder):
        results: dict[str, dict[str, float]] = {}
        for case in sorted(cases, key=lambda each: (each.alone.name, each.steps)):  # which share a reference
            with flex_on_processor() if case.attention == "flex" else nullcontext():
                results[case.name] = worst(case, kept) | (dict(disagreements(case)) if case.dtype == "fp16" else {})
        if rank == 0:
            Path(folder, "results.json").write_text(json.dumps(results))
