"""Distillation keeps the contract of tasks; on whole windows its loss is that of torch on full logits."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from fixtures.tiny_models import decoder
from trainwright.artifact.shards import TokenDataset
from trainwright.model.losses import IGNORE
from trainwright.model.tasks.distillation.distill import Distill
from trainwright.model.tasks.task import EvaluationOptions, HasTeacher, TellsParts
from trainwright.spec.sections.tasks.keys import DistillSection
from trainwright.testing.artifacts import make_dataset
from trainwright.testing.contract_task import TaskContract

SEQUENCE = 12
WORDS = ["alpha", "beta", "(x)", "\n"]


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> TokenDataset:
    texts = [" ".join(WORDS[(number * each) % 4] for each in range(3 + number % 15)) for number in range(1, 25)]
    return TokenDataset.open(make_dataset(tmp_path_factory.mktemp("words"), {"train": texts}).path)


def made_task(end_of_text: int | None, teacher) -> Distill:
    how = DistillSection(name="distill", teacher="x", temperature=2.0, alpha=0.7)
    return Distill(sequence_tokens=SEQUENCE, end_of_text=end_of_text, how=how).taught_by(teacher)


def network(family: str = "llama", seed: int = 1, **shape):
    return decoder(family, seed=seed, dtype=torch.float64, **shape).double().requires_grad_().train()


@pytest.mark.parametrize(("family", "end_of_text"), [("llama", None), ("gpt2", 0)])
class TestContract(TaskContract):
    @pytest.fixture(autouse=True)
    def _parts(self, words: TokenDataset, family: str, end_of_text: int | None) -> None:
        self.dataset, self.family, self.end_of_text = words, family, end_of_text

    def make_task(self) -> Distill:
        return made_task(self.end_of_text, network(self.family, seed=2))

    def make_split(self):
        return self.dataset.splits["train"]

    def make_network(self):
        return network(self.family)


def a_batch() -> dict[str, torch.Tensor]:
    tokens = torch.randint(1, 320, (4, SEQUENCE + 1), generator=torch.Generator().manual_seed(3))
    tokens[0, 5] = 0
    tokens[2, 8:] = IGNORE
    return {"tokens": tokens}


@pytest.mark.parametrize("end_of_text", [None, 0])
def test_loss_parts_and_gradients_are_those_of_torch_on_full_logits(end_of_text) -> None:
    student, teacher, batch = network(), network("gpt2", seed=2), a_batch()
    task = made_task(end_of_text, teacher)
    inputs = task.inputs(student, batch)
    loss, weight = task.loss(student, task.hidden(student, inputs), inputs)
    gradients = torch.autograd.grad(loss, list(student.parameters()))
    told = task.told()

    targets, there = inputs["targets"].flatten(), inputs["targets"].flatten() != IGNORE
    documents = {"documents": inputs["documents"]} if end_of_text is not None else {}
    places = {}
    if documents:  # a position begins anew behind the end of a text
        places["positions"] = torch.stack([torch.tensor(_counted(row)) for row in inputs["documents"].tolist()])
    logits = student.logits(student(inputs["tokens"], **documents)).flatten(0, 1)
    with torch.no_grad():
        theirs = teacher.logits(teacher(inputs["tokens"], **documents, **places)).flatten(0, 1)
    own, other = (F.log_softmax(each[there] / 2, dim=-1) for each in (logits, theirs))
    divergence = F.kl_div(own, other, reduction="sum", log_target=True)
    cross_entropy = F.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="sum")
    truth = 0.7 * 4 * divergence + 0.3 * cross_entropy
    assert int(weight) == int(there.sum())
    torch.testing.assert_close(loss, truth)
    torch.testing.assert_close(told["train/kl"], divergence.detach())
    torch.testing.assert_close(told["train/cross_entropy"], cross_entropy.detach())
    for ours, plain in zip(gradients, torch.autograd.grad(truth, list(student.parameters())), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-8, atol=1e-12)


def _counted(documents: list[int]) -> list[int]:
    return [place - documents.index(number) for place, number in enumerate(documents)]


def test_what_it_told_is_forgotten_and_parts_add_up() -> None:
    student, task, batch = network(), made_task(None, network(seed=2)), a_batch()
    assert isinstance(task, HasTeacher) and isinstance(task, TellsParts)
    inputs = task.inputs(student, batch)
    hidden = task.hidden(student, inputs)
    task.loss(student, hidden, inputs)
    once = task.told()
    for _ in range(2):
        task.loss(student, hidden, inputs)
    torch.testing.assert_close(task.told()["train/kl"], 2 * once["train/kl"])
    assert not task.told()


def test_the_teacher_is_frozen_and_needs_none_to_evaluate(words) -> None:
    teacher = network(seed=2)
    task = made_task(None, teacher)
    assert not teacher.training and not any(parameter.requires_grad for parameter in teacher.parameters())
    without = Distill(sequence_tokens=SEQUENCE, how=task.how)
    options, student = EvaluationOptions(batch_sequences=4), network()
    measured = [each.evaluate(student, words.splits["train"], options).metrics for each in (task, without)]
    assert measured[0] == measured[1]
    assert list(measured[0]) == ["loss", "bits_per_byte", "perplexity"]
