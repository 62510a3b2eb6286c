"""Hold the plan against what training measured: time and memory, part by part.

What it needs and is not there is made first. With --published FILE instead of a recipe, every row of a table of
published runs is predicted, and the errors are counted.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from trainwright.cli import audit_published
from trainwright.cli.arguments import add_recipe, add_workspace
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser
from trainwright.cli.run import make
from trainwright.core.units import format_bytes, format_seconds


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    add_recipe(parser)
    add_workspace(parser)
    audit_published.configure(parser)


def run(args: argparse.Namespace) -> int:
    """Run the stages up to the audit and print it."""
    output = Output.of(args)
    if audit_published.asked(args):
        return audit_published.run(args, output)
    artifact = make(args, output, stage="audit")
    artifact.verify()
    found = json.loads(artifact.file("audit.json").read_text(encoding="utf-8"))
    output.result({"artifact": artifact.path, "audit": found}, lambda: show(found, output))
    return 0


def show(found: Mapping[str, Any], output: Output) -> None:
    """The two ratios, then every row."""
    time, memory = found["seconds_ratio"], found["memory_ratio"]
    output.heading(f"measured / predicted: training time {time:.2f}, peak memory {memory:.2f}")
    output.table(("", "quantity", "predicted", "measured", "ratio"), [row_text(row) for row in found["rows"]])


def row_text(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A row in the unit's own form; the ratio is empty where the part is too small to matter."""
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
    cells = (value_text(row["predicted"], row["unit"]), value_text(row["measured"], row["unit"]))
    return row["group"], row["quantity"].replace("_", " "), *cells, ratio


def value_text(value: float, unit: str) -> str:
    """Seconds, bytes, rates and shares as people read them."""
    if unit == "s":
        return format_seconds(value)
    if unit == "bytes":
        return format_bytes(value)
    return f"{value:,.0f} {unit}" if unit else f"{value:.1%}"
