"""A pipeline trains, validates, resumes and leaves its result as one process does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from trainwright.spec.workload import ParallelPlan

ALONE = ParallelPlan(micro_batch_sequences=1)
PIPED = ParallelPlan(pp=2, micro_batch_sequences=1)
STEPS = 8


def results(out: Path) -> tuple[torch.Tensor, float, float]:
    """Weights in one row, training loss and validation loss."""
    summary = json.loads((out / "summary.json").read_text())
    weights = load_file(out / "model.safetensors")
    row = torch.cat([weights[name].flatten() for name in sorted(weights)])
    return row, summary["train_loss"], summary["validation"]["metrics"]["loss"]["value"]


def half_done(out: Path, into: Path) -> Path:
    """A run that was ended after half of its steps."""
    for path in sorted((out / "checkpoints").iterdir())[: STEPS // 2]:
        shutil.copytree(path, into / "checkpoints" / path.name)
    return into


@pytest.mark.slow
def test_a_pipeline_leaves_what_one_process_leaves_and_each_goes_on_from_the_other(
    make_recipe, inputs_for, train, tmp_path
) -> None:
    """Tied weights lie on both stages."""
    recipe = make_recipe(family="gpt2", exec_checkpoint_every=1e-6, exec_keep_checkpoints=STEPS)
    alone, piped = (inputs_for(recipe, parallel=parallel) for parallel in (ALONE, PIPED))
    train(recipe, alone, tmp_path / "alone")
    train(recipe, piped, tmp_path / "piped")
    train(recipe, alone, half_done(tmp_path / "piped", tmp_path / "alone after piped"))
    train(recipe, piped, half_done(tmp_path / "alone", tmp_path / "piped after alone"))
    weights, *losses = results(tmp_path / "alone")
    for out in ("piped", "alone after piped", "piped after alone"):
        found, *found_losses = results(tmp_path / out)
        assert float((found - weights).norm() / weights.norm()) < 1e-5, out
        assert found_losses == pytest.approx(losses, rel=1e-5), out
    summary = json.loads((tmp_path / "piped after alone" / "summary.json").read_text())
    assert summary["execution"]["resumes"] == 1
    assert summary["memory"]["activations"] > 0
