"""Measure the trained model: loss, perplexity and bits per byte of held-out text beside compressors and n-grams.

What it needs and is not there is made first: the dataset, the plan, the training run.
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


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    add_recipe(parser)
    add_workspace(parser)


def run(args: argparse.Namespace) -> int:
    """Run the stages up to evaluation and print what was measured."""
    output = Output.of(args)
    artifact = make(args, output, stage="evaluate")
    artifact.verify()
    evaluation = json.loads(artifact.file("evaluation.json").read_text(encoding="utf-8"))
    output.result({"artifact": artifact.path, "evaluation": evaluation}, lambda: show(evaluation, output))
    return 0


def show(evaluation: Mapping[str, Any], output: Output) -> None:
    """The splits, their baselines, the completions."""
    splits = evaluation["splits"]
    rows = [
        (
            name,
            f"{split['loss']:.4f}",
            "unknown" if split["perplexity"] is None else f"{split['perplexity']:.4g}",
            f"{split['bits_per_byte']:.4f}",
            f"{split['tokens']:,}",
            f"{split['documents']:,}",
        )
        for name, split in splits.items()
    ]
    output.table(("split", "loss (nats/token)", "perplexity", "bits/byte", "tokens", "documents"), rows)
    output.line()
    output.table(("bits/byte", *splits), baseline_rows(splits))
    for completion in evaluation["completions"]:
        output.line()
        output.heading(completion["prompt"])
        output.line(completion["text"])
        overlap = completion["overlap"]
        output.note(f"word for word in the training text: at most {overlap['size_bytes']} bytes in a row")


def baseline_rows(splits: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A row per way to code the text, the best one on the first split on top."""
    columns = [
        {"this model": split["bits_per_byte"]} | {entry["name"]: entry["bits_per_byte"] for entry in split["baselines"]}
        for split in splits.values()
    ]
    ranked = sorted(columns[0], key=lambda name: columns[0][name])
    return [(name, *(f"{column[name]:.4f}" if name in column else "" for column in columns)) for name in ranked]
