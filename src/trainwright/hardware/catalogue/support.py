"""Whether training software runs what is asked: the model's family, the method, the division, and the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import NamedTuple, get_args

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.stacks import DEFAULT, DEFAULT_PARALLEL, OURS, offered, read_stack
from trainwright.spec.device import ClusterSpec, DeviceKind
from trainwright.spec.model import ModelSpec
from trainwright.spec.run import RunSpec
from trainwright.spec.stack import Axis, ModelPart, Stack, Support, Switch
from trainwright.spec.workload import Method, ParallelPlan, Workload, ZeroStage

AXES: tuple[Axis, ...] = get_args(Axis)
DIVIDES_MODEL: tuple[Axis, ...] = ("tp", "pp")
"""What software with a word of ``Stack.undivided`` does not do unless its user says so."""
TOGETHER = (*AXES, "zero_stage", "offload")
"""Parts of a layout of which some exclude others (``Support.stages_with``)."""
UNLIMITED = (DEFAULT, DEFAULT_PARALLEL, OURS)
"""Software that no one has, and this project's own, whose schedules its trainer knows."""
OWN_SHAPE = "transformer"
"""The family of a model that is given by its numbers alone, which nothing is known of."""
QUANTISING_KINDS: tuple[DeviceKind, ...] = ("cuda", "rocm", "xpu", "hpu", "npu", "cpu")
"""Kinds of devices with kernels for weights in four bits (bitsandbytes's supported backends; torch-npu: recall)."""
SHOWN = 8
"""Other software that an error names."""


class _Wanted(NamedTuple):
    """A switch in words: the field that sets it, to what, what that is, and what there is without it."""

    field: str
    value: str
    what: str
    instead: str


SWITCHES: Mapping[Switch, _Wanted] = {
    "paged_moments": _Wanted("paged_moments", "on", "paged moments", "moments that stay on the device"),
    "int8_moments": _Wanted("moments", "int8", "8-bit moments", "fp32 or bf16"),
    "activation_offload": _Wanted(
        "activation_offload", "on", "offload of activations", "activations that stay on the device"
    ),
    "update_in_backward": _Wanted("update_in_backward", "on", "updates in the backward pass", "updates after it"),
    "packing": _Wanted("packing", "on", "packed examples", "packing off"),
    "padding": _Wanted("packing", "off", "examples that are not packed", "packing on"),
}


class _Problem(NamedTuple):
    """One thing that software does not run: the question's fields, what was seen, and what it runs."""

    fields: str
    what: str
    seen: str
    expected: str


def trains_alone(cluster: ClusterSpec, devices: int) -> bool:
    """Returns whether software does there what it does by itself on one device alone: a GPU of CUDA's."""
    return devices == 1 and cluster.device.kind == "cuda"


def method_of(workload: Workload) -> Method:
    """Returns how a workload trains: all weights, or adapters beside whole or quantised ones."""
    if workload.adapter is None:
        return "full"
    return "lora" if workload.adapter.frozen in ("fp32", "bf16") else "qlora"


def _axes(run: RunSpec) -> tuple[Axis, ...]:
    """Returns the axes that the run's software divides such a model by, if it is asked to."""
    runs = run.stack.runs
    able = runs.axes.get(method_of(run.workload), ()) if runs.axes else AXES
    for part in _parts_of(run):
        able = tuple(axis for axis in able if axis in runs.of_models.get(part, able))
    return able


def _parts_of(run: RunSpec) -> Iterator[ModelPart]:
    model = run.model
    if run.workload.precision == "fp8":
        yield "fp8"
    if not isinstance(model, ModelSpec):
        yield "convolutions"
        return
    if model.kind != "decoder":
        yield model.kind
    has: dict[ModelPart, bool] = {
        "experts": model.experts is not None,
        "latent": model.latent is not None,
        "sinks": model.sinks,
    }
    yield from (part for part, there in has.items() if there)


def lacking_axes(run: RunSpec) -> tuple[Axis, ...]:
    """Returns the axes that the run's software does not divide it by, or not by itself where it tunes a model.

    Raises:
        RecipeError: it does not run on such devices.
    """
    for problem in _device(run):
        raise _refusal(run, problem)
    runs, method, able = run.stack.runs, method_of(run.workload), _axes(run)
    if run.tunes and runs.tuned and method == "full":
        able = runs.tuned
    elif run.tunes and run.stack.undivided:
        able = tuple(axis for axis in able if axis not in DIVIDES_MODEL)
    return tuple(axis for axis in AXES if axis not in able)


def stages_beside(runs: Support, layout: Mapping[str, object]) -> tuple[ZeroStage, ...]:
    """Returns what data-parallel ranks can share in software that runs ``layout``, as far as it says."""
    limits = [stages for part, stages in runs.stages_with.items() if _has(layout, part)]
    return tuple(stage for stage in runs.zero_stages if all(stage in stages for stages in limits))


def _has(layout: Mapping[str, object], part: str) -> bool:
    return layout.get("offload") == part or (part in AXES and layout.get(part, 1) != 1)


def plan_problems(stack: Stack, plan: ParallelPlan) -> tuple[str, ...]:
    """Returns why ``stack`` does not share states as ``plan`` says, which no part of it says by itself.

    Where one rank has all of a batch and of its sequences nothing is shared at any stage.
    """
    layout: dict[str, object] = {"offload": plan.offload, **{axis: getattr(plan, axis) for axis in AXES}}
    stages, alone = stages_beside(stack.runs, layout), plan.dp_replicate * plan.sharing == 1
    if plan.zero_stage in stages or (alone and stages):
        return ()
    shared = f"zero_stage={plan.zero_stage}, dp_replicate={plan.dp_replicate}, dp_shard={plan.dp_shard}, cp={plan.cp}"
    return (f"{stack.name} does not share states so ({shared}): {_stages_told(stack.runs, layout)}",)


def _stages_told(runs: Support, layout: Mapping[str, object]) -> str:
    """Returns ``zero_stage 3 with offload=all, 0 or 1 with pp=2``."""
    limits = {part: stages for part, stages in runs.stages_with.items() if _has(layout, part)}
    named = {part: f"{part}={layout[part]}" if part in AXES else f"offload={part}" for part in limits}
    texts = [f"{' or '.join(map(str, stages))} with {named[part]}" for part, stages in limits.items()]
    return "zero_stage " + (", ".join(texts) or " or ".join(map(str, runs.zero_stages)))


def switches_of(workload: Workload, *, packs: bool = False) -> tuple[Switch, ...]:
    """Returns the switches that a workload has; ``packs``: examples are to be packed, which no workload says."""
    on: dict[Switch, bool] = {
        "paged_moments": workload.paged_moments,
        "int8_moments": workload.moments == "int8",
        "activation_offload": workload.activation_offload,
        "update_in_backward": workload.update_in_backward,
        "packing": packs,
        "padding": workload.example_tokens is not None,
    }
    return tuple(switch for switch, is_on in on.items() if is_on)


def check(run: RunSpec, layout: Mapping[str, object], *, devices: bool = True, packs: bool = False) -> None:
    """Raises where the run's software does not run it with what ``layout`` fixes; ``devices``: on its cluster's.

    ``packs``: its examples are to be packed, which its workload does not say.

    Raises:
        RecipeError: what, and which software does.
    """
    for problem in chain(_problems(run, layout, devices=devices), _lacking_switches(run, packs=packs)):
        others = (replace(run, stack=read_stack(name)) for name in offered() if name not in UNLIMITED)
        able = [
            other.stack.name
            for other in others
            if not any(_problems(other, layout, devices=devices)) and _is_known(other, layout, packs=packs)
        ]
        raise _refusal(run, problem, able)


def _refusal(run: RunSpec, problem: _Problem, able: list[str] | None = None) -> RecipeError:
    fix = None
    if able is not None:
        more = f" and {len(able) - SHOWN} more" if len(able) > SHOWN else ""
        fix = f"software that does: {', '.join(able[:SHOWN])}{more}" if able else "no software of the catalogue does"
    return RecipeError(
        "{software} does not run {what}",
        field=problem.fields,
        seen=problem.seen,
        expected=problem.expected,
        fix=fix,
        software=run.stack.name,
        what=problem.what,
    )


def _problems(run: RunSpec, layout: Mapping[str, object], *, devices: bool) -> Iterator[_Problem]:
    runs, family, method = run.stack.runs, run.model.family, method_of(run.workload)
    if runs.families and family not in (*runs.families, OWN_SHAPE):
        yield _Problem("stack, model", "this family of models", family, f"one of {', '.join(runs.families)}")
    if runs.axes and method not in runs.axes:
        yield _Problem("stack, method", "this method", method, f"one of {', '.join(runs.axes)}")
        return
    if run.stack.name == OURS and run.workload.precision not in runs.precisions:
        yield _Problem("stack, precision", "this precision", run.workload.precision, ", ".join(runs.precisions))
    if run.stack.name == OURS and run.workload.adapter is None and run.workload.states != run.stack.states:
        yield _Problem("stack, states", "these states", run.workload.states, run.stack.states)
    able = _axes(run)
    of_model = "".join(f" with {part}" for part in _parts_of(run) if part in runs.of_models)
    for axis in AXES:
        size = layout.get(axis, 1)
        if size != 1 and axis not in able:
            divided = ", ".join(able) or "one device alone"
            yield _Problem("stack, layout", "this layout", f"{axis}={size} with {method}{of_model}", divided)
    if (moved := layout.get("offload", "none")) != "none" and runs.offloads is not None and moved not in runs.offloads:
        kept = f"{', '.join(runs.offloads)} or none" if runs.offloads else "offload=none: states stay on the device"
        yield _Problem("stack, layout", "this offload", f"offload={moved}", kept)
    stage = layout.get("zero_stage", runs.zero_stages[0])
    if stage not in runs.zero_stages:
        known = ", ".join(map(str, runs.zero_stages))
        yield _Problem("stack, layout", "this ZeRO stage", f"zero_stage={stage}", f"one of {known}")
    yield from _parts_together(run.stack, layout, method, able)
    if not devices:
        return
    if not able and run.cluster.devices > 1:
        seen = f"{run.cluster.devices} devices with {method}{of_model}"
        yield _Problem("stack, on", "on several devices", seen, "one device alone")
    yield from _device(run)


def _parts_together(
    stack: Stack, layout: Mapping[str, object], method: Method, able: tuple[Axis, ...]
) -> Iterator[_Problem]:
    """Yields parts of a layout that the software has, and not beside each other; and a schedule that it has not."""
    runs, asked = stack.runs, layout.get("zero_stage", 0)
    stages = stages_beside(runs, layout)
    if runs.zero_stages and (not stages or (asked in runs.zero_stages and asked and asked not in stages)):
        seen = ", ".join(f"{part}={value}" for part, value in layout.items() if part in TOGETHER and value != 1)
        yield _Problem("stack, layout", "these parts of a layout together", seen, _stages_told(runs, layout))
    several = "interleaved" if layout.get("virtual_stages", 1) != 1 else None
    schedule = layout.get("schedule", several)
    if stack.name in UNLIMITED or schedule is None:
        return
    seen = f"schedule={schedule}" if "schedule" in layout else f"virtual_stages={layout['virtual_stages']}"
    if "pp" not in able:
        yield _Problem("stack, layout", f"pipelines with {method}", seen, "no schedule")
    elif schedule not in stack.schedules:
        yield _Problem("stack, layout", "this pipeline schedule", seen, f"schedule={', '.join(stack.schedules)}")


def _lacking_switches(run: RunSpec, *, packs: bool) -> Iterator[_Problem]:
    """Yields the switches that the software is known to lack."""
    known = run.stack.runs.switches
    for switch in switches_of(run.workload, packs=packs):
        if known is not None and switch not in known:
            field, value, what, instead = SWITCHES[switch]
            yield _Problem(f"stack, {field}", what, value, instead)


def _is_known(run: RunSpec, layout: Mapping[str, object], *, packs: bool) -> bool:
    """Returns whether software is known to have a run's offload and switches: what is not known is not advised."""
    moves = layout.get("offload", "none") in ("none", *(run.stack.runs.offloads or ()))
    return moves and set(switches_of(run.workload, packs=packs)) <= set(run.stack.runs.switches or ())


def _device(run: RunSpec) -> Iterator[_Problem]:
    device, kinds = run.cluster.device, run.stack.runs.devices
    if method_of(run.workload) == "qlora" and device.kind not in QUANTISING_KINDS:
        seen, expected = f"{device.name} ({device.kind})", f"one of {', '.join(QUANTISING_KINDS)}"
        yield _Problem("method, on", f"quantised weights on devices of kind {device.kind}", seen, expected)
    if kinds and device.kind not in kinds:
        seen, expected = f"{device.name} ({device.kind})", f"one of {', '.join(kinds)}"
        yield _Problem("stack, on", f"on devices of kind {device.kind}", seen, expected)
