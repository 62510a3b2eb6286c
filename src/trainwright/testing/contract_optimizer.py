"""The contract of an optimizer: what every function in ``train.optimizer.name`` promises, as tests to inherit.

::

    class TestMine(OptimizerContract):
        optimizer = "my_package.rules:lion"
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file, save_file

from trainwright.model.build import build_network
from trainwright.model.network import Network
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.sections.train import TrainSection
from trainwright.spec.sections.updates.optimizer import OptimizerSection
from trainwright.stages.train.optimizer import Optimizers

VOCABULARY = 40


class OptimizerContract:
    """A subclass names the optimizer, and keys of its section where it needs them."""

    optimizer: ClassVar[str]
    """A name of ours, or ``package.module:function``."""
    keys: ClassVar[dict[str, Any]] = {"lr": 0.01}

    def section(self) -> OptimizerSection:
        """Returns the recipe's section."""
        return TrainSection.model_validate({"optimizer": {"name": self.optimizer} | self.keys}).optimizer

    def network(self) -> Network:
        """Returns a small network with tables, matrices, norms and biases."""
        section = ModelSection(family="gpt2", layers=2, width=16, heads=2, context_tokens=8)
        network = build_network(section.spec(vocabulary=VOCABULARY))
        network.initialise(3)
        return network

    def test_every_parameter_is_updated_once(self) -> None:
        """None stays behind, none is in two groups: ``Optimizers`` refuses both."""
        network = self.network()
        optimizers = Optimizers(network, self.section())
        before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
        _train(network, optimizers, steps=1)
        for name, parameter in network.named_parameters():
            assert not torch.equal(parameter, before[name]), name
            assert parameter.isfinite().all(), name

    def test_a_share_of_zero_moves_nothing(self) -> None:
        """All that an update does is in proportion to the learning rate, weight decay too."""
        network = self.network()
        optimizers = Optimizers(network, self.section())
        before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
        _train(network, optimizers, steps=1, share=0.0)
        for name, parameter in network.named_parameters():
            assert torch.equal(parameter, before[name]), name

    def test_it_lowers_the_loss(self) -> None:
        """On one batch, over and over."""
        network = self.network()
        losses = _train(network, Optimizers(network, self.section()), steps=40)
        assert losses[-1] < 0.7 * losses[0]

    def test_a_run_that_goes_on_from_its_state_ends_in_the_same_bits(self, tmp_path: Path) -> None:
        """Its state is tensors with stable names, and nothing else is remembered."""
        whole, first, second = self.network(), self.network(), self.network()
        _train(whole, Optimizers(whole, self.section()), steps=5)
        begun = Optimizers(first, self.section())
        _train(first, begun, steps=3)
        save_file({name: tensor.contiguous() for name, tensor in begun.tensors()}, tmp_path / "state.safetensors")
        second.load_state_dict(first.state_dict())
        resumed = Optimizers(second, self.section())
        resumed.load(load_file(tmp_path / "state.safetensors"))
        _train(second, resumed, steps=2, first=3)
        for name, parameter in whole.named_parameters():
            assert torch.equal(parameter, dict(second.named_parameters())[name]), name

    def test_every_key_is_written_down_and_read_back(self) -> None:
        """None is left out of what the address is made of."""
        written = TrainSection(optimizer=self.section()).model_dump(mode="json")
        assert written["optimizer"].keys() == type(self.section()).model_fields.keys()
        assert TrainSection.model_validate(written).optimizer == self.section()

    def test_every_group_has_a_rate_that_is_logged(self) -> None:
        """By the name of its metric."""
        rates = Optimizers(self.network(), self.section()).peak_rates
        assert all(name.startswith("train/") and rate > 0 for name, rate in rates.items())


def _train(network: Network, optimizers: Optimizers, *, steps: int, share: float = 1.0, first: int = 0) -> list[float]:
    """Updates on batches that depend on the step alone, here always the same one; the losses before each."""
    tokens = torch.randint(0, VOCABULARY, (4, 8), generator=torch.Generator().manual_seed(1))
    losses = []
    for _ in range(first, first + steps):
        loss, weight = network.head_loss(network(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        (loss / weight).backward()
        losses.append(float(loss.detach() / weight))
        optimizers.step(share)
        optimizers.zero_grad()
    return losses
