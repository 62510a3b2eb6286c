"""A checkpoint fills a network and an optimizer of its shape; ``tests/parallel`` has every layout."""

from __future__ import annotations

import pytest
import torch

from fixtures.tiny_models import decoder, tokenizer
from trainwright.artifact.checkpoint.reader import CheckpointReader
from trainwright.artifact.events import Events
from trainwright.core.errors import TrainingError
from trainwright.model.bundle import load_bundle
from trainwright.spec.sections.updates.optimizer import AdamWSection
from trainwright.stages.train.checkpoints import Checkpoints, State, TrainingProgress
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.saving.reading import damage, load_tensors
from trainwright.stages.train.world import ALONE


def stepped(network) -> Optimizers:
    optimizers = Optimizers(network, AdamWSection())
    for parameter in network.parameters():
        parameter.requires_grad_().grad = torch.ones_like(parameter)
    optimizers.step(1.0)
    return optimizers


@pytest.fixture
def saved(tmp_path):
    (tmp_path / "tokenizer.json").write_text(tokenizer().to_str())
    network = decoder()
    optimizers = stepped(network)
    checkpoints = Checkpoints(
        tmp_path / "c", keep=2, tokenizer=tmp_path / "tokenizer.json", events=Events(None, run="t")
    )
    state = State(network=network, optimizers=optimizers, progress=TrainingProgress(step=1))
    return network, optimizers, checkpoints.save(state).wait()


def test_everything_comes_back(saved) -> None:
    network, optimizers, path = saved
    other = decoder()
    states = Optimizers(other, AdamWSection())
    load_tensors(CheckpointReader(path), dict(other.named_parameters()), states, ALONE)
    for ours, theirs in (
        (network.named_parameters(), other.named_parameters()),
        (optimizers.tensors(), states.tensors()),
    ):
        expected, found = dict(ours), dict(theirs)
        assert expected.keys() == found.keys()
        assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_part_of_the_names_is_refused(saved) -> None:
    network, optimizers, path = saved
    some = dict(list(network.named_parameters())[1:])
    with pytest.raises(TrainingError, match="on one side only"):
        load_tensors(CheckpointReader(path), some, optimizers, ALONE)


def test_damage_is_found_before_anything_is_read(saved) -> None:
    _, _, path = saved
    assert damage(path, ALONE) is None
    (path / "state.json").write_text("{")
    assert "state.json" in str(damage(path, ALONE))
    (path / "checkpoint.json").unlink()
    assert "no complete checkpoint" in str(damage(path, ALONE))


def test_a_checkpoint_of_one_process_is_a_bundle(saved) -> None:
    network, _, path = saved
    assert torch.equal(load_bundle(path)[0].embedding, network.embedding)
