"""A workspace that lies inside the corpus: what a run writes would be read as documents by the next one."""

from __future__ import annotations

import os
from pathlib import Path

from trainwright.core.errors import RecipeError, TrainwrightError
from trainwright.core.paths import local_path
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.corpus.files import MAGIC, source_entries, taken_names
from trainwright.stages.data.corpus.remote import is_url
from trainwright.stages.data.sources import source_of

ALWAYS = ("events.jsonl", "manifest.json")
"""Files that every workspace has once a run has begun."""


def workspace_problem(section: DataSection, root: Path) -> RecipeError | None:
    """Returns why a workspace cannot be where it is; None where no source takes a file in it.

    Args:
        section: the corpus, whose wrong paths are reported elsewhere.
        root: the workspace, which need not exist.
    """
    workspace = root.absolute().resolve()
    for number, settings in enumerate(section.sources):
        for order, text in enumerate(source_of(settings).paths):
            if is_url(text) or not text:
                continue
            try:
                folder = local_path(text)
                if not _holds(folder, workspace):
                    continue
                reads = _takes_from_folder(section, number, folder, workspace)
            except (TrainwrightError, OSError, ValueError):
                continue  # reported under its own key
            if reads is not None:
                return RecipeError(
                    "the workspace lies inside the corpus, and would be read as a part of it",
                    where=f"data.sources.{number}.paths.{order}",
                    seen=f"{reads} in {text}",
                    fix="choose a `workspace` elsewhere, or name the folders that hold the corpus",
                )
    return None


def _holds(path: Path, workspace: Path) -> bool:
    """Returns whether a workspace lies in a folder, or in the one that a pattern begins with."""
    parts = path.parts
    fixed = next((depth for depth, part in enumerate(parts) if MAGIC.search(part)), len(parts))
    return workspace.is_relative_to(Path(*parts[:fixed]).absolute().resolve())


def _takes_from_folder(section: DataSection, number: int, path: Path, workspace: Path) -> str | None:
    """Returns a file of the workspace that the source takes; one that will be there counts, in a folder."""
    settings = section.sources[number]
    if not path.is_dir():
        inside = (entry.location for entry in source_entries(number, settings))
        return next((each for each in inside if Path(each).resolve().is_relative_to(workspace)), None)
    source = source_of(settings)
    between = workspace.relative_to(path.absolute().resolve()).parts
    if any(part.startswith(".") or part in source.ignored_folders for part in between):
        return None
    there = (Path(folder, name) for folder, _, names in os.walk(workspace) for name in sorted(names))
    every = [*(workspace / name for name in ALWAYS), *there]
    return next((str(each) for each in every if taken_names(source, [each.name])), None)
