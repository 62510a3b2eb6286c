"""The contract notices a task that breaks it: each broken task below fails the test that is about it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch

from trainwright.model.tasks.next_token import NextToken
from trainwright.model.tasks.task import Batch, Evaluation, Metric
from trainwright.testing.contract_task import TaskContract


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanOfMeans(NextToken):
    """Divides by its own micro batch, as trainers often do."""

    def loss(self, network, hidden, inputs):
        total, weight = NextToken.loss(self, network, hidden, inputs)
        return total / weight, weight


@dataclass(frozen=True, kw_only=True, slots=True)
class WrongWeight(NextToken):
    """Counts inputs, not targets."""

    def weight(self, batch: Batch) -> torch.Tensor:
        return torch.tensor(batch["tokens"].numel())


class Silent(NextToken):
    """Does not say which sequences its network sees."""

    def inputs(self, network, batch):
        return {name: tensor for name, tensor in NextToken.inputs(self, network, batch).items() if name != "samples"}


class LossAlone(NextToken):
    """Measures no more than every task has to: no documents, no bytes, no tables."""

    value = 1.5

    def evaluate(self, network, split, options):
        return Evaluation(count=1234, metrics={"loss": Metric(value=self.value)})


class LossOfNothing(LossAlone):
    """Has a loss that no record can hold."""

    value = math.nan


class SaidTwice(LossAlone):
    """Records its loss beside the metric."""

    def evaluate(self, network, split, options):
        return replace(super().evaluate(network, split, options), record={"loss": self.value})


class Contract(TaskContract):
    __test__ = False

    def __init__(self, tiny, task) -> None:
        self.tiny, self.task = tiny, task

    def make_task(self):
        return self.task

    def make_split(self):
        pytest.fail("the tests below bring their own batch")

    def make_network(self):
        return self.tiny.decoder(dtype=torch.float64).to(torch.float64).train().requires_grad_(True)


@pytest.fixture
def batch() -> Batch:
    return {"tokens": torch.randint(0, 320, (7, 9), generator=torch.Generator().manual_seed(1))}


def test_a_mean_of_means_is_noticed(tiny, batch) -> None:
    good, bad = (Contract(tiny, task(sequence_tokens=8)) for task in (NextToken, MeanOfMeans))
    good.test_the_gradient_is_the_same_for_any_micro_batches(good.task, batch, 2)
    with pytest.raises(AssertionError):
        bad.test_the_gradient_is_the_same_for_any_micro_batches(bad.task, batch, 2)


def test_a_weight_that_the_losses_do_not_have_is_noticed(tiny, batch) -> None:
    good, bad = (Contract(tiny, task(sequence_tokens=8)) for task in (NextToken, WrongWeight))
    good.test_the_weight_is_what_the_losses_weigh_together(good.task, batch)
    with pytest.raises(AssertionError):
        bad.test_the_weight_is_what_the_losses_weigh_together(bad.task, batch)


def test_keys_that_do_not_reach_the_network_are_noticed(tiny, batch) -> None:
    good, bad = (Contract(tiny, task(sequence_tokens=8)) for task in (NextToken, Silent))
    good.test_it_hands_the_keys_of_sequences_on(good.task, batch)
    with pytest.raises(AssertionError, match="called without samples"):
        bad.test_it_hands_the_keys_of_sequences_on(bad.task, batch)


def test_an_evaluation_that_cannot_be_shown_is_noticed(tiny) -> None:
    good, bad = (Contract(tiny, task(sequence_tokens=8)) for task in (LossAlone, LossOfNothing))
    good.test_its_evaluation_can_be_shown(good.task, None)
    with pytest.raises(AssertionError):
        bad.test_its_evaluation_can_be_shown(bad.task, None)


def test_an_evaluation_needs_no_tables_and_says_no_number_twice(tiny) -> None:
    good, bad = (Contract(tiny, task(sequence_tokens=8)) for task in (LossAlone, SaidTwice))
    good.test_an_evaluation_is_the_same_for_any_batch_size_and_says_its_loss_first(good.task, None)
    with pytest.raises(AssertionError, match="said once"):
        bad.test_an_evaluation_is_the_same_for_any_batch_size_and_says_its_loss_first(bad.task, None)
