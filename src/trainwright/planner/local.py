"""This machine as the planner sees it: from the doctor's record, or from facts and stated defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from trainwright.core.errors import MachineError
from trainwright.hardware.catalogue import find_device
from trainwright.hardware.machine import MachineFacts
from trainwright.hardware.probes import Probes
from trainwright.hardware.record import Machine
from trainwright.planner.activations import MicroBatch, block_bytes
from trainwright.planner.estimate import Surroundings
from trainwright.planner.layout import Device
from trainwright.planner.memory import Process, process_from
from trainwright.planner.rates import COMPILED_REST, Datasheet, Probed
from trainwright.spec.device import ClusterSpec, DeviceSpec, NodeSpec
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import Assumption, Origin

MEMORY_SHARE = 0.95
"""Of the memory that is available now, so much may be planned for: other programs breathe."""
MODEL_ERROR = (0.87, 1.15)
"""The range around an estimate that rests on probes: what the step-time model has been seen to miss by."""
UNPROBED_ERROR = (0.4, 3.0)
"""The same where nothing was measured."""
NEAR_TOKENS = 2048
"""Memory probes are matched with the model's blocks at about so many tokens, which is what the doctor probes."""
CPU_CLOCK_HZ = 2.5e9
CPU_BYTES_PER_S = 10e9
"""Per core; what one core of a server streams."""
DEFAULT_PROCESS = Process(baseline_bytes=400 << 20, transient=2.0, waste=0.3)
DISK_BYTES_PER_S = 200e6
COMPILE_S, COMPILE_PER_LAYER_S = 15.0, 1.5
COMPILE_BYTES = 250 << 20
COMPILE_WORTH_S = 600.0
"""torch.compile is worth its start-up in runs that are predicted to take longer than this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Local:
    """One device of this machine, ready to be planned for."""

    device: Device
    cluster: ClusterSpec
    peak_flops_per_s: dict[str, float]
    surroundings: Surroundings
    can_compile: bool
    threads: int | None
    assumptions: tuple[Assumption, ...]


def local(machine: Machine, model: ModelSpec, *, wanted: str, tokens: int, compiled: bool) -> Local:
    """The device that training will use here.

    Args:
        machine: the doctor's record.
        model: whose blocks the memory probes are matched with.
        wanted: ``auto``, ``cpu`` or ``cuda``.
        tokens: of one sequence, for the same match.
        compiled: whether torch.compile will be used.

    Raises:
        MachineError: CUDA is wanted and the machine has none that torch can use.
    """
    probes = machine.probes
    if wanted == "cuda" and (probes is None or probes.device_kind != "cuda") and not machine.facts.gpus:
        raise MachineError("no CUDA device here", where="train.exec.device", fix="set train.exec.device=cpu, or auto")
    if probes is not None and wanted in ("auto", probes.device_kind):
        return _probed(machine, probes, model, tokens=tokens, compiled=compiled)
    return _unprobed(machine.facts, compiled=compiled, wanted=wanted)


def _probed(machine: Machine, probes: Probes, model: ModelSpec, *, tokens: int, compiled: bool) -> Local:
    facts = machine.facts
    cuda = probes.device_kind == "cuda"
    known = find_device(probes.device_name) if cuda else None
    rates = {dtype: probes.peak_flops_per_s(dtype) or 0.0 for dtype in probes.dtypes()}
    peaks = rates if known is None else {dtype: known.flops_per_s.get(dtype, rates[dtype]) for dtype in rates}
    free = facts.gpus[0].memory_free_bytes if cuda and facts.gpus else facts.memory_available_bytes
    spec = DeviceSpec(
        name=probes.device_name, kind=probes.device_kind, vendor="" if known is None else known.vendor,
        memory_bytes=facts.gpus[0].memory_bytes if cuda and facts.gpus else facts.memory_bytes,
        bytes_per_s=probes.flat()["memory_bytes_per_s"], flops_per_s=peaks, source="measured here",
    )  # fmt: skip
    batch = MicroBatch(
        sequences=max(1, NEAR_TOKENS // tokens), sequence_tokens=tokens, dtype=probes.growth[0].dtype,
        device_kind=probes.device_kind,
    )  # fmt: skip
    process = process_from(probes.growth, probes.baseline_bytes, near_bytes=block_bytes(model, batch))
    if cuda:
        process = replace(process, waste=0.0)
    measured = "trainwright doctor"
    assumptions = [
        *(
            _assume(f"matrix products, {dtype}", rate, "FLOP/s", "probed", f"{measured}: fastest shape")
            for dtype, rate in rates.items()
        ),
        _assume("memory bandwidth", spec.bytes_per_s, "bytes/s", "probed", f"{measured}: x + y into fresh memory"),
        _assume("process before the model", probes.baseline_bytes, "bytes", "probed", measured),
        _assume("temporaries of a pass", process.transient, "x what one block saves", "probed", measured),
        _assume("memory that malloc cannot give back", process.waste, "x what is saved", "probed", measured),
        _assume("range of the time", f"{MODEL_ERROR[0]:g} to {MODEL_ERROR[1]:g}", "x", "default", "docs/en/planner.md"),
    ]
    disk = probes.disk
    return Local(
        device=Device(
            kind=probes.device_kind, rates=Probed(probes=probes, compiled=compiled),
            memory_available_bytes=MEMORY_SHARE * free, process=_with_compiler(process, compiled), compiled=compiled,
        ),
        cluster=ClusterSpec(
            node=NodeSpec(device=spec, devices=1, host_memory_bytes=facts.memory_bytes, cpu_cores=facts.cores),
            probes=probes.flat(),
        ),
        peak_flops_per_s=peaks,
        surroundings=Surroundings(
            checkpoint_bytes_per_s=1 / ((disk.write_s + disk.digest_s) / disk.size_bytes),
            checkpoint_every_s=0.0, compile_s=_compile_s(model, compiled), spread=MODEL_ERROR,
        ),
        can_compile=facts.compiler is not None and facts.python_headers,
        threads=None if cuda else facts.cores,
        assumptions=(*assumptions, *_compile_assumptions(compiled)),
    )  # fmt: skip


def _unprobed(facts: MachineFacts, *, compiled: bool, wanted: str) -> Local:
    gpu = facts.gpus[0] if facts.gpus and wanted != "cpu" else None
    known = find_device(gpu.name) if gpu else None
    if gpu and known:
        spec = replace(known, memory_bytes=gpu.memory_bytes)
        origin: Origin = "catalog"
        source = known.source
        available, process = gpu.memory_free_bytes, Process(baseline_bytes=600 << 20, transient=1.0, waste=0.0)
    else:
        # Two fused multiply-adds a cycle on 8 (AVX2) or 16 (AVX-512) lanes; half of that is what a product reaches.
        lanes = 16 if "avx512f" in facts.cpu_features else 8
        rate = facts.cores * CPU_CLOCK_HZ * 2 * 2 * lanes / 2
        spec = DeviceSpec(
            name=facts.cpu, kind="cpu", vendor="", memory_bytes=facts.memory_bytes,
            bytes_per_s=CPU_BYTES_PER_S * facts.cores,
            flops_per_s={"fp32": rate, "bf16": rate * (4 if "amx_bf16" in facts.cpu_features else 0.5)},
        )  # fmt: skip
        origin = "default"
        source = "lanes x cores x 2.5 GHz, half of the peak; nothing was measured"
        available, process = facts.memory_available_bytes, DEFAULT_PROCESS
    assumptions = [
        *(
            _assume(f"matrix products, {dtype}", rate, "FLOP/s", origin, source)
            for dtype, rate in spec.flops_per_s.items()
        ),
        _assume("memory bandwidth", spec.bytes_per_s, "bytes/s", origin, "datasheet, or 10 GB/s a core"),
        _assume("process before the model", process.baseline_bytes, "bytes", "default", "a process with torch loaded"),
        _assume(
            "range of the time",
            f"{UNPROBED_ERROR[0]:g} to {UNPROBED_ERROR[1]:g}",
            "x",
            "default",
            "nothing was measured",
        ),
    ]
    return Local(
        device=Device(
            kind=spec.kind, rates=Datasheet(device=spec), memory_available_bytes=MEMORY_SHARE * available,
            process=_with_compiler(process, compiled), compiled=compiled,
        ),
        cluster=ClusterSpec(node=NodeSpec(device=spec, devices=1, host_memory_bytes=facts.memory_bytes,
        cpu_cores=facts.cores)),
        peak_flops_per_s=dict(spec.flops_per_s),
        surroundings=Surroundings(
            checkpoint_bytes_per_s=DISK_BYTES_PER_S, checkpoint_every_s=0.0,
            compile_s=COMPILE_S if compiled else 0.0, spread=UNPROBED_ERROR,
        ),
        can_compile=facts.compiler is not None and facts.python_headers,
        threads=facts.cores if spec.kind == "cpu" else None,
        assumptions=(*assumptions, *_compile_assumptions(compiled)),
    )  # fmt: skip


def _with_compiler(process: Process, compiled: bool) -> Process:
    return replace(process, baseline_bytes=process.baseline_bytes + (COMPILE_BYTES if compiled else 0))


def _compile_s(model: ModelSpec, compiled: bool) -> float:
    return COMPILE_S + COMPILE_PER_LAYER_S * model.layers if compiled else 0.0


def _compile_assumptions(compiled: bool) -> tuple[Assumption, ...]:
    if not compiled:
        return ()
    source = "docs/lab/log.md: one machine"
    return (
        _assume("torch.compile: time between products left", COMPILED_REST, "x", "default", source),
        _assume("torch.compile: start-up", COMPILE_S, "s, and 1.5 s a layer", "default", source),
        _assume("torch.compile: memory", COMPILE_BYTES, "bytes", "default", source),
    )


def _assume(name: str, value: float | str, unit: str, origin: Origin, source: str) -> Assumption:
    return Assumption(
        name=name,
        value=value if isinstance(value, str) else _rounded(float(value)),
        unit=unit,
        origin=origin,
        source=source,
    )


def _rounded(value: float) -> float:
    """Four significant digits: a measurement says no more."""
    return round(value, 3 - math.floor(math.log10(abs(value)))) if value else 0.0
