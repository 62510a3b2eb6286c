"""Checkpoints are complete or absent, and only so many are kept."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import threading
from dataclasses import replace

import pytest
import torch

from trainwright.artifact.checkpoint.reader import CheckpointReader
from trainwright.artifact.events import Events
from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import MachineError, TrainingError
from trainwright.model.bundle import load_bundle
from trainwright.model.decoder import Decoder
from trainwright.spec.measures import PhaseTimes
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.sections.updates.optimizer import AdamWSection
from trainwright.stages.train.checkpoints import Checkpoints, State, TrainingProgress
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.saving import writing as module
from trainwright.stages.train.saving.keeping import Policy


@pytest.fixture
def parts(dataset):
    size = TokenDataset.open(dataset.path).vocabulary
    model = Decoder(ModelSection(layers=1, width=16, heads=2).spec(vocabulary=size))
    model.initialise(1)
    optimizers = Optimizers(model, AdamWSection())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizers.step(1.0)
    return model, optimizers


def at(parts, step: int) -> State:
    network, optimizers = parts
    return State(network=network, optimizers=optimizers, progress=TrainingProgress(step=step))


def store(tmp_path, dataset, *, keep: int | Policy = 2, listeners=()) -> Checkpoints:
    events = Events(None, run="t", listeners=listeners)
    return Checkpoints(tmp_path / "checkpoints", keep=keep, tokenizer=dataset.path / "tokenizer.json", events=events)


def test_keeps_the_newest_and_each_is_a_model_bundle(tmp_path, dataset, parts) -> None:
    checkpoints = store(tmp_path, dataset)
    for step in (1, 2, 10):
        checkpoints.save(at(parts, step)).wait()
    assert [path.name for path in checkpoints.paths()] == ["step-00000002", "step-00000010"]
    loaded, tokenizer = load_bundle(checkpoints.paths()[-1])
    assert torch.equal(loaded.embedding, parts[0].embedding)
    assert tokenizer.get_vocab_size() == loaded.spec.vocabulary


def test_a_half_written_checkpoint_is_invisible(tmp_path, dataset, parts) -> None:
    checkpoints = store(tmp_path, dataset)
    whole = checkpoints.save(at(parts, 1)).wait()
    shutil.copytree(whole, tmp_path / "checkpoints" / "step-00000002")
    (tmp_path / "checkpoints" / "step-00000002" / "checkpoint.json").unlink()
    assert checkpoints.paths() == [whole]
    restored = checkpoints.restore(*parts)
    assert restored is not None and restored.step == 1


def test_a_kill_on_the_way_back_leaves_no_part_of_a_checkpoint(tmp_path, dataset, parts, monkeypatch) -> None:
    checkpoints = store(tmp_path, dataset, keep=3)
    first, *_ = [checkpoints.save(at(parts, step)).wait() for step in (1, 2)]

    def killed(path) -> None:
        (path / "model.safetensors").unlink()
        raise OSError("the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(module.shutil, "rmtree", killed)
        with pytest.raises(MachineError, match="cannot delete a checkpoint"):
            checkpoints.go_back([first])
    assert checkpoints.paths() == [first]
    assert store(tmp_path, dataset).paths() == [first]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [first.name]


def held_back(monkeypatch) -> threading.Event:
    """Writes begin, and go on when this is set."""
    go = threading.Event()
    write = module.write_tensors

    def waiting(path, tensors):
        assert go.wait(60)
        return write(path, tensors)

    monkeypatch.setattr(module, "write_tensors", waiting)
    return go


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path, dataset, parts, monkeypatch) -> None:
    """What later steps change is not in it, and a second write begins after the first."""
    network, _ = parts
    checkpoints, go = store(tmp_path, dataset), held_back(monkeypatch)
    then = network.embedding.detach().clone()
    first = checkpoints.save(at(parts, 1))
    with torch.no_grad():
        network.embedding += 1
    assert not list(checkpoints.root.glob("step-*"))
    threading.Timer(0.2, go.set).start()
    second = checkpoints.save(at(parts, 2))  # waits for the first one
    assert first.wait().is_dir()
    assert torch.equal(load_bundle(first.wait())[0].embedding, then)
    assert torch.equal(load_bundle(second.wait())[0].embedding, then + 1)


def test_paths_wait_for_the_write_under_way(tmp_path, dataset, parts, monkeypatch) -> None:
    checkpoints, go = store(tmp_path, dataset), held_back(monkeypatch)
    checkpoints.save(at(parts, 1))
    threading.Timer(0.2, go.set).start()
    assert [path.name for path in checkpoints.paths()] == ["step-00000001"]


def test_what_kills_left_of_checkpoints_is_deleted(tmp_path, dataset, parts) -> None:
    checkpoints = store(tmp_path, dataset)
    whole = checkpoints.save(at(parts, 3)).wait()
    for name in (".step-00000004", ".step-00000002.old"):
        shutil.copytree(whole, checkpoints.root / name)
    again = store(tmp_path, dataset)
    assert [path.name for path in again.root.iterdir()] == ["step-00000003"]


def test_a_step_is_written_again_in_place_of_the_former(tmp_path, dataset, parts) -> None:
    checkpoints = store(tmp_path, dataset)
    checkpoints.save(at(parts, 1)).wait()
    with torch.no_grad():
        parts[0].embedding += 1
    path = checkpoints.save(at(parts, 1)).wait()
    assert torch.equal(load_bundle(path)[0].embedding, parts[0].embedding)
    assert [each.name for each in checkpoints.root.iterdir()] == ["step-00000001"]


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.safetensors", "state.json", "tokenizer.json", "model.json"]
)
@pytest.mark.parametrize("how", ["flipped", "shorter", "missing"])
def test_a_damaged_checkpoint_is_named_and_passed_over(tmp_path, dataset, parts, name, how) -> None:
    said: list[str] = []
    checkpoints = store(tmp_path, dataset, listeners=(lambda event: said.append(str(event)),))
    for step in (1, 2):
        checkpoints.save(at(parts, step)).wait()
    spoil(checkpoints.root / "step-00000002" / name, how)
    restored = checkpoints.restore(*parts)
    assert restored is not None and restored.step == 1
    assert any("passing over a damaged checkpoint" in each and name in each for each in said)
    spoil(checkpoints.root / "step-00000001" / name, how)
    with pytest.raises(TrainingError, match="every checkpoint of this run is damaged") as caught:
        checkpoints.restore(*parts)
    assert caught.value.exit_code == 5
    assert name in str(caught.value)


def spoil(path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    elif how == "shorter":
        path.write_bytes(data[:-1])
    else:
        data[-1] ^= 1
        path.write_bytes(data)


def test_a_tensor_of_another_run_is_told_from_ours(tmp_path, dataset, parts) -> None:
    ours = store(tmp_path / "ours", dataset).save(at(parts, 1)).wait()
    with torch.no_grad():
        parts[0].embedding += 1
    theirs = store(tmp_path / "theirs", dataset).save(at(parts, 1)).wait()
    shutil.copyfile(theirs / "model.safetensors", ours / "model.safetensors")
    (problem,) = CheckpointReader(ours).damages()
    assert "damaged tensor embedding" in str(problem) and "model.safetensors" in str(problem)


def test_every_byte_of_an_index_counts(tmp_path, dataset, parts) -> None:
    checkpoints = store(tmp_path, dataset)
    path = checkpoints.save(at(parts, 1)).wait() / "checkpoint.json"
    whole = path.read_bytes()
    for place in range(0, len(whole) - 1, 97):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(TrainingError, match="checkpoint.json"):
            checkpoints.restore(*parts)


def test_a_checkpoint_of_another_shape_is_one_line(tmp_path, dataset, parts) -> None:
    checkpoints = store(tmp_path, dataset)
    checkpoints.save(at(parts, 1)).wait()
    size = TokenDataset.open(dataset.path).vocabulary
    other = Decoder(ModelSection(layers=1, width=32, heads=2).spec(vocabulary=size))
    with pytest.raises(TrainingError, match="does not belong to this model") as caught:
        checkpoints.restore(other, Optimizers(other, AdamWSection()))
    assert "\n" not in str(caught.value)
    deeper = Decoder(ModelSection(layers=2, width=16, heads=2).spec(vocabulary=size))
    with pytest.raises(TrainingError, match="on one side only"):
        checkpoints.restore(deeper, Optimizers(deeper, AdamWSection()))


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, dataset, parts) -> None:
    checkpoints = store(tmp_path, dataset)
    good = checkpoints.save(at(parts, 1)).wait()

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        with pytest.raises(MachineError):
            checkpoints.save(at(parts, 2)).wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert store(tmp_path, dataset).paths() == [good]
    assert list(CheckpointReader(good).damages()) == []


def test_the_best_and_those_for_good_are_kept_beside_the_last(tmp_path, dataset, parts) -> None:
    policy = Policy(last=1, best=2, every=4)
    checkpoints = store(tmp_path, dataset, keep=policy)
    for step, loss in enumerate([5.0, 1.0, 3.0, 4.0, 2.0, 6.0, 7.0], start=1):
        wanted = checkpoints.wanted({"loss": loss})
        assert wanted == (step in (1, 2, 3, 5))
        checkpoints.save(replace(at(parts, step), metrics={"loss": loss}))
    assert [path.name[-1] for path in checkpoints.paths()] == ["2", "4", "5", "7"]
    best = {"step": 2, "metric": "loss", "value": 1.0, "checkpoint": "checkpoints/step-00000002"}
    assert checkpoints.best() == best
    again = store(tmp_path, dataset, keep=policy)
    assert again.best() == best
    assert json.loads((checkpoints.paths()[0] / "checkpoint.json").read_text())["metrics"] == {"loss": 1.0}


def test_progress_adds_up_what_was_spent() -> None:
    spent = TrainingProgress(step=1).spent(PhaseTimes(forward=1.0)).spent(PhaseTimes(forward=0.5, update=2.0))
    assert spent.phases["forward"] == 1.5
    assert sum(spent.phases.values()) == 3.5
