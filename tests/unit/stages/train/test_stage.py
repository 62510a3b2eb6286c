"""The stage as a whole: learns, resumes to the same bits, refuses damaged input, stops at NaN."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from trainwright.artifact.events import Events, read_events
from trainwright.artifact.shards import TokenDataset
from trainwright.artifact.stage import Context
from trainwright.core.errors import DataError, Interrupted, RecipeError, TrainingError
from trainwright.core.registry import load
from trainwright.model import hf
from trainwright.model.decoder import Decoder
from trainwright.spec.event import Event
from trainwright.stages.train import run
from trainwright.stages.train.stage import ON_THIS_HOST, TOGETHER
from trainwright.stages.train.trainer import Trainer


def train(recipe, inputs, out: Path, listeners=()):
    out.mkdir(parents=True, exist_ok=True)
    with Events(None, run="tiny", listeners=tuple(listeners)) as events:
        return run(Context(recipe=recipe, inputs=inputs, out=out, root=out.parent, events=events))


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model.safetensors")


def assert_same(first: Path, second: Path) -> None:
    one, other = weights(first), weights(second)
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_learns_and_writes_a_complete_bundle(make_recipe, inputs_for, tmp_path, family, optimizer) -> None:
    recipe = make_recipe(
        family=family, duration="60 steps", optimizer={"name": optimizer, "lr": 3e-3}, validation={"every_steps": 20}
    )
    result = train(recipe, inputs_for(recipe), tmp_path / "out")
    events = list(read_events(tmp_path / "out" / "events.jsonl"))
    losses = [event.value for event in events if event.name == "train/loss"]
    assert losses[0] > 5.0, "the first loss is near log(300)"
    assert losses[-1] < losses[0] - 1.5
    validated = [event for event in events if event.name == "validation/loss"]
    assert [event.step for event in validated] == [20, 40, 60]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["validation"]["metrics"]["loss"]["value"] == validated[-1].value
    assert result.summary["steps"] == 60
    assert {"model.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in (tmp_path / "out").iterdir()}
    recorded = sum(event.value for event in events if event.kind == "memory")
    assert recorded == pytest.approx(sum(summary["memory"].values()))


def test_same_seed_same_bits_and_another_seed_other_bits(make_recipe, inputs_for, tmp_path) -> None:
    recipe = make_recipe()
    inputs = inputs_for(recipe)
    train(recipe, inputs, tmp_path / "a")
    train(recipe, inputs, tmp_path / "b")
    assert_same(tmp_path / "a", tmp_path / "b")
    train(recipe.model_copy(update={"seed": 8}), inputs, tmp_path / "c")
    assert not torch.equal(weights(tmp_path / "a")["embedding"], weights(tmp_path / "c")["embedding"])


class KillAt:
    """Dies, as from a signal that nobody handles, when a step is done."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, event: Event) -> None:
        if event.kind == "progress" and event.value == self.step:
            raise SystemExit(137)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("kills", [[1], [5], [3, 6, 8], [2, 2, 7]])
def test_any_interruptions_end_in_the_same_bits(make_recipe, inputs_for, tmp_path, kills, optimizer) -> None:
    """A checkpoint after every step; killed after some; the batch has a ragged last micro batch."""
    recipe = make_recipe(
        optimizer={"name": optimizer}, exec_checkpoint_every=1e-9, exec_micro_batch=3, exec_keep_checkpoints=2
    )
    inputs = inputs_for(recipe)
    train(recipe, inputs, tmp_path / "whole")
    for step in kills:
        with pytest.raises(SystemExit):
            train(recipe, inputs, tmp_path / "parts", [KillAt(step)])
    train(recipe, inputs, tmp_path / "parts")
    assert_same(tmp_path / "whole", tmp_path / "parts")
    steps = [e.step for e in read_events(tmp_path / "parts" / "events.jsonl") if e.name == "train/loss"]
    assert steps == sorted(set(steps)), "no step is reported twice"


def test_a_damaged_checkpoint_is_named_and_passed_over(make_recipe, inputs_for, tmp_path) -> None:
    recipe = make_recipe(exec_checkpoint_every=1e-9)
    inputs = inputs_for(recipe)
    train(recipe, inputs, tmp_path / "whole")
    with pytest.raises(SystemExit):
        train(recipe, inputs, tmp_path / "parts", [KillAt(6)])
    newest = max((tmp_path / "parts" / "checkpoints").glob("step-*"))
    damaged = newest / "model.safetensors"
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    said: list[str] = []
    train(recipe, inputs, tmp_path / "parts", [lambda event: said.append(event.text)])
    assert any(str(damaged) in text and "sha256" in text for text in said)
    assert_same(tmp_path / "whole", tmp_path / "parts")


def test_only_damaged_checkpoints_stop_the_run(make_recipe, inputs_for, tmp_path) -> None:
    recipe = make_recipe(exec_checkpoint_every=1e-9, exec_keep_checkpoints=1)
    inputs = inputs_for(recipe)
    with pytest.raises(SystemExit):
        train(recipe, inputs, tmp_path / "out", [KillAt(4)])
    for path in (tmp_path / "out" / "checkpoints").glob("step-*/state.json"):
        path.write_text("{}")
    with pytest.raises(TrainingError, match="every checkpoint of this run is damaged"):
        train(recipe, inputs, tmp_path / "out")


def test_a_damaged_shard_is_named_and_never_trained_on(make_recipe, inputs_for, tmp_path) -> None:
    recipe = make_recipe()
    inputs = inputs_for(recipe)
    copy = tmp_path / "copy"
    shutil.copytree(inputs["dataset"].path, copy)
    shard = copy / "train-00000.tokens"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    inputs["dataset"] = type(inputs["dataset"])(path=copy, manifest=inputs["dataset"].manifest)
    with pytest.raises(DataError, match=r"train-00000\.tokens: damaged file: its sha256"):
        train(recipe, inputs, tmp_path / "out")
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_nan_stops_before_any_checkpoint_holds_it(make_recipe, inputs_for, tmp_path) -> None:
    recipe = make_recipe(
        optimizer={"name": "adamw", "lr": 1e30}, duration="30 steps", clip_norm=None, exec_checkpoint_every=1e-9
    )
    advice = r"no checkpoint is known to be good; try lower rates: train\.optimizer\.lr=0\.001"
    with pytest.raises(TrainingError, match=rf"became (nan|inf).*{advice}"):
        train(recipe, inputs_for(recipe), tmp_path / "out")
    for path in (tmp_path / "out" / "checkpoints").glob("step-*"):
        assert all(tensor.isfinite().all() for tensor in load_file(path / "model.safetensors").values())


def test_a_stop_signal_saves_the_step_under_way(make_recipe, inputs_for, tmp_path, monkeypatch) -> None:
    recipe = make_recipe()
    inputs = inputs_for(recipe)

    class Signal:
        requested = None

        def __enter__(self):
            return self

        def __exit__(self, *args) -> None: ...

        def __call__(self, event: Event) -> None:
            if event.kind == "progress" and event.value == 2:
                self.requested = "SIGTERM"

    signal = Signal()
    with monkeypatch.context() as patch:
        patch.setattr("trainwright.stages.train.trainer.StopRequest", lambda: signal)
        with pytest.raises(Interrupted, match="stopped by SIGTERM after step 3 of 8"):
            train(recipe, inputs, tmp_path / "parts", [signal])
    train(recipe, inputs, tmp_path / "parts")
    train(recipe, inputs, tmp_path / "whole")
    assert_same(tmp_path / "whole", tmp_path / "parts")


def test_a_sequence_longer_than_the_split_is_one_clear_line(make_recipe, inputs_for, tmp_path, dataset) -> None:
    recipe = make_recipe(sequence_tokens=32, batch_tokens=32)
    short = recipe.model_copy(
        update={
            "train": recipe.train.model_copy(update={"sequence_tokens": 10**6, "batch_tokens": 10**6}),
            "model": recipe.model.model_copy(update={"context_tokens": 10**6}),
        }
    )
    with pytest.raises(DataError, match="the train split is shorter than one sequence .*expected at least 1000001"):
        train(short, inputs_for(short), tmp_path / "out")


def test_a_run_shorter_than_one_update_is_refused(make_recipe, inputs_for, tmp_path) -> None:
    recipe = make_recipe(duration="10 tok")
    with pytest.raises(RecipeError, match="shorter than one update"):
        train(recipe, inputs_for(recipe), tmp_path / "out")


def test_starts_from_pretrained_weights(make_recipe, inputs_for, tmp_path, dataset) -> None:
    recipe = make_recipe(duration="1 steps", optimizer={"lr": 1e-12}, clip_norm=None)
    spec = recipe.model.spec(vocabulary=TokenDataset.open(dataset.path).vocabulary)
    source = Decoder(spec)
    source.initialise(99)
    pretrained = tmp_path / "pretrained"
    pretrained.mkdir()
    hf.write(pretrained, spec, dict(source.named_parameters()), dtype=torch.float32, extra={})
    shutil.copyfile(dataset.path / "tokenizer.json", pretrained / "tokenizer.json")
    tuned = recipe.model_copy(update={"model": recipe.model.model_copy(update={"init_from": str(pretrained)})})
    train(tuned, inputs_for(recipe), tmp_path / "out")
    for name, weight in weights(tmp_path / "out").items():
        torch.testing.assert_close(weight, dict(source.named_parameters())[name].detach(), atol=1e-6, rtol=0)
    other = recipe.model_copy(update={"model": tuned.model.model_copy(update={"layers": 3})})
    with pytest.raises(RecipeError, match="the base has layers 2, this recipe asks for 3"):
        train(other, inputs_for(other), tmp_path / "other")


def test_phases_partition_the_run(make_recipe, inputs_for, tmp_path) -> None:
    recipe = make_recipe()
    train(recipe, inputs_for(recipe), tmp_path / "out")
    phases = json.loads((tmp_path / "out" / "summary.json").read_text())["phases"]
    assert all(phases[name] > 0 for name in ("data_wait", "forward", "backward", "update", "checkpoint", "evaluate"))
    assert min(phases.values()) >= 0


def test_checkpoint_of_another_model_is_refused(make_recipe, inputs_for, tmp_path) -> None:
    recipe = make_recipe(exec_checkpoint_every=1e-9)
    with pytest.raises(SystemExit):
        train(recipe, inputs_for(recipe), tmp_path / "out", [KillAt(4)])
    other = make_recipe(family="gpt2")
    with pytest.raises(TrainingError, match="do not belong to this model"):
        train(other, inputs_for(other), tmp_path / "out")


def test_the_rehearsal_changes_nothing(make_recipe, inputs_for, tmp_path, monkeypatch) -> None:
    recipe = make_recipe()
    inputs = inputs_for(recipe)
    train(recipe, inputs, tmp_path / "with")
    monkeypatch.setattr(Trainer, "_rehearse", lambda self: (0, 0))
    train(recipe, inputs, tmp_path / "without")
    assert_same(tmp_path / "with", tmp_path / "without")


def test_what_trains_on_ranks_and_hosts_is_where_it_is_looked_for() -> None:
    assert [load(name, kind="layout").__name__ for name in (ON_THIS_HOST, TOGETHER)] == [
        "train_on_ranks",
        "call_and_train",
    ]
