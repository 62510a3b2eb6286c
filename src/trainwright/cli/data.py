"""Turn a recipe's corpus into token shards, and show what was kept and what was dropped, by reason.

An interrupted run goes on from its last part. The report is kept as report.json beside the shards.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from trainwright.cli.arguments import add_recipe, add_workspace
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser
from trainwright.cli.run import make
from trainwright.core.units import format_bytes, format_count, format_seconds

EXAMPLES_SHOWN = 2


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    add_recipe(parser)
    add_workspace(parser)


def run(args: argparse.Namespace) -> int:
    """Prepare the dataset and print its funnel."""
    output = Output.of(args)
    artifact = make(args, output, stage="data")
    artifact.verify({"report.json"})
    report = json.loads(artifact.file("report.json").read_text(encoding="utf-8"))
    execution = artifact.manifest.execution
    payload = {"path": artifact.path, "fingerprint": artifact.manifest.fingerprint, "execution": execution, **report}
    output.result(payload, lambda: show(report, execution, output))
    if not output.json:
        output.line()
        output.line(f"data: {artifact.path}")
    return 0


def show(report: Mapping[str, Any], execution: Mapping[str, Any], output: Output) -> None:
    """The funnel of each source, the splits and the tokenizer."""
    for source in report["sources"]:
        output.table(("", "documents", "bytes", "for example"), funnel_rows(source), title=source["source"])
        output.line()
    output.table(
        ("split", "documents", "text", "tokens", "bytes per token"),
        [
            (
                name,
                format_count(s["documents"]),
                format_bytes(s["bytes"]),
                format_count(s["tokens"]),
                s["bytes_per_token"],
            )
            for name, s in report["splits"].items()
        ],
    )
    output.line()
    tokenizer = report["tokenizer"]
    asked = tokenizer["asked_vocabulary"]
    short = f" of {asked:,} asked for (the corpus is too small)" if asked and asked > tokenizer["vocabulary"] else ""
    engine = execution["encoding"]["engine"]
    speed = f"{execution['encode_bytes_per_s'] / 1e6:.0f} MB/s"
    output.line(
        f"tokenizer: {tokenizer['kind']}, vocabulary {tokenizer['vocabulary']:,}{short}; "
        f"encoded by {engine} at {speed}; all took {format_seconds(execution['seconds'])}"
    )


def funnel_rows(source: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Rows from read to kept; a reason for each document that fell out in between."""
    rows = [("read", source["read"], "")]
    rows += [(f"- broken: {reason}", tally, reason) for reason, tally in source["broken"].items()]
    rows += [(f"- {reason}", tally, reason) for reason, tally in source["dropped"].items()]
    if source["duplicates"]["documents"]:
        rows.append(("- duplicate", source["duplicates"], "duplicate"))
    rows.append(("kept", source["kept"], ""))
    return [
        (
            label,
            format_count(tally["documents"]),
            format_bytes(tally["bytes"]),
            ", ".join(source["examples"].get(reason, [])[:EXAMPLES_SHOWN]),
        )
        for label, tally, reason in rows
    ]
