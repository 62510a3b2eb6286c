"""Do all that a recipe says: plan, prepare data, train, evaluate, audit, export, ask the served model, report.

What is already there is not done again; an interrupted run goes on where it stopped. Results are kept in the workspace.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainwright.cli.arguments import add_recipe, add_workspace, load_recipe, workspace_of
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser
from trainwright.core.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from trainwright.artifact.store import Artifact
    from trainwright.spec.recipe import Recipe


SHORT = 24
"""Longest text that a headline shows."""


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    add_recipe(parser)
    add_workspace(parser)


def run(args: argparse.Namespace) -> int:
    """Run every stage and print what came of it."""
    return run_upto(args, stage=None)


def run_upto(args: argparse.Namespace, *, stage: str | None) -> int:
    """Run the stages up to one (all where None) and print what came of them."""
    output = Output.of(args)
    recipe = load_recipe(args).value
    made = _make(args, output, recipe, stage=stage)
    payload = {"workspace": workspace_of(args, name=recipe.name), "artifacts": documents(made)}
    output.result(payload, lambda: show(made, output))
    return 0


def make(args: argparse.Namespace, output: Output, *, stage: str) -> Artifact:
    """One stage's artefact for the command line's recipe, with all that it needs."""
    return _make(args, output, load_recipe(args).value, stage=stage)[stage]


def _make(args: argparse.Namespace, output: Output, recipe: Recipe, *, stage: str | None) -> dict[str, Artifact]:
    # The pipeline brings pydantic and NumPy, which --help must not wait for.
    from trainwright.pipeline.runner import run as run_pipeline

    root = workspace_of(args, name=recipe.name)
    with output.progress() as progress:
        return run_pipeline(recipe, root=root, upto=stage, listeners=(progress,))


def documents(made: Mapping[str, Artifact]) -> dict[str, Any]:
    """What ``--json`` says of each artefact."""
    return {
        name: {
            "path": artifact.path,
            "fingerprint": artifact.manifest.fingerprint,
            "seconds": artifact.manifest.execution.get("seconds"),
            "summary": artifact.summary,
        }
        for name, artifact in made.items()
    }


def show(made: Mapping[str, Artifact], output: Output) -> None:
    """A line for each artefact with its headline numbers, then where to look."""
    rows = [
        (
            name,
            format_seconds(artifact.manifest.execution["seconds"]),
            format_bytes(sum(entry.size_bytes for entry in artifact.manifest.files)),
            headline(artifact.summary),
        )
        for name, artifact in made.items()
    ]
    output.table(("stage", "took", "size", "result"), rows)
    if "serve" in made and "answer" in made["serve"].summary:
        output.line()
        output.heading("The served model was asked to go on from:")
        output.line(made["serve"].summary["prompt"] + "▸" + made["serve"].summary["answer"])
    output.line()
    for name, artifact in made.items():
        if name in ("train", "export", "report"):
            where = artifact.path / "report.html" if name == "report" else artifact.path
            output.line(f"{name}: {where}")


def headline(summary: Mapping[str, Any]) -> str:
    """The short numbers and words of a summary in one line; long texts are left to the artefact's files."""
    shown = []
    for key, value in summary.items():
        if isinstance(value, bool):
            shown.append(f"{key.replace('_', ' ')} {'yes' if value else 'no'}")
        elif isinstance(value, (int, float)):
            shown.append(f"{key.replace('_', ' ')} {_number(key, value)}")
        elif isinstance(value, str) and len(value) <= SHORT and "\n" not in value:
            shown.append(f"{key.replace('_', ' ')} {value}")
    return ", ".join(shown[:6])


def _number(key: str, value: int | float) -> str:
    if key.endswith("bytes"):
        return format_bytes(value)
    if key.endswith("seconds"):
        return format_seconds(value)
    return f"{value:.4g}" if isinstance(value, float) else format_count(value)
