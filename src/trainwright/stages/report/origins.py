"""Sections about what the run is made of: data, machine, stages, recipe."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from trainwright.core.units import format_bytes, format_seconds
from trainwright.hardware.machine.facts import MachineFacts
from trainwright.hardware.machine.probes import Probes
from trainwright.hardware.machine.record import Machine
from trainwright.render.results.dataset import images_line
from trainwright.spec.manifest import KINDS
from trainwright.stages.report import say, scale
from trainwright.stages.report.blocks import Block, Cell, Code, Facts, Figure, Missing, PageSection, Table
from trainwright.stages.report.charts import Bar, Bars, Segment
from trainwright.stages.report.model_facts import model_facts
from trainwright.stages.report.run_record import RunRecord

STAGES = tuple(stage for stage, kind in KINDS.items() if kind != "page")
SHORT = 12

KEPT, LOST, READ = 2, 1, 0


def data(run: RunRecord) -> PageSection:
    """Returns the section of the data: what went in, what was dropped, what came out."""
    if run.data is None:
        missing = Missing(text="No data was prepared yet.", command="trainwright data RECIPE")
        return PageSection(key="data", title="Data", lead="", blocks=(missing,))
    total = run.data["total"]
    lead = f"{total['read']['documents']:,} {_counted(run.data)} were read and {total['kept']['documents']:,} kept."
    return PageSection(key="data", title="Data", lead=lead, blocks=tuple(_data(run.data)))


def _data(report: Mapping[str, Any]) -> Iterator[Block]:
    total = report["total"]
    stations = [("read", total["read"], READ)]
    stations += [(f"broken: {reason}", tally, LOST) for reason, tally in total["broken"].items()]
    stations += [(f"dropped: {reason}", tally, LOST) for reason, tally in total["dropped"].items()]
    stations += [("duplicates", total["duplicates"], LOST), ("kept", total["kept"], KEPT)]
    groups = []
    for label, tally, tone in stations:
        text = f"{tally['documents']:,} ({format_bytes(tally['bytes'])})"
        groups.append((label, [Bar(segments=[Segment(name=label, value=tally["documents"], tone=tone)], text=text)]))
    yield Figure(views=[("", Bars(title="From corpus to dataset", x_title=_counted(report), groups=groups))])
    yield from _images(report) if "images" in report else _tokens(report)
    sources = [
        [source["source"], f"{source['read']['documents']:,}", f"{source['kept']['documents']:,}"]
        for source in report["sources"]
    ]
    yield Table(title="Sources", columns=["source", "read", "kept"], rows=sources, right=(1, 2))
    reasons: dict[str, list[str]] = {}
    for source in report["sources"]:
        for reason, places in source.get("examples", {}).items():
            reasons.setdefault(reason, []).extend(places)
    if reasons:
        lines = "\n".join(
            f"{reason}\n" + "\n".join(f"  {place}" for place in places) for reason, places in reasons.items()
        )
        yield Code(title="Examples of what was not kept", text=lines)


def _counted(report: Mapping[str, Any]) -> str:
    return "images" if "images" in report else "documents"


def _images(report: Mapping[str, Any]) -> Iterator[Block]:
    """Yields the images of each class by split, and how they are stored."""
    splits = report["splits"]
    classes = list(next(iter(splits.values()))["classes"])
    rows = [[label, *(f"{split['classes'][label]:,}" for split in splits.values())] for label in classes]
    rows.append(["all", *(f"{split['documents']:,}" for split in splits.values())])
    yield Table(title="Splits", columns=["class", *splits], rows=rows, right=range(1, len(splits) + 1))
    yield Facts(title="Images", facts=[("stored as", images_line(report["images"]))])


def _tokens(report: Mapping[str, Any]) -> Iterator[Block]:
    """Yields the splits in tokens, and the tokenizer."""
    columns = ["split", "documents", "text", "tokens", "bytes per token"]
    rows = [
        [name, f"{s['documents']:,}", format_bytes(s["bytes"]), f"{s['tokens']:,}", f"{s['bytes_per_token']:.3g}"]
        for name, s in report["splits"].items()
    ]
    yield Table(title="Splits", columns=columns, rows=rows, right=(1, 2, 3, 4))
    tokenizer = report["tokenizer"]
    facts = [
        ("kind", str(tokenizer["kind"])),
        ("vocabulary", f"{tokenizer['vocabulary']:,}"),
        ("bytes per token", f"{tokenizer['bytes_per_token']:.3g}"),
        ("end of text", f"{tokenizer['end_of_text']['text']} ({tokenizer['end_of_text']['id']})"),
    ]
    if tokenizer["lossy_documents"] is not None:
        facts.append(("documents that do not come back byte for byte", f"{tokenizer['lossy_documents']:,}"))
    yield Facts(title="Tokenizer", facts=facts)


def machine(run: RunRecord) -> PageSection:
    """Returns the section of the machine: its facts, and how fast it is."""
    if run.machine is None:
        missing = Missing(text="This machine was not looked at yet.", command="trainwright doctor")
        return PageSection(key="machine", title="Machine", lead="", blocks=(missing,))
    return PageSection(
        key="machine",
        title="Machine",
        lead="Facts from the operating system, and speeds measured here.",
        blocks=tuple(_machine(run.machine)),
    )


def _machine(record: Machine) -> Iterator[Block]:
    yield Facts(title="Facts", facts=_machine_facts(record.facts))
    if record.probes is not None:
        numbers = [(say.title(name), say.number(name, item)) for name, item in record.probes.flat().items()]
        yield Facts(title=f"Probes ({record.probes.threads} threads)", facts=numbers)
        if record.probes.matmul:
            yield _products(record.probes)
    if record.findings:
        yield _findings(record)


def _machine_facts(facts: MachineFacts) -> list[tuple[str, str]]:
    """Returns the facts by name: what is absent is none, which is known."""
    values = asdict(facts) | {
        "torch": facts.torch or "not installed",
        "compiler": facts.compiler or "none on the path",
        "gpus": ", ".join(f"{gpu.name} ({format_bytes(gpu.memory_bytes)})" for gpu in facts.gpus) or "none",
    }
    return [(say.title(name), say.value(name, item)) for name, item in values.items() if name != "disk_path"]


def _products(probes: Probes) -> Figure:
    """Returns the rate of each shape's forward product, a bar per precision."""
    tones = {dtype: tone for tone, dtype in enumerate(probes.dtypes())}
    by_shape: dict[str, list[Bar]] = {}
    for probe in probes.matmul:
        if probe.direction == "forward":
            segment = Segment(name=probe.dtype, value=probe.flops_per_s, tone=tones[probe.dtype])
            bar = Bar(segments=[segment], text=say.rate(probe.flops_per_s, "FLOP/s"), label=probe.dtype)
            by_shape.setdefault(f"{probe.tokens} × {probe.inputs} × {probe.outputs}", []).append(bar)
    chart = Bars(
        title="Matrix products",
        x_title="FLOP/s",
        groups=list(by_shape.items()),
        format=lambda value: say.rate(value, "").rstrip(),
        legend=[(dtype, tone, False) for dtype, tone in tones.items()],
    )
    note = "Rows × inputs × outputs of a forward product; those of the backward pass stand in machine.json."
    return Figure(views=[("", chart)], note=note, wide=True)


def _findings(record: Machine) -> Table:
    rows: list[list[Cell | str]] = [[Cell(text=finding.what, tone="warn"), finding.fix] for finding in record.findings]
    return Table(title="Findings", columns=["what will hurt", "what mends it"], rows=rows, wide=True)


def provenance(run: RunRecord) -> PageSection:
    """Returns every artefact by its fingerprint, how long it took, and the recipe."""
    blocks: list[Block] = []
    timed = [(name, seconds) for name in STAGES if (seconds := run.seconds(name)) is not None]
    if timed:
        groups = [
            (name, [Bar(segments=[Segment(name=name, value=seconds, tone=0)], text=format_seconds(seconds))])
            for name, seconds in timed
        ]
        title = f"Time by stage, {format_seconds(sum(seconds for _, seconds in timed))} in all"
        axis = scale.seconds_unit(max(seconds for _, seconds in timed))
        chart = Bars(title=title, x_title="time", groups=groups, format=format_seconds, axis=axis)
        blocks.append(Figure(views=[("", chart)]))
    if run.model is not None:
        parameters = (run.training or {}).get("parameters")
        blocks.append(Facts(title="Model", facts=model_facts(run.model, parameters)))
    rows = [_artifact_row(run, name) for name in STAGES]
    columns = ["stage", "fingerprint", "made", "files", "size", "command"]
    blocks.append(Table(title="Artefacts", columns=columns, rows=rows, right=(3, 4), wide=True))
    recipe = json.dumps(run.recipe.model_dump(mode="json"), indent=2, ensure_ascii=False)
    blocks.append(Code(title="Recipe with every default, as JSON (a recipe file may be JSON)", text=recipe))
    lead = "Equal recipe, equal inputs: equal fingerprints. What was there already was not made again."
    return PageSection(key="provenance", title="Provenance", lead=lead, blocks=blocks)


def _artifact_row(run: RunRecord, name: str) -> list[Cell | str]:
    artifact = run.artifacts.get(name)
    command = Cell(text=f"trainwright {name} RECIPE", code=True)
    if artifact is None:
        return [name, Cell(text="missing", tone="warn"), "", "", "", command]
    manifest = artifact.manifest
    started = manifest.execution.get("started_unix_s")
    made = "" if started is None else f"{datetime.fromtimestamp(float(started), UTC):%Y-%m-%d %H:%M} UTC"
    return [
        name,
        Cell(text=manifest.fingerprint[:SHORT], code=True),
        Cell(text=made, tone="dim"),
        f"{len(manifest.files)}",
        format_bytes(sum(entry.size_bytes for entry in manifest.files)),
        command,
    ]
