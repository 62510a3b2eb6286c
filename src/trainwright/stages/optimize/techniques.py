"""The techniques of the ladder: what each changes in a recipe, why that helps, and what it may do to the loss.

A technique is an entry of ``TECHNIQUES``. It changes keys of the recipe and nothing else, so that what the ladder keeps
is what anybody can write by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import getitem
from typing import Any

from trainwright.hardware.machine.facts import MachineFacts
from trainwright.model.kernels.refusals import GRAPH_KINDS, refusals
from trainwright.planner.counts.pieces import loss_rows
from trainwright.planner.evidence.ladder import Rung
from trainwright.spec.convnet import transformer
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.optimize import TechniqueName

Changes = Mapping[str, Any]
"""Values by dotted key of the recipe."""

NAIVE: Changes = {
    "train.precision": "fp32",
    "train.exec.micro_batch": 1,
    "train.exec.compile": False,
    "train.exec.attention": "math",
    "train.exec.update": "loop",
    "train.exec.loss_chunk_tokens": "whole",
}
"""What everybody begins with. Recomputation is left as the recipe has it: a run may not fit without."""

OF_BLOCKS = ("train.exec.micro_batch", "train.exec.attention", "train.exec.loss_chunk_tokens")
"""Those of its keys that a convolutional network leaves no choice of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """What a technique decides on.

    Attributes:
        asked: the recipe as its author wrote it.
        recipe: the configuration so far.
        plan: of that.
        planned: the plan of that with some keys changed.
        facts: of this machine.
    """

    asked: Recipe
    recipe: Recipe
    plan: Plan
    planned: Callable[[Changes], Plan]
    facts: MachineFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class Technique:
    """One rung of the ladder.

    ``changes`` returns what to try, or a sentence that says why there is nothing. ``tolerance`` is the relative
    difference of the loss that rounding may cause over some tens of updates. ``of_memory`` says that it is a means
    against too little memory, whatever it does to the speed.
    """

    why: str
    tolerance: float
    changes: Callable[[Situation], Changes | str]
    of_memory: bool = False


def _micro_batch(situation: Situation) -> Changes | str:
    """Tries the planner's choice, or twice the present one where the planner would keep that."""
    key, plan = "train.exec.micro_batch", situation.plan
    now, whole = plan.parallel.micro_batch_sequences, plan.workload.batch_sequences
    if now >= whole:
        return "a batch is one sequence" if whole == 1 else "the batch is one micro batch already"
    best = situation.planned({key: "auto"}).parallel.micro_batch_sequences
    group = _group(situation.asked)
    larger = next(size for size in range(now + group, whole + 1, group) if whole % size == 0)
    return {key: best if best > now else larger}


def _group(asked: Recipe) -> int:
    """Returns how many sequences the task never parts: pairs of which each is told from the others, else one."""
    group: int = getattr(asked.task, "group", 1)
    return group


def naive(asked: Recipe) -> Changes:
    """Returns the changes that everybody begins with; a precision that is no rung stays as it was asked for."""
    stays = asked.train.precision not in ("auto", "fp32", "bf16")
    begun = {key: value for key, value in NAIVE.items() if not (stays and key == "train.precision")}
    begun["train.exec.micro_batch"] = _group(asked)
    if asked.model.convolutions is not None:  # its batch is one pass, without attention or a vocabulary
        begun = {key: value for key, value in begun.items() if key not in OF_BLOCKS}
    return begun | ({"train.exec.cuda_graphs": False} if asked.train.exec.cuda_graphs else {})


def _bf16(situation: Situation) -> Changes | str:
    asked = situation.asked.train.precision
    if asked not in ("auto", "bf16"):
        return f"the recipe asks for {asked}"
    return {"train.precision": "bf16"}


def _compile(situation: Situation) -> Changes | str:
    if situation.facts.compiler is None and situation.plan.cluster.device.kind == "cpu":
        return "there is no C++ compiler on this machine"
    if not situation.facts.python_headers:
        return "Python's C headers are not on this machine"
    return {"train.exec.compile": True}


def _flex(situation: Situation) -> Changes | str:
    if not situation.recipe.masks_documents:
        return "documents are not masked: there is nothing to pass over"
    return _refused(situation, attention="flex") or {"train.exec.attention": "flex"}


def _cuda_graphs(situation: Situation) -> Changes | str:
    device = situation.plan.cluster.device
    if device.kind not in GRAPH_KINDS:
        return f"it is for CUDA devices: {device.name} ({device.kind}) launches none"
    return _refused(situation, cuda_graphs=True) or {"train.exec.cuda_graphs": True}


def _refused(situation: Situation, **kernels: Any) -> str:
    """Returns why the plan so far cannot be carried out with other kernels; empty where it can."""
    chosen = replace(situation.recipe.train.exec.kernels, **kernels)
    return "; ".join(each.reason for each in refusals(situation.plan, chosen))


def _loss(situation: Situation) -> Changes | str:
    if situation.asked.model.convolutions is not None:
        return "there are no logits over a vocabulary"
    tokens = situation.plan.parallel.micro_batch_sequences * situation.recipe.train.sequence_tokens
    rows = loss_rows("auto", tokens=tokens, vocabulary=transformer(situation.plan.model).vocabulary)
    if rows >= tokens:
        return f"the {tokens:,} tokens of a micro batch are one chunk"
    return {"train.exec.loss_chunk_tokens": "auto"}


def _attention(situation: Situation) -> Changes | str:
    if situation.asked.model.convolutions is not None:
        return "the network has no attention"
    return {"train.exec.attention": "sdpa"}


def _recompute(situation: Situation) -> Changes | str:
    if situation.asked.model.convolutions is not None:
        return "a second pass would count twice in batch norms"
    return {"train.recompute": "none" if situation.recipe.train.recompute == "full" else "full"}


TECHNIQUES: Mapping[TechniqueName, Technique] = {
    "micro-batch": Technique(
        why="more sequences in a pass: larger matrix products, and gradients are added up less often",
        tolerance=1e-3,
        changes=_micro_batch,
    ),
    "bf16": Technique(
        why="matrix products and activations in 16 bits, weights and sums in 32: half the traffic, faster products",
        tolerance=2e-2,
        changes=_bf16,
    ),
    "compile": Technique(
        why="torch.compile: what lies between two matrix products becomes one pass over memory",
        tolerance=1e-2,
        changes=_compile,
    ),
    "attention": Technique(
        why="torch's fused kernel: the matrix of scores is never written to memory",
        tolerance=1e-2,
        changes=_attention,
    ),
    "document-attention": Technique(
        why="flex_attention: blocks of scores that documents hide from each other are passed over",
        tolerance=1e-2,
        changes=_flex,
    ),
    "cuda-graphs": Technique(
        why="compiled code is recorded once: the host launches a graph in place of each kernel",
        tolerance=1e-3,
        changes=_cuda_graphs,
    ),
    "fused-update": Technique(
        why="AdamW in one kernel: 28 bytes move for each parameter in place of 80",
        tolerance=1e-3,
        changes=lambda situation: {"train.exec.update": "fused"},
    ),
    "chunked-loss": Technique(
        why="logits of some hundreds of tokens at a time: they take less memory, and stay in a cache where it is large",
        tolerance=1e-2,
        changes=_loss,
        of_memory=True,
    ),
    "recompute": Technique(
        why="activations are computed again in the backward pass: less memory for about a third more products",
        tolerance=1e-3,
        changes=_recompute,
        of_memory=True,
    ),
}
"""In the order in which they are tried."""


def decided(asked: Recipe, rung: Rung, now: Changes) -> Changes:
    """Returns what a technique's measurements put in place of the recipe's own values.

    One that is kept puts its own. One that is worse puts what it was compared with where the recipe has it, or leaves
    the choice to the planner. One that was not tried, or that nobody can tell from noise, puts nothing.

    Args:
        asked: the recipe as its author wrote it.
        rung: the technique.
        now: the configuration that it was compared with, by key.
    """
    if rung.kept or not rung.decided:
        return rung.changes if rung.kept else {}
    document = asked.model_dump(mode="json", by_alias=True)
    written = {key: reduce(getitem, key.split("."), document) for key in rung.changes}
    return {key: now[key] for key, own in written.items() if key in now and own in ("auto", rung.changes[key])}


def with_changes(recipe: Recipe, changes: Changes) -> Recipe:
    """Returns the recipe with other values for some keys, written as its author did else, without a list of steps."""
    document = recipe.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"stages"})
    for key, value in changes.items():
        *sections, last = key.split(".")
        place = document
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    return Recipe.model_validate(document)
