"""This machine as a cluster of one device: from the doctor's record, or from facts and stated defaults.

Rates and memory that were measured hold on every device of a larger cluster of the same node too (``nodes.several``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from trainwright.core.errors import MachineError
from trainwright.core.frozen import dataclass
from trainwright.hardware.catalogue.accelerators import accelerator
from trainwright.hardware.catalogue.devices import find_device
from trainwright.hardware.catalogue.runs import RunNumbers
from trainwright.hardware.machine.facts import MachineFacts
from trainwright.hardware.machine.nvidia import Gpu
from trainwright.hardware.machine.probes import Probes
from trainwright.hardware.machine.processor_peak import processor_peak
from trainwright.hardware.machine.record import Machine
from trainwright.planner.cost.assumptions import OTHER_PROGRAMS, of_accelerator
from trainwright.planner.cost.run_cost import RunSettings
from trainwright.planner.counts.process import COMPILE_BYTES, Process
from trainwright.planner.rates.catalogue import Catalogue
from trainwright.planner.rates.precisions import OtherPrecision
from trainwright.planner.rates.probed import COMPILED_REST, Probed
from trainwright.planner.rates.threads import OnThreads
from trainwright.spec.device import ClusterSpec, DeviceSpec, NodeSpec
from trainwright.spec.plan import INTERVAL, Assumption, Origin
from trainwright.spec.run import RunSpec

UNPROBED_ERROR = (0.55, 1.8)
"""The range of the time where nothing was measured, for rates that are known exactly; the bounds of a processor's rates
widen it."""
DEFAULT_PROCESS = Process(baseline_bytes=400 << 20, transient=2.0, waste=0.3)
UNPROBED_DISK_BYTES_PER_S = 200e6
COMPILE_S, COMPILE_PER_LAYER_S = 15.0, 1.5
COMPILE_WORTH_S = 600.0
"""torch.compile is worth its start-up in runs that are predicted to take longer than this."""
SAME_SPEED = 1.02
"""Steps within so much of the fastest one count as equally fast: less than equal machines differ by."""
DOCTOR = "trainwright doctor"
ONE_MACHINE = "docs/lab/log.md: one machine"


@dataclass(frozen=True, kw_only=True, slots=True)
class Here:
    """One device of this machine, how fast it is, and what that rests on.

    ``threads`` are those of a CPU's process, None: as many as torch takes. ``probes`` are what the rates were measured
    in, None where they are assumed.
    """

    facts: MachineFacts
    cluster: ClusterSpec
    source: Catalogue | Probed | OnThreads | OtherPrecision
    threads: int | None
    rates: tuple[Assumption, ...]
    probes: Probes | None = None
    checkpoint_every_s: float = 0.0

    @property
    def settings(self) -> RunSettings:
        """How a run on this one device is operated: nothing fails, and the last step writes a checkpoint."""
        interval_s = self.checkpoint_every_s or math.inf
        return RunSettings(checkpoint_interval_s=interval_s, device_mtbf_s=math.inf, recovery_s=0.0, attended=True)

    def numbers(self, layers: int, *, compiled: bool) -> RunNumbers:
        """Returns what a run on it takes beyond its steps: torch.compile's start-up, and no cluster's overhead."""
        start_s = COMPILE_S + COMPILE_PER_LAYER_S * layers if compiled else 0.0
        nothing = {"overhead": 0.0, "overhead_days": 1.0, "overhead_devices": 1.0, "spread": 0.0}
        return RunNumbers(**nothing, start_s=start_s, source=ONE_MACHINE, recorded="")

    def assumptions(self, run: RunSpec, *, compiled: bool) -> tuple[Assumption, ...]:
        """Returns every number of the machine that a plan of the run rests on."""
        return (*self.rates, *_of_process(self.source.process(run), self.probes), *(_OF_COMPILER if compiled else ()))


def this_machine(
    machine: Machine, *, wanted: str = "auto", threads: int | Literal["auto"] = "auto", checkpoint_every_s: float = 0.0
) -> Here:
    """Returns the device that training will use here.

    Args:
        machine: the doctor's record.
        wanted: as ``train.exec.device``.
        threads: of the process; ``auto``: one for each core where a CPU computes.
        checkpoint_every_s: time between checkpoints; 0: the last step alone writes one.

    Raises:
        MachineError: a kind of device is wanted, and nobody has seen one here.
    """
    here = replace(_all_of(machine, wanted=wanted), checkpoint_every_s=checkpoint_every_s)
    return here if threads == "auto" else _on_threads(here, threads)


def _all_of(machine: Machine, *, wanted: str) -> Here:
    facts, probes = machine.facts, machine.probes
    measured = None if probes is None else probes.device_kind
    if wanted not in ("auto", "cpu", measured) and not (wanted == "cuda" and facts.gpus):
        record = accelerator(wanted)
        lacks = "" if record.installed else f", and {record.package} is not installed"
        raise MachineError(
            "no {title} here",
            where="train.exec.device",
            seen=f"{measured or 'nothing'} measured{lacks}",
            fix=f"set train.exec.device=cpu, or auto; where there is one: {record.install}; then {DOCTOR} --fresh",
            title=record.title,
        )
    if probes is not None and wanted in ("auto", probes.device_kind):
        return _probed(facts, probes)
    gpu = facts.gpus[0] if facts.gpus and wanted != "cpu" else None
    known = find_device(gpu.name) if gpu else None
    return _unprobed_processor(facts) if gpu is None or known is None else _unprobed_gpu(facts, gpu, known)


def _on_threads(here: Here, threads: int) -> Here:
    """Returns the machine with a process of so many threads: nobody measured how much slower fewer or more are."""
    if here.threads in (None, threads):
        return replace(here, threads=threads)
    fewer = here.facts.cores / threads
    text = f"more than the {here.facts.cores} cores: no faster, and the range holds a loss in proportion"
    if fewer > 1:
        text = f"of {here.facts.cores} cores; all rates in proportion; the range holds no loss at all"
    note = _assume("threads", threads, "", "recipe", text, key="threads")
    source = OnThreads(source=here.source, slower=max(1.0, fewer), doubt=max(fewer, 1 / fewer))
    return replace(here, threads=threads, source=source, rates=(*here.rates, note))


def _probed(facts: MachineFacts, probes: Probes) -> Here:
    on_cpu = probes.device_kind == "cpu"
    gpu = facts.gpus[0] if probes.device_kind == "cuda" and facts.gpus else None
    known = None if on_cpu else find_device(probes.device_name)
    rates = {dtype: probes.peak_flops_per_s(dtype) or 0.0 for dtype in probes.dtypes()}
    visible = facts.memory_available_bytes if probes.memory_bytes is None else probes.memory_bytes
    device = DeviceSpec(
        name=probes.device_name,
        kind=probes.device_kind,
        vendor="" if known is None else known.vendor,
        memory_bytes=probes.memory_bytes or facts.memory_bytes if gpu is None else gpu.memory_bytes,
        visible_bytes=visible if gpu is None else gpu.memory_free_bytes,
        bytes_per_s=probes.flat()["memory_bytes_per_s"],
        flops_per_s=rates if known is None else {dtype: known.flops_per_s.get(dtype, rates[dtype]) for dtype in rates},
        source="measured here",
    )
    disk = probes.disk
    cluster = _alone(device, facts, disk_bytes_per_s=disk.size_bytes / (disk.write_s + disk.digest_s))
    fastest, fresh = f"{DOCTOR}: fastest shape", f"{DOCTOR}: x + y into fresh memory"
    assumptions = _rates(rates, device.bytes_per_s, "probed", fastest, fresh)
    if probes.doubtful:
        name, busy = "other programs while measuring", f"{probes.cpu_busy:.0%}"
        text = f"rates may be too low, and the range is wide; measure again on a quiet machine: {DOCTOR}"
        assumptions.append(_assume(name, busy, "of the processors", "probed", text, key=OTHER_PROGRAMS))
    return Here(
        facts=facts,
        cluster=cluster,
        source=Probed(probes=probes),
        threads=facts.cores if on_cpu else None,
        rates=(*assumptions, *of_accelerator(device)),
        probes=probes,
    )


def _unprobed_processor(facts: MachineFacts) -> Here:
    peak = processor_peak(facts)
    device = DeviceSpec(
        name=facts.cpu,
        kind="cpu",
        vendor="",
        memory_bytes=facts.memory_bytes,
        visible_bytes=facts.memory_available_bytes,
        bytes_per_s=peak.bytes_per_s.mid,
        flops_per_s={dtype: rate.mid for dtype, rate in peak.flops_per_s.items()},
    )
    deviation = math.hypot(_deviation(UNPROBED_ERROR), _deviation(peak.spread))
    source = Catalogue(assumed_process=DEFAULT_PROCESS, deviation=deviation)
    return _unprobed(facts, device, source, "default", peak.source)


def _unprobed_gpu(facts: MachineFacts, gpu: Gpu, known: DeviceSpec) -> Here:
    device = replace(known, memory_bytes=gpu.memory_bytes, visible_bytes=gpu.memory_free_bytes)
    return _unprobed(facts, device, Catalogue(deviation=_deviation(UNPROBED_ERROR)), "catalog", known.source)


def _unprobed(facts: MachineFacts, device: DeviceSpec, source: Catalogue, origin: Origin, text: str) -> Here:
    rates = _rates(device.flops_per_s, device.bytes_per_s, origin, text, "datasheet, or 6 to 25 GB/s a core")
    return Here(
        facts=facts,
        cluster=_alone(device, facts, disk_bytes_per_s=UNPROBED_DISK_BYTES_PER_S),
        source=source,
        threads=facts.cores if device.kind == "cpu" else None,
        rates=(*rates, *of_accelerator(device)),
    )


def _rates(
    flops_per_s: Mapping[str, float], bytes_per_s: float, origin: Origin, products: str, memory: str
) -> list[Assumption]:
    multiplied = [
        _assume(f"matrix products, {dtype}", rate, "FLOP/s", origin, products, key=f"products_{dtype}")
        for dtype, rate in flops_per_s.items()
    ]
    return [*multiplied, _assume("memory bandwidth", bytes_per_s / 1e9, "GB/s", origin, memory, key="bandwidth")]


def _alone(device: DeviceSpec, facts: MachineFacts, *, disk_bytes_per_s: float) -> ClusterSpec:
    memory, cores = facts.memory_bytes, facts.cores
    node = NodeSpec(
        device=device, devices=1, host_memory_bytes=memory, cpu_cores=cores, disk_bytes_per_s=disk_bytes_per_s
    )
    return ClusterSpec(node=node)


def _deviation(span: tuple[float, float]) -> float:
    """Returns the standard deviation of the logarithm whose nine-in-ten range is as wide as ``span``."""
    return math.log(span[1] / span[0]) / 2 / INTERVAL


def _of_process(process: Process | None, probes: Probes | None) -> tuple[Assumption, ...]:
    if process is None:
        return ()
    origin: Origin = "default" if probes is None else "probed"
    text = DOCTOR if origin == "probed" else "a process with torch loaded"
    return (
        _assume("process before the model", process.baseline_bytes, "bytes", origin, text, key="process"),
        _assume("temporaries of a pass", process.transient, "x what one block saves", origin, text, key="temporaries"),
        _assume("memory that malloc cannot give back", process.waste, "x what is saved", origin, text, key="heap"),
    )


def range_of(low: float, high: float, origin: Origin, source: str) -> Assumption:
    """Returns the range of the time as factors of its middle."""
    return _assume("range of the time", f"{low:.3g} to {high:.3g}", "x", origin, source, key="time_range")


def _assume(name: str, value: float | str, unit: str, origin: Origin, source: str, *, key: str) -> Assumption:
    number = value if isinstance(value, str) else _rounded(float(value))
    return Assumption(name, number, unit, origin, source, key=key)


def _rounded(value: float) -> float:
    """Returns four significant digits: a measurement has no more."""
    return round(value, 3 - math.floor(math.log10(abs(value)))) if value else 0.0


_OF_COMPILER = (
    _assume("torch.compile: time between products left", COMPILED_REST, "x", "default", ONE_MACHINE, key="compiled"),
    _assume(
        "torch.compile: start-up",
        COMPILE_S,
        f"s, and {COMPILE_PER_LAYER_S} s a layer",
        "default",
        ONE_MACHINE,
        key="compile_start",
    ),
    _assume("torch.compile: memory", COMPILE_BYTES, "bytes", "default", ONE_MACHINE, key="compile_memory"),
)
