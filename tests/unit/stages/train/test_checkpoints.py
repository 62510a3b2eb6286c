"""Checkpoints are complete or absent, and only so many are kept."""

from __future__ import annotations

import resource
import shutil
import signal

import pytest
import torch

from trainwright.artifact.events import Events
from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError, MachineError
from trainwright.model.bundle import load_bundle
from trainwright.model.decoder import Decoder
from trainwright.spec.measures import PhaseTimes
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.sections.train import AdamWSection
from trainwright.stages.train import checkpoints as module
from trainwright.stages.train.checkpoints import Checkpoints, State, TrainingProgress, verify
from trainwright.stages.train.optimizer import Optimizers


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


def store(tmp_path, dataset, *, keep: int = 2) -> Checkpoints:
    return Checkpoints(
        tmp_path / "checkpoints", keep=keep, tokenizer=dataset.path / "tokenizer.json", events=Events(None, run="t")
    )


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


def test_what_kills_left_of_checkpoints_is_deleted(tmp_path, dataset, parts, monkeypatch) -> None:
    def killed(*_):
        raise KeyboardInterrupt

    def rmtree(path, **options):
        return killed() if (path / "checkpoint.json").exists() else delete(path, **options)

    delete = shutil.rmtree
    checkpoints = store(tmp_path, dataset, keep=1)
    checkpoints.save(at(parts, 1))
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_bundle", killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(at(parts, 2))
        patch.undo()
        patch.setattr(shutil, "rmtree", rmtree)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(at(parts, 3))  # while the first one is deleted
    assert [path.name for path in checkpoints.paths()] == ["step-00000003"]
    assert len(list(checkpoints.root.iterdir())) == 3
    assert [path.name for path in store(tmp_path, dataset).root.iterdir()] == ["step-00000003"]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "tokenizer.json"])
def test_every_file_is_under_a_digest(tmp_path, dataset, parts, name) -> None:
    path = store(tmp_path, dataset).save(at(parts, 1)).wait()
    verify(path)
    with (path / name).open("r+b") as stream:
        stream.seek(-1, 2)
        last = stream.read(1)
        stream.seek(-1, 2)
        stream.write(bytes([last[0] ^ 1]))
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        verify(path)


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
    assert checkpoints.paths() == [good]
    verify(good)


def test_progress_adds_up_what_was_spent() -> None:
    spent = TrainingProgress(step=1).spent(PhaseTimes(forward=1.0)).spent(PhaseTimes(forward=0.5, update=2.0))
    assert spent.phases["forward"] == 1.5
    assert sum(spent.phases.values()) == 3.5
