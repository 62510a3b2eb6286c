"""Whether training software runs what is asked: the model's family, the method, the division, and the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, get_args

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.stacks import DEFAULT, DEFAULT_PARALLEL, OURS, offered, read_stack
from trainwright.spec.device import DeviceKind
from trainwright.spec.run import RunSpec
from trainwright.spec.stack import Axis
from trainwright.spec.workload import Method, Workload

AXES: tuple[Axis, ...] = get_args(Axis)
UNLIMITED = (DEFAULT, DEFAULT_PARALLEL, OURS)
"""Software that no one has, and this project's own, which plans more than it executes."""
OWN_SHAPE = "transformer"
"""The family of a model that is given by its numbers alone, which nothing is known of."""
QUANTISED: tuple[DeviceKind, ...] = ("cuda", "rocm", "xpu", "hpu", "npu", "cpu")
"""Kinds of devices with kernels for weights in four bits (bitsandbytes's supported backends; torch-npu: recall)."""
SHOWN = 8
"""Other software that an error names."""


class _Problem(NamedTuple):
    """One thing that software does not run: the question's fields, what was seen, and what it runs."""

    fields: str
    what: str
    seen: str
    expected: str


def method_of(workload: Workload) -> Method:
    """Returns how a workload trains: all weights, or adapters beside whole or quantised ones."""
    if workload.adapter is None:
        return "full"
    return "lora" if workload.adapter.frozen in ("fp32", "bf16") else "qlora"


def lacking_axes(run: RunSpec) -> tuple[Axis, ...]:
    """Returns the axes that the run's software does not divide it by.

    Raises:
        RecipeError: it does not run on such devices.
    """
    for problem in _device(run):
        raise _refusal(run, problem)
    axes, method = run.stack.runs.axes, method_of(run.workload)
    return tuple(axis for axis in AXES if axes and axis not in axes.get(method, ()))


def check(run: RunSpec, layout: Mapping[str, object], *, devices: bool = True) -> None:
    """Raises where the run's software does not run it with what ``layout`` fixes; ``devices``: on its cluster's.

    Raises:
        RecipeError: what, and which software does.
    """
    for problem in _problems(run, layout, devices=devices):
        others = (replace(run, stack=read_stack(name)) for name in offered() if name not in UNLIMITED)
        able = [other.stack.name for other in others if not any(_problems(other, layout, devices=devices))]
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
    # Of software that is not named nobody knows what it cannot do: such layouts are not chosen, and not refused.
    for axis in AXES if run.stack.name not in UNLIMITED else ():
        size = layout.get(axis, 1)
        if runs.axes and size != 1 and axis not in runs.axes[method]:
            divided = ", ".join(runs.axes[method]) or "one device alone"
            yield _Problem("stack, layout", "this layout", f"{axis}={size} with {method}", divided)
    stage = layout.get("zero_stage", runs.zero_stages[0])
    if stage not in runs.zero_stages:
        known = ", ".join(map(str, runs.zero_stages))
        yield _Problem("stack, layout", "this ZeRO stage", f"zero_stage={stage}", f"one of {known}")
    if not devices:
        return
    if runs.axes and not runs.axes[method] and run.cluster.devices > 1:
        seen = f"{run.cluster.devices} devices with {method}"
        yield _Problem("stack, on", "on several devices", seen, "one device alone")
    yield from _device(run)


def _device(run: RunSpec) -> Iterator[_Problem]:
    device, kinds = run.cluster.device, run.stack.runs.devices
    if method_of(run.workload) == "qlora" and device.kind not in QUANTISED:
        seen, expected = f"{device.name} ({device.kind})", f"one of {', '.join(QUANTISED)}"
        yield _Problem("method, on", f"quantised weights on devices of kind {device.kind}", seen, expected)
    if kinds and device.kind not in kinds:
        seen, expected = f"{device.name} ({device.kind})", f"one of {', '.join(kinds)}"
        yield _Problem("stack, on", f"on devices of kind {device.kind}", seen, expected)
