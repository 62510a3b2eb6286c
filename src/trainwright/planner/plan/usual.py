"""What the software of a question does by itself, where nobody says otherwise: how it shares, recomputes, batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

from trainwright.hardware.catalogue.stacks import DEFAULT
from trainwright.hardware.catalogue.support import trains_alone
from trainwright.planner.counts.layouts import FixedLayout
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.sizes import sequence_of
from trainwright.spec.device import ClusterSpec
from trainwright.spec.plan import Assumption
from trainwright.spec.stack import Habit, Stack, Usual
from trainwright.spec.workload import Offload, Recompute, Workload, ZeroStage

USUAL = "usual_"
"""How keys of assumptions about what software does by itself begin."""
NAMES: dict[Habit, str] = {
    "recompute": "recomputation",
    "packing": "packing of examples",
    "offload": "offload",
    "activation_offload": "offload of activations",
    "zero_stage": "sharing of data-parallel ranks",
    "micro_batch": "sequences of a micro batch",
    "batch": "sequences of a step",
    "update_in_backward": "updates in the backward pass",
    "paged_moments": "paged moments",
    "moments": "moments",
}
MESH = ("dp_replicate", "dp_shard", "zero_stage")
"""Parts of a layout that say how data-parallel ranks share."""
Note = Callable[[Assumption], None]


def as_usual(
    question: Question, software: Stack, machines: ClusterSpec, note: Note, *, placed: bool
) -> tuple[Question, FixedLayout]:
    """Returns the question, and the layout, with what its software does of habits that are left open.

    Args:
        question: what the user says, which stands.
        software: the question's.
        machines: the question's; activations stay where no bus leads to the host's memory.
        note: takes an assumption for each habit that is taken over, with the file and line that have it.
        placed: as ``scenario_of`` has it: where it is False, the machines are some of many.
    """
    layout = FixedLayout()

    def taken(habit: Habit, usual: Usual, value: str) -> None:
        source = usual.source if software.name == DEFAULT else f"software {software.name!r} default: {usual.source}"
        note(Assumption(NAMES[habit], value, "", "default", source, key=f"{USUAL}{habit}"))

    if not question.model.is_divisible:
        return question, layout
    recompute = _recompute(question, software)
    if recompute is not None and recompute.where == "tuned_shards":
        layout["recompute_shards"] = True
        taken("recompute", recompute, f"{recompute.value} where ranks share weights")
    elif recompute is not None:
        layout["recompute"] = cast("Recompute", recompute.value)
        taken("recompute", recompute, recompute.value)
    offload = software.usual.get("offload")
    if offload is not None and "offload" not in question.layout:
        layout["offload"] = cast("Offload", offload.value)
        taken("offload", offload, offload.value)
    packing = software.usual.get("packing")
    if packing is not None and question.packing is None and _has_examples(question):
        question = replace(question, packing="on" if packing.value == "on" else "off")
        taken("packing", packing, packing.value)
    stage = _habit(question, software, "zero_stage")
    if stage is not None and not question.layout.keys() & set(MESH) and (machines.devices > 1 or not placed):
        layout["usual_zero_stage"] = cast("ZeroStage", int(stage.value))
        taken("zero_stage", stage, f"ZeRO-{stage.value}")
    for habit, usual, changed in _alone(question, software, machines, placed=placed):
        question = replace(question, **changed)
        taken(habit, usual, usual.value)
    micro = _habit(question, software, "micro_batch")
    if micro is not None and "micro_batch" not in question.layout and not question.update_in_backward:
        layout["usual_micro_batch"] = int(micro.value)
        taken("micro_batch", micro, micro.value)
    moves = software.usual.get("activation_offload")
    if moves is not None and question.activation_offload is None and _offloads(question, software, moves):
        reachable = not placed or machines.node.bus is not None
        question = replace(question, activation_offload=reachable)
        if reachable:
            taken("activation_offload", moves, moves.value)
    return question, layout


def habits(assumptions: Iterable[Assumption], software: Stack) -> str:
    """Returns what software does by itself in one line; empty where nothing of it was taken over."""
    found = [f"{each.name} {each.value}" for each in assumptions if each.key.startswith(USUAL)]
    who = "most software for tuning" if software.name == DEFAULT else software.name
    return f"as {who} does by default: {', '.join(found)}" if found else ""


def alone_fields(assumptions: Iterable[Assumption], workload: Workload) -> dict[str, str | bool]:
    """Returns the fields of a question that ask for what software does by itself on one device alone."""
    habits = {each.key.removeprefix(USUAL): each.value for each in assumptions if each.key.startswith(USUAL)}
    switches = ("update_in_backward", "paged_moments")
    fields: dict[str, str | bool] = {name: habits[name] == "on" for name in switches if name in habits}
    if "moments" in habits:
        fields["moments"] = str(habits["moments"])
    if "batch" in habits:
        fields["batch_tokens"] = str(workload.batch_tokens)
    return fields


def _habit(question: Question, software: Stack, habit: Habit) -> Usual | None:
    """Returns a habit of tuning, where the software has it with the question's method."""
    usual = software.usual.get(habit)
    if usual is None or not question.tunes or (usual.methods and question.method not in usual.methods):
        return None
    return usual


def _alone(
    question: Question, software: Stack, machines: ClusterSpec, *, placed: bool
) -> Iterator[tuple[Habit, Usual, dict[str, Any]]]:
    """Yields habits of one device with the fields that they set, each where nobody says it otherwise.

    Updates in the backward pass need steps of one micro batch: where somebody says a larger batch than the software's,
    they are not taken; and none of these is with an optimizer that has no such moments.
    """
    plain = question.optimizer in (None, "adamw") and question.workload is None
    if not (placed and plain and trains_alone(machines, machines.devices)):
        return
    sequence, own = sequence_of(question, lambda _: None), _habit(question, software, "batch")
    is_own = question.batch_tokens is None or (own is not None and question.batch_tokens <= int(own.value) * sequence)
    fields: dict[Habit, tuple[object, Callable[[str], object]]] = {
        "batch": (question.batch_tokens, lambda value: int(value) * sequence),
        "update_in_backward": (question.update_in_backward if is_own else False, lambda value: value == "on"),
        "paged_moments": (question.paged_moments, lambda value: value == "on"),
        "moments": (question.moments, str),
    }
    for habit, (said, read) in fields.items():
        usual = _habit(question, software, habit)
        if usual is not None and said is None:
            yield habit, usual, {"batch_tokens" if habit == "batch" else habit: read(usual.value)}


def _recompute(question: Question, software: Stack) -> Usual | None:
    """Returns the software's habit, where neither recomputation nor a part of the layout says otherwise."""
    usual = software.usual.get("recompute")
    if usual is None or question.recompute is not None or "recompute" in question.layout:
        return None
    return usual if question.tunes or usual.where == "everywhere" else None


def _has_examples(question: Question) -> bool:
    """Returns whether texts of many lengths are tuned on, and not told apart, which pads them anyway."""
    return question.tunes and question.task is None and not question.model.sees_images


def _offloads(question: Question, software: Stack, usual: Usual) -> bool:
    """Returns whether activations are offloaded: it is a part of recomputation, so that it goes where that is off."""
    asked = question.recompute or question.layout.get("recompute")
    habit = software.usual.get("recompute")
    recomputes = asked is None or (habit is not None and asked == habit.value)
    return recomputes and sequence_of(question, lambda _: None) >= usual.from_tokens
