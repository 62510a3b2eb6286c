"""A kept step is repeated to the bit, and its script is a program."""

from __future__ import annotations

import ast
import json
import runpy

import pytest
import torch
from safetensors.torch import load_file

from trainwright.artifact.events import Events, read_events
from trainwright.artifact.stage import Context
from trainwright.core.errors import DataError
from trainwright.stages.train.observe.broken_off import COMPUTED, KEPT, SCRIPT, break_run


@pytest.fixture
def kept(make_recipe, inputs_for, train, tmp_path):
    """The sixth update of a run with dropout, kept beside the run; and what the run logged of it."""
    recipe = make_recipe(exec_log_every_steps=1, exec_micro_batch=3, clip_norm=0.1)
    dropout = recipe.model.dropout.model_copy(update={"residual": 0.2})
    recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"dropout": dropout})})
    inputs = inputs_for(recipe)
    train(recipe, inputs, tmp_path / "run")
    logged = {event.name: event.value for event in read_events(tmp_path / "run" / "events.jsonl") if event.step == 6}
    out = tmp_path / "look"
    context = Context(recipe=recipe, inputs=inputs, out=out, root=tmp_path, events=Events(None, run="tiny"))
    break_run(context, run=tmp_path / "run", step=6)
    return out, logged


def test_the_script_prints_what_the_run_logged(kept, capsys) -> None:
    out, logged = kept
    computed = json.loads((out / COMPUTED).read_text())
    assert (computed["loss"], computed["grad_norm"]) == (logged["train/loss"], logged["train/grad_norm"])
    for _ in range(2):  # as often as one likes
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(out / SCRIPT), run_name="__main__")
        assert ended.value.code == 0
        printed = capsys.readouterr().out
        assert printed == f"update 6: loss {logged['train/loss']!r}, gradient norm {logged['train/grad_norm']!r}\n"


def test_what_the_script_lacks_is_one_line(kept, capsys) -> None:
    out, _ = kept
    record = json.loads((out / KEPT).read_text())
    record["inputs"]["dataset"] = gone = str(out / "gone")
    (out / KEPT).write_text(json.dumps(record))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(out / SCRIPT), run_name="__main__")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and gone in line
    assert ended.value.code == DataError.exit_code


@pytest.mark.parametrize("kept_bytes", [0, 7, 100, None])
def test_a_batch_that_cannot_be_read_is_one_line(kept, capsys, kept_bytes) -> None:
    out, _ = kept
    path = out / "batch-rank0.safetensors"
    whole = path.read_bytes()
    path.unlink()
    if kept_bytes is not None:
        path.write_bytes(whole[:kept_bytes])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(out / SCRIPT), run_name="__main__")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {path}: this batch cannot be read") and "--break-at 6" in line
    assert ended.value.code == DataError.exit_code


def test_batch_and_state_are_there_and_nothing_of_the_run_is(kept) -> None:
    out, _ = kept
    batch = load_file(out / "batch-rank0.safetensors")
    assert batch["tokens"].dtype is torch.int64 and len(batch["tokens"]) == 4
    (state,) = (out / "checkpoints").iterdir()
    assert state.name == "step-00000005" and not state.is_symlink()
    assert ast.get_docstring(ast.parse((out / SCRIPT).read_text())).startswith("Repeats update 6 of tiny")
