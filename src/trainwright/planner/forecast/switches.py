"""Switches that move bytes to host memory: whether a run can have them, and what they come to in a plan."""

from __future__ import annotations

import math
from collections.abc import Mapping

from trainwright.core.errors import RecipeError
from trainwright.core.units import format_bytes
from trainwright.planner.counts.lengths import padded_lengths
from trainwright.planner.forecast.forecast import Forecast
from trainwright.planner.forecast.host_link import doubt
from trainwright.planner.forecast.memory.moments import pass_bytes
from trainwright.planner.forecast.memory.states import case_of
from trainwright.spec.plan import Assumption, Origin
from trainwright.spec.run import RunSpec
from trainwright.spec.stack import STASH

OFFLOADED_KEY = "offload_unmeasured"
PAGED = "bitsandbytes-foundation/bitsandbytes@95f9af30:bitsandbytes/optim/optimizer.py"
COPIED = "pytorch/torchtune@bd2a0fc7c:torchtune/training/_activation_offloading.py"


def check_switches(run: RunSpec, layout: Mapping[str, object], *, devices: bool = True) -> None:
    """Refuses what nothing can be moved for; ``devices``: on its cluster's, too.

    Raises:
        RecipeError: paged moments of another optimizer than AdamW, beside an offloaded optimizer, or without CUDA;
            offload of activations without a bus; offload of frozen weights where none are frozen.
    """
    workload, offload = run.workload, layout.get("offload", "none")
    if offload == "frozen" and workload.adapter is None:
        fix = "set `method` to lora or qlora"
        raise RecipeError("no weights are frozen", field="layout", seen="offload=frozen", expected="adapters", fix=fix)
    pages, sends = workload.paged_moments, workload.activation_offload
    if not (pages or sends):
        return
    field = "paged_moments" if pages else "activation_offload"
    if not run.model.is_divisible:
        raise RecipeError("this is for transformers", field=field, seen=run.model.family)
    if pages and workload.optimizer != "adamw":
        raise RecipeError("only AdamW's moments are paged", field=field, seen=workload.optimizer, expected="adamw")
    if pages and offload not in ("none", "frozen"):
        what, expected = "the optimizer's state is in host memory already", "offload=none or frozen"
        raise RecipeError(what, field="layout", seen=f"offload={offload}", expected=expected)
    device = run.cluster.device
    if devices and pages and device.kind != "cuda":
        what, expected = "unified memory that is paged is CUDA's alone", "a device of kind cuda"
        raise RecipeError(what, field="paged_moments", seen=f"{device.name} ({device.kind})", expected=expected)
    if devices and run.cluster.node.bus is None:
        what = "this device has no memory beside the host's that something could leave"
        raise RecipeError(what, field=field, seen=device.name, expected="a device on a bus")


def moved_assumptions(forecast: Forecast, *, by_habit: bool = False) -> list[Assumption]:
    """Returns what the switches of one layout come to: bytes that leave the device, and how that is counted.

    ``by_habit``: activations are offloaded because the software does so by itself.
    """
    run, memory, notes = forecast.run, forecast.memory, []
    bus = run.cluster.node.bus
    rate = "" if bus is None else f" over {bus.name} at {bus.bytes_per_s / 1e9:.3g} GB/s"
    if run.workload.paged_moments:
        there, gone = float(memory.paged[0]), float(memory.evicted_bytes(run.cluster.device)[0])
        value = f"{format_bytes(gone)} of {format_bytes(there)} have no room on the device"
        source = f"in and out once an update{rate}, at the peak's room; {PAGED}"
        notes.append(Assumption("paged moments", value, "", "given", source, key="paged_moments"))
    if run.workload.activation_offload:
        case = case_of(run.transformer, run.workload, forecast.layouts, run.stack.memory)
        value = f"{format_bytes(float(pass_bytes(case).gone.max()))} of a rank in host memory"
        source = f"to the host and back behind the passes{rate}, the last {STASH} tensors stay; {COPIED}"
        origin: Origin = "default" if by_habit else "given"
        notes.append(Assumption("activations", value, "", origin, source, key="activation_offload"))
    if deviation := doubt(run, forecast.layouts):
        value = f"in no measured run: the range is wider, by a factor of {math.exp(deviation):.2f} (one deviation)"
        source = "as on devices that no published run is on; copies slow the kernels beside them as FSDP's gathers do"
        notes.append(Assumption("speed with offload", value, "", "default", source, key=OFFLOADED_KEY))
    if run.workload.example_tokens is not None:
        notes.append(_padding(forecast))
    return notes


def _padding(forecast: Forecast) -> Assumption:
    """Returns the share of what is computed that is padding."""
    work, layouts = forecast.run.workload, forecast.layouts
    (padded, *_), (slowest, *_) = padded_lengths(work, layouts)
    mean = work.example_tokens or 0
    many, ranks = f"{layouts.micro_batch[0]:,.0f}", int(layouts.data_parallel[0])
    source = f"the longest of a micro batch of {many} has {padded:,.0f} tokens, an example {mean:,} in the mean"
    if ranks > 1:
        source += f"; the longest of {ranks} ranks' has {slowest:,.0f}, for which the others wait"
    return Assumption("padding", f"{1 - mean / padded:.0%} of what is computed", "", "default", source, key="padding")
