"""Look at this machine and measure what it can do: matrix products, memory, attention, updates, disk.

With a recipe the record is kept in its workspace, where `trainwright plan` finds it, and is measured once; without one
it is only printed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli.arguments import add_recipe, add_workspace, load_recipe, workspace_of
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser
from trainwright.core.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from trainwright.hardware.machine import MachineFacts
    from trainwright.hardware.probes import Probes
    from trainwright.hardware.record import Machine


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    add_recipe(parser)
    add_workspace(parser)
    parser.add_argument("--again", action="store_true", help="measure again, whatever is kept")


def run(args: argparse.Namespace) -> int:
    """Examine the machine and print what was found."""
    output = Output.of(args)
    machine = _kept(args, output) if args.inputs or args.preset else _fresh(output)
    # Records need pydantic, which --help must not wait for.
    from trainwright.core.records import to_json

    output.result(to_json(machine), lambda: show(machine, output))
    return 0


def _kept(args: argparse.Namespace, output: Output) -> Machine:
    from trainwright.hardware.record import FILE, read_machine
    from trainwright.pipeline import runner

    recipe = load_recipe(args).value
    root = workspace_of(args, name=recipe.name)
    if args.again:
        for artifact in runner.find(recipe, root=root, upto="doctor").values():
            shutil.rmtree(artifact.path)
    with output.progress() as progress:
        made = runner.run(recipe, root=root, upto="doctor", listeners=(progress,))
    made["doctor"].verify()
    return read_machine(made["doctor"].file(FILE))


def _fresh(output: Output) -> Machine:
    from trainwright.artifact.events import Events
    from trainwright.core.registry import load

    examine = load("trainwright.stages.doctor:examine", kind="stage")
    with output.progress() as progress, tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        machine: Machine = examine(Path(folder), Events(None, run="doctor", listeners=(progress,)))
    return machine


def show(machine: Machine, output: Output) -> None:
    """Facts, measurements, findings."""
    output.table(("machine", ""), fact_rows(machine.facts))
    if machine.probes is not None:
        output.line()
        _show_probes(machine.probes, output)
    output.line()
    for finding in machine.findings:
        output.line(f"warning: {finding.what}; {finding.fix}")
    if not machine.findings:
        output.line("nothing to mend")


def fact_rows(facts: MachineFacts) -> list[tuple[str, str]]:
    """What the machine is, a row per fact."""
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


def _show_probes(probes: Probes, output: Output) -> None:
    numbers = probes.flat()
    rows = [
        *(
            (f"matrix products, {name}", f"{(probes.peak_flops_per_s(name) or 0) / 1e9:,.0f} GFLOP/s")
            for name in probes.dtypes()
        ),
        ("memory", f"{numbers['memory_bytes_per_s'] / 1e9:,.1f} GB/s"),
        (
            "disk",
            disk_text(numbers),
        ),
        ("one operation", f"{probes.launch_s * 1e6:.1f} µs"),
        (
            "a process with torch",
            f"{format_bytes(probes.baseline_bytes)}, started in {format_seconds(probes.import_s)}",
        ),
    ]
    output.table(
        (f"measured on {probes.device_name}", f"in {format_seconds(probes.probe_s)}, {probes.threads} threads"), rows
    )
    output.line()
    output.table(
        ("matrix product", "precision", "tokens", "inputs", "outputs", "GFLOP/s", "quartiles"),
        [
            (probe.direction, probe.dtype, probe.tokens, probe.inputs, probe.outputs, f"{probe.flops_per_s / 1e9:,.0f}",
             f"{format_seconds(probe.timing.low_s)} to {format_seconds(probe.timing.high_s)}")
            for probe in probes.matmul
        ],
    )  # fmt: skip
    output.line()
    output.table(("network", "precision", "tokens", "forward", "backward"), list(block_rows(probes)))


def disk_text(numbers: Mapping[str, float]) -> str:
    """Both directions in MB/s."""
    write, read = numbers["disk_write_bytes_per_s"], numbers["disk_read_bytes_per_s"]
    return f"{write / 1e6:,.0f} MB/s write, {read / 1e6:,.0f} MB/s read"


def block_rows(probes: Probes) -> Iterator[tuple[str, ...]]:
    """A row per timed network."""
    for probe in probes.blocks:
        name = f"{probe.model.family}, {probe.model.layers} layers of {probe.model.width}"
        tokens = f"{probe.sequences} x {probe.sequence_tokens}"
        yield name, probe.dtype, tokens, format_seconds(probe.forward.median_s), format_seconds(probe.backward.median_s)
