"""How long a file and a function may be, and how much of ours a training run imports (docs/en/architecture.md)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter

from architecture.imported_lines import DRY_RUN, FAULTS, LOOKS, TRAINING, imported_lines
from fixtures.words import dataset
from trainwright.spec.recipe import Recipe
from trainwright.testing.artifacts import make_plan

__all__ = ["dataset"]

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_TRAIN_LINES = 14_100
"""That a plain training runs: one process, next-token, a validation, checkpoints, nothing that goes wrong."""
# What a training may import beside that: other tasks and families, adapters, images, preferences with what the first
# network said, early stopping, averages; matrices, sequences and pipelines over ranks, the watch over them, restarts,
# meetings of hosts that compare their plug-ins' code, the dry run, a base in nf4 beside adapters (QLoRA: 190 lines),
# the keys of labelled sources (60), several labels of a document with their scores (380), rates and first weights that
# follow the width (110), a number of a document with its errors and scale (210), distillation with its teacher (390,
# with the module that keys of tasks now have, and names of models), the ResNet with its stages and what batch norms
# refuse (230), a batch that grows (280: its sizes, their keys, the sequences of each, tokens that are counted by them),
# labels of words with their entities (380), ModernBERT with its configurations, windows on both sides and norms before
# (310), rewards of answers (250), embeddings of texts with their pairs (440), what adapters do
# not see of their input, and with it all of dropout (400), checkpoints at another place (330: they lay below `runtime`,
# where nobody counted them).
MAX_LINES_OF_ALL_LAYOUTS = 29_900
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
    lines = imported_lines(TRAINING, _sizes(package), without=[DRY_RUN, *FAULTS, LOOKS])
    assert sum(lines.values()) <= MAX_LINES_OF_ALL_LAYOUTS, _longest(lines)


def test_the_architecture_says_these_numbers(repository):
    for language in ("en", "zh"):
        page = (repository / "docs" / language / "architecture.md").read_text(encoding="utf-8")
        assert f"{MAX_TRAIN_LINES:,}" in page and f"{MAX_LINES_OF_ALL_LAYOUTS:,}" in page, language


def test_a_plain_training_runs_few_of_our_lines(package, dataset, repository, tmp_path):
    model = {"family": "llama", "layers": 1, "width": 16, "heads": 2, "context_tokens": 16}
    exec_ = {"compile": False, "tensorboard": False, "log_every_steps": 1, "checkpoint_every": 0}
    train = {"sequence_tokens": 16, "batch_tokens": 32, "duration": "2 steps", "precision": "fp32", "exec": exec_}
    recipe = Recipe.model_validate(
        {"name": "plain", "model": model, "data": {"sources": [{"kind": "python-stdlib"}]}, "train": train}
    )
    plan = make_plan(tmp_path, recipe, vocabulary=300)
    program = repository / "tests" / "architecture" / "plain_training.py"
    asked = recipe.model_dump_json(by_alias=True, exclude_unset=True)
    arguments = (str(dataset.path), str(plan.path), asked, str(tmp_path / "out"))
    environment = os.environ | {"PYTHONPATH": str(repository / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(program), *arguments], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    sizes = _sizes(package)
    lines = {module: sizes[module] for module in json.loads(done.stdout.splitlines()[-1])}
    assert "trainwright.stages.train.trainer" in lines, "the trainer is gone: measure what took its place"
    assert sum(lines.values()) <= MAX_TRAIN_LINES, _longest(lines)


def _sizes(package):
    return {source.module: len(source.text.splitlines()) for source in package}


def _longest(lines):
    longest = sorted(lines.items(), key=lambda item: -item[1])[:10]
    return f"{sum(lines.values())} lines in {len(lines)} modules: {longest}"
