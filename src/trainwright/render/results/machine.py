"""The doctor's record: facts, rates, what to mend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from trainwright.core.units import format_bytes, format_seconds
from trainwright.render.page import Page

if TYPE_CHECKING:
    from trainwright.hardware.machine.facts import MachineFacts
    from trainwright.hardware.machine.probes import Probes
    from trainwright.hardware.machine.record import Machine


def show(machine: Machine, page: Page, *, now_unix_s: float) -> None:
    """Facts, measurements with their age, findings."""
    page.table(("machine", ""), fact_rows(machine.facts))
    if machine.probes is not None:
        page.line()
        _show_probes(machine.probes, page, now_unix_s=now_unix_s)
    page.line()
    for finding in machine.findings:
        page.line(f"warning: {finding.what}; {finding.fix}")
    if not machine.findings:
        page.line("nothing to mend")


def fact_rows(facts: MachineFacts) -> list[tuple[str, str]]:
    """Returns a row for each fact."""
    rows = [
        ("system", f"{facts.system} {facts.release}, {facts.architecture}, {facts.bits} bits"),
        ("Python", facts.python),
        ("torch", facts.torch or "not installed"),
        ("processor", f"{facts.cpu}, {facts.cores} cores"),
        ("instructions", ", ".join(facts.cpu_features) or "none that matter"),
        ("memory", f"{format_bytes(facts.memory_available_bytes)} of {format_bytes(facts.memory_bytes)} available"),
        ("disk", f"{format_bytes(facts.disk_free_bytes)} free in {facts.disk_path}"),
        ("C++ compiler", facts.compiler or "none"),
    ]
    for gpu in facts.gpus:
        memory = f"{format_bytes(gpu.memory_free_bytes)} of {format_bytes(gpu.memory_bytes)} free"
        rows.append(("GPU", f"{gpu.name}, {memory}, driver {gpu.driver}, CUDA {gpu.cuda}"))
    return rows


def _show_probes(probes: Probes, page: Page, *, now_unix_s: float) -> None:
    numbers = probes.flat()
    started = format_seconds(probes.import_s)
    rows = [
        ("measured", age_text(probes, now_unix_s=now_unix_s)),
        *(
            (f"matrix products, {name}", f"{(probes.peak_flops_per_s(name) or 0) / 1e9:,.0f} GFLOP/s")
            for name in probes.dtypes()
        ),
        ("memory", f"{numbers['memory_bytes_per_s'] / 1e9:,.1f} GB/s"),
        ("disk", disk_text(numbers)),
        ("one operation", f"{probes.launch_s * 1e6:.1f} µs"),
        ("a process with torch", f"{format_bytes(probes.baseline_bytes)}, started in {started}"),
    ]
    spent = f"in {format_seconds(probes.probe_s)}, {probes.threads} threads"
    page.table((f"measured on {probes.device_name}", spent), rows)
    page.line()
    page.table(
        ("matrix product", "precision", "tokens", "inputs", "outputs", "GFLOP/s", "quartiles"),
        list(product_rows(probes)),
    )
    page.line()
    page.table(("network", "precision", "tokens", "forward", "backward"), list(block_rows(probes)))


def age_text(probes: Probes, *, now_unix_s: float) -> str:
    """Returns the age of the measurement, and how thorough it was."""
    effort = "thoroughly" if probes.thorough else "quickly (--thorough measures more)"
    return f"{format_seconds(max(0.0, now_unix_s - probes.measured_unix_s))} ago, {effort}"


def disk_text(numbers: Mapping[str, float]) -> str:
    """Both directions in MB/s."""
    write, read = numbers["disk_write_bytes_per_s"], numbers["disk_read_bytes_per_s"]
    return f"{write / 1e6:,.0f} MB/s write, {read / 1e6:,.0f} MB/s read"


def product_rows(probes: Probes) -> Iterator[tuple[object, ...]]:
    """Yields a row per timed product."""
    for probe in probes.matmul:
        quartiles = f"{format_seconds(probe.timing.low_s)} to {format_seconds(probe.timing.high_s)}"
        shape = (probe.tokens, probe.inputs, probe.outputs)
        yield probe.direction, probe.dtype, *shape, f"{probe.flops_per_s / 1e9:,.0f}", quartiles


def block_rows(probes: Probes) -> Iterator[tuple[str, ...]]:
    """Yields a row per timed network."""
    for probe in probes.blocks:
        name = f"{probe.model.family}, {probe.model.layers} layers of {probe.model.width}"
        tokens = f"{probe.sequences} x {probe.sequence_tokens}"
        yield name, probe.dtype, tokens, format_seconds(probe.forward.median_s), format_seconds(probe.backward.median_s)
