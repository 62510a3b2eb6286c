"""A step never waits for the device.

On torch's fake tensors, which have no values, reading one is an error, and so is a shape that depends on one.
"""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from trainwright.model.build import build_network
from trainwright.model.tasks.next_token import NextToken
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.sections.train import AdamWSection, MuonSection
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.step import TrainingStep


def step_of(family: str, section: AdamWSection, *, end_of_text: int | None) -> TrainingStep:
    spec = ModelSection(family=family, layers=2, width=32, heads=4, context_tokens=24).spec(vocabulary=61)
    network = build_network(spec, dtype=torch.bfloat16)
    clock = PhaseClock(torch.device("cpu"))
    clock.start()
    task = NextToken(sequence_tokens=16, end_of_text=end_of_text)
    optimizers = Optimizers(network, section)
    return TrainingStep(task, network, optimizers, clock, micro_batch=2, clip_norm=1.0, compiled=False)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("section", [AdamWSection(), MuonSection()], ids=lambda section: section.name)
@pytest.mark.parametrize("end_of_text", [None, 0])
def test_a_step_asks_the_device_for_nothing(family: str, section: AdamWSection, end_of_text: int | None) -> None:
    with FakeTensorMode():
        step = step_of(family, section, end_of_text=end_of_text)
        for _ in range(2):
            update = step({"tokens": torch.zeros(6, 17, dtype=torch.long)}, 1.0)
        assert update.loss_sum.shape == update.grad_norm.shape == ()


def test_a_step_that_read_a_value_would_be_noticed() -> None:
    with FakeTensorMode():
        step = step_of("llama", AdamWSection(), end_of_text=None)
        update = step({"tokens": torch.zeros(6, 17, dtype=torch.long)}, 1.0)
        with pytest.raises(RuntimeError, match="_local_scalar_dense"):
            float(update.loss_sum)
