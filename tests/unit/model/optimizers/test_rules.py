"""Every optimizer that a recipe names: the contract, its keys, and its bytes beside the plan's."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

from trainwright.model.build import build_network
from trainwright.planner.counts.parameters import factored_elements, moments_per_parameter, total_parameters
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.sections.train import TrainSection
from trainwright.spec.sections.updates.optimizer import OPTIMIZERS
from trainwright.spec.workload import Workload
from trainwright.stages.train.optimizer import Optimizers
from trainwright.testing.contract_optimizer import OptimizerContract


class TestSgd(OptimizerContract):
    optimizer = "sgd"
    keys: ClassVar[dict[str, Any]] = {"lr": 0.1}


class TestPlainSgd(OptimizerContract):
    optimizer = "sgd"
    keys: ClassVar[dict[str, Any]] = {"lr": 0.5, "momentum": 0}


class TestAdam(OptimizerContract):
    optimizer = "adam"


class TestAdafactor(OptimizerContract):
    optimizer = "adafactor"


class TestLion(OptimizerContract):
    optimizer = "lion"


class TestScheduleFree(OptimizerContract):
    optimizer = "schedule-free-adamw"
    keys: ClassVar[dict[str, Any]] = {"lr": 0.05}

    def section(self):
        """Its weights are averaged, which a schedule that decays would do twice."""
        chosen = {"optimizer": {"name": self.optimizer} | self.keys, "schedule": {"name": "constant"}}
        return TrainSection.model_validate(chosen).optimizer

    def test_every_key_is_written_down_and_read_back(self):
        written = TrainSection(optimizer=self.section(), schedule={"name": "constant"}).model_dump(mode="json")
        assert written["optimizer"].keys() == type(self.section()).model_fields.keys()
        assert TrainSection.model_validate(written).optimizer == self.section()


def section_of(name, **keys):
    return TrainSection.model_validate({"optimizer": {"name": name} | keys, "schedule": {"name": "constant"}}).optimizer


CHOSEN = [
    *((name, {}) for name in OPTIMIZERS),
    ("sgd", {"momentum": 0}),
    ("adamw", {"moments": "bf16"}),
]


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("name", "keys"), CHOSEN, ids=str)
def test_the_plans_bytes_are_those_of_the_real_state(name, keys, family, tied):
    """All but numbers that stand once for a tensor, such as its count of steps."""
    section = section_of(name, **keys)
    shape = ModelSection(family=family, layers=2, width=32, heads=4, kv_heads=4, context_tokens=8, tied=tied)
    network = build_network(shape.spec(vocabulary=50))
    network.initialise(1)
    optimizers = Optimizers(network, section)
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizers.step(1.0)
    work = Workload(sequence_tokens=8, batch_tokens=8, steps=1, precision="fp32", optimizer=section.counted)
    size = {None: 4, "bf16": 2}[section.reduced_moments]
    planned = size * moments_per_parameter(network.spec, work) * total_parameters(network.spec)
    real = sum(tensor.nbytes for _, tensor in optimizers.tensors() if tensor.ndim)
    assert planned == pytest.approx(real, rel=1e-12)
    assert real == {"adafactor": 4 * factored_elements(network.spec)}.get(name, real)
