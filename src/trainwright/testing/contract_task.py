"""What every task keeps, as a class of tests that a plug-in's test module inherits."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from math import isfinite

import pytest
import torch
from torch import Tensor

from trainwright.artifact.shards import TokenSplit
from trainwright.cli.output import Output
from trainwright.model.network import Network
from trainwright.model.tasks.task import Batch, EvaluationOptions, Task
from trainwright.render import numbers
from trainwright.render.results.evaluation import show
from trainwright.stages.report.quality import measured

BATCH_SEQUENCES = 7
SEED = 3


class TaskContract(ABC):
    """A subclass gives a task, a split of its kind of dataset and a network with its head.

    The network computes in fp64, so that what differs by more than rounding is a fault::

        class TestMine(TaskContract):
            def make_task(self): ...
            def make_split(self): ...
            def make_network(self): ...
    """

    @abstractmethod
    def make_task(self) -> Task:
        """Returns the task."""

    @abstractmethod
    def make_split(self) -> TokenSplit:
        """Returns a split with more than ``BATCH_SEQUENCES`` sequences."""

    @abstractmethod
    def make_network(self) -> Network:
        """Returns an initialised network in fp64 on the CPU, in training mode."""

    @pytest.fixture
    def task(self) -> Task:
        """The task under test."""
        return self.make_task()

    @pytest.fixture
    def split(self) -> TokenSplit:
        """What batches are cut from."""
        return self.make_split()

    @pytest.fixture
    def batch(self, task: Task, split: TokenSplit) -> Batch:
        """The batch of step 1."""
        return task.batches(split, batch_sequences=BATCH_SEQUENCES, seed=SEED).batch(1)

    def test_is_a_task(self, task: Task) -> None:
        """It has all that the protocol names."""
        assert isinstance(task, Task)
        assert task.unit

    def test_what_it_says_of_a_dataset_is_a_line_each(self, task: Task, split: TokenSplit) -> None:
        """They are messages of the run."""
        for note in task.notes({"train": split}):
            assert isinstance(note, str)
            assert len(note.splitlines()) == 1

    def test_a_batch_is_a_function_of_seed_and_step(self, task: Task, split: TokenSplit, batch: Batch) -> None:
        """Made again after other steps it is the same; another step or another seed gives another one."""
        again = task.batches(split, batch_sequences=BATCH_SEQUENCES, seed=SEED)
        again.batch(0)
        assert _equal(again.batch(1), batch)
        assert not _equal(again.batch(2), batch)
        assert not _equal(task.batches(split, batch_sequences=BATCH_SEQUENCES, seed=SEED + 1).batch(1), batch)

    def test_a_part_of_a_batch_is_read_alone(self, task: Task, split: TokenSplit, batch: Batch) -> None:
        """So that each rank reads its own sequences; with more ranks than sequences some read none."""
        batches = task.batches(split, batch_sequences=BATCH_SEQUENCES, seed=SEED)
        for rows in (range(1), range(1, BATCH_SEQUENCES), range(2, 2)):
            part = batches.batch(1, rows)
            assert _equal(part, {name: tensor[rows.start : rows.stop] for name, tensor in batch.items()})

    def test_every_tensor_of_a_batch_has_its_sequences_first(self, batch: Batch) -> None:
        """So that micro batches can be cut."""
        assert {tensor.shape[0] for tensor in batch.values()} == {BATCH_SEQUENCES}

    def test_the_weight_is_what_the_losses_weigh_together(self, task: Task, batch: Batch) -> None:
        """Known before anything is computed, whatever the micro batches."""
        network = self.make_network()
        for size in (1, 3, BATCH_SEQUENCES):
            weights = [int(_loss(task, network, micro)[1]) for micro in _micro_batches(batch, size)]
            assert sum(weights) == int(task.weight(batch)) > 0

    @pytest.mark.parametrize("size", [1, 2, 3, BATCH_SEQUENCES])
    def test_the_gradient_is_the_same_for_any_micro_batches(self, task: Task, batch: Batch, size: int) -> None:
        """Sums over parts are the sum over the whole, to the rounding of fp64."""
        whole, whole_loss = self._gradients(task, batch, BATCH_SEQUENCES)
        parts, loss = self._gradients(task, batch, size)
        assert loss == pytest.approx(whole_loss, rel=1e-12)
        for name, gradient in whole.items():
            torch.testing.assert_close(parts[name], gradient, atol=1e-12, rtol=1e-9, msg=name)

    def test_the_gradient_is_that_of_the_loss(self, task: Task, batch: Batch) -> None:
        """Along its own direction the loss rises by the gradient's square, by central differences."""
        network = self.make_network()
        inputs = task.inputs(network, batch)
        parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]

        def loss() -> Tensor:
            return task.loss(network, task.hidden(network, inputs), inputs)[0]

        gradients = torch.autograd.grad(loss(), parameters)
        square = sum(float(gradient.square().sum()) for gradient in gradients)
        length = 1e-4 / square**0.5
        values = []
        with torch.no_grad():
            for sign in (1, -2):
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter.add_(gradient, alpha=sign * length)
                values.append(float(loss()))
        assert (values[0] - values[1]) / (2 * length) == pytest.approx(square, rel=1e-4)

    def test_it_hands_the_keys_of_sequences_on(self, task: Task, batch: Batch) -> None:
        """The network drops elements by them where the recipe asks for dropout."""
        network, seen = self.make_network(), list[Tensor | None]()
        network.register_forward_pre_hook(lambda _, __, known: seen.append(known.get("samples")), with_kwargs=True)
        for micro in _micro_batches({**batch, "samples": torch.arange(BATCH_SEQUENCES)}, 3):
            _loss(task, network, micro)
            given = seen[-1]
            assert given is not None, "its network is called without samples"
            assert torch.equal(given, micro["samples"])

    def test_an_evaluation_is_the_same_for_any_batch_size_and_says_its_loss_first(
        self, task: Task, split: TokenSplit
    ) -> None:
        """Nothing of the batch that a sequence lies in reaches its numbers."""
        network = self.make_network().eval()
        one = task.evaluate(network, split, EvaluationOptions(batch_sequences=1, detailed=True))
        many = task.evaluate(network, split, EvaluationOptions(batch_sequences=5))
        assert next(iter(one.metrics)) == "loss"
        assert not many.details
        assert one.count == many.count > 0
        for name, metric in one.metrics.items():
            assert many.metrics[name].value == pytest.approx(metric.value, rel=1e-6, nan_ok=True), name
            assert name not in one.record, "a number is said once"

    def test_its_evaluation_can_be_shown(self, task: Task, split: TokenSplit) -> None:
        """On the command line and in the report: each metric in a column, and how much it was measured on."""
        evaluation = task.evaluate(
            self.make_network().eval(), split, EvaluationOptions(batch_sequences=5, detailed=True)
        )
        measured_split = evaluation.as_json(unit=task.unit) | {"seconds": 2.0}
        record = {"splits": {"test": measured_split}, "completions": []}
        record = json.loads(json.dumps(record, allow_nan=False))
        text = io.StringIO()
        show(record, Output(command="evaluate", stdout=text))
        section = repr(measured(record))
        loss = evaluation.metrics["loss"].value
        assert isfinite(loss)
        for shown in (text.getvalue(), section):
            assert numbers.measured(loss) in shown
            assert f"{evaluation.count:,}" in shown

    def test_an_evaluation_leaves_the_network_as_it_was(self, task: Task, split: TokenSplit) -> None:
        """Mode and gradients are training's own."""
        network = self.make_network().train()
        task.evaluate(network, split, EvaluationOptions(batch_sequences=2))
        assert network.training
        assert all(parameter.grad is None for parameter in network.parameters())

    def _gradients(self, task: Task, batch: Batch, size: int) -> tuple[dict[str, Tensor], float]:
        network = self.make_network()
        total = 0.0
        for micro in _micro_batches(batch, size):
            loss, _ = _loss(task, network, micro)
            (loss / task.weight(batch)).backward()
            total += float(loss.detach())
        return {name: p.grad for name, p in network.named_parameters() if p.grad is not None}, total


def _loss(task: Task, network: Network, micro: Batch) -> tuple[Tensor, Tensor]:
    inputs = task.inputs(network, micro)
    return task.loss(network, task.hidden(network, inputs), inputs)


def _micro_batches(batch: Batch, size: int) -> Iterator[Batch]:
    parts = zip(*(tensor.split(size) for tensor in batch.values()), strict=True)
    return (dict(zip(batch, tensors, strict=True)) for tensors in parts)


def _equal(first: Batch, second: Batch) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
