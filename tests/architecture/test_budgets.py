"""How long a file and a function may be, and how much of ours a training run imports (docs/en/architecture.md)."""

from __future__ import annotations

import re
from collections import Counter

from architecture.imported_lines import FAULTS, LOOKS, SEVERAL, TRAINING, imported_lines

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
# Checkpoints that are written beside training in pieces, and read by any layout, came to 1,300 lines of each of these;
# keys of precisions, averages, padding and recompilation, and what a plan counts of them, to 330.
MAX_TRAIN_LINES = 12_050
"""Of one process: with every task and family, and the packages that an import runs on its way."""
# Besides: matrices, sequences and pipelines over ranks, the watch over them, restarts, meetings of hosts, the dry run,
# averages of weights, hosts that watch and restart their ranks together.
MAX_LINES_OF_ALL_LAYOUTS = 19_600
MAX_FOLDER_FILES = 15

ENTRIES = ("/model/families",)
"""Folders with a file for each entry of a registry: they may be as long as the registry."""

# "path" or "path::function" -> why it is longer. Empty is the state to keep.
EXCUSED: dict[str, str] = {}


def test_files_are_short(sources):
    long = {source.name: n for source in sources if (n := len(source.text.splitlines())) > MAX_FILE_LINES}
    assert not long.keys() - EXCUSED.keys(), f"more than {MAX_FILE_LINES} lines: {long}"


def test_the_formatter_lays_out_every_line(sources):
    by_hand = [source.name for source in sources if re.search(r"# fmt: (skip|off)$", source.text, re.MULTILINE)]
    assert not by_hand


def test_folders_can_be_seen_at_a_glance(package):
    files = Counter(str(source.path.parent) for source in package if source.path.name != "__init__.py")
    full = {folder: n for folder, n in files.items() if n > MAX_FOLDER_FILES and not folder.endswith(ENTRIES)}
    assert not full, f"more than {MAX_FOLDER_FILES} modules: {full}"


def test_functions_are_short(sources):
    long = {}
    for source in sources:
        for function in source.functions():
            lines = function.end_lineno - function.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                long[f"{source.name}::{function.name}"] = lines
    assert not long.keys() - EXCUSED.keys(), f"more than {MAX_FUNCTION_LINES} lines: {long}"


def test_excuses_are_still_needed(sources):
    names = {source.name for source in sources}
    stale = [excuse for excuse in EXCUSED if excuse.partition("::")[0] not in names]
    assert not stale, f"excused, but gone: {stale}"


def test_what_training_imports_can_be_read_in_an_afternoon(package):
    sizes = {source.module: len(source.text.splitlines()) for source in package}
    assert sum(imported_lines(TRAINING, sizes, without=[FAULTS, LOOKS]).values()) <= MAX_LINES_OF_ALL_LAYOUTS
    lines = imported_lines(TRAINING, sizes, without=[*SEVERAL, FAULTS, LOOKS])
    assert "trainwright.stages.train" in lines, "trainwright.stages.train is gone: measure what took its place"
    longest = sorted(lines.items(), key=lambda item: -item[1])[:10]
    assert sum(lines.values()) <= MAX_TRAIN_LINES, f"{sum(lines.values())} lines in {len(lines)} modules: {longest}"
