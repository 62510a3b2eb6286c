"""Chats keep the contract of tasks; each chat is learnt as if it stood alone; loss and gradients are transformers'."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fixtures.exact_llama import exact_llama, gradients, ours
from fixtures.family_parity import exactly
from trainwright.artifact.shard_writer import SplitWriter, write_dataset
from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError
from trainwright.model.build import build_network
from trainwright.model.tasks.chat import Chat, chat
from trainwright.model.tasks.task import EvaluationOptions, load_task
from trainwright.spec.recipe import Recipe
from trainwright.testing.artifacts import make_dataset
from trainwright.testing.contract_task import TaskContract

VOCABULARY, SEQUENCE = 60, 24


def made_recipe(**keys) -> Recipe:
    chats = {"sources": [{"kind": "chats", "paths": ["x.jsonl"]}], "chat": {"template": "turns"}}
    return Recipe.model_validate(
        {
            "name": "tiny",
            "task": {"name": "chat"},
            "model": {"layers": 2, "width": 16, "heads": 2, "context_tokens": 32},
            "data": chats,
            "train": {"sequence_tokens": SEQUENCE, "batch_tokens": 4 * SEQUENCE},
        }
        | keys
    )


def write_chats(folder, sizes, *, kind="chats"):
    random = np.random.default_rng(7)
    writer = SplitWriter(folder, "train", vocabulary=VOCABULARY, end_of_text_id=0)
    for size in sizes:
        answers = np.arange(size) >= random.integers(1, size - 1)
        writer.append_chat(random.integers(1, VOCABULARY, size), answers, text_bytes=size)
    entries = {"train": writer.close()}
    write_dataset(folder, vocabulary=VOCABULARY, end_of_text="x", end_of_text_id=0, splits=entries, kind=kind)
    return TokenDataset.open(folder)


@pytest.fixture(scope="module")
def chats(tmp_path_factory) -> TokenDataset:
    sizes = np.random.default_rng(3).integers(4, SEQUENCE + 2, 40)
    return write_chats(tmp_path_factory.mktemp("chats"), sizes.tolist())


def made_network(family: str = "llama"):
    recipe = made_recipe()
    recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"family": family})})
    network = build_network(recipe.model_spec(vocabulary=VOCABULARY), dtype=torch.float64)
    network.initialise(1)
    return network.double()


@pytest.mark.parametrize("family", ["llama", "gpt2"])
class TestContract(TaskContract):
    @pytest.fixture(autouse=True)
    def _parts(self, chats: TokenDataset, family: str) -> None:
        self.dataset, self.family = chats, family

    def make_task(self) -> Chat:
        return chat(made_recipe(), self.dataset)

    def make_split(self):
        return self.dataset.splits["train"]

    def make_network(self):
        return made_network(self.family)


def alone(split, number):
    """The tokens of a chat and which of them are answers."""
    start, end = int(split.document_ends[number - 1]) if number else 0, int(split.document_ends[number])
    return split.read(start, end).astype(np.int64), split.answers(start, end)


def test_loss_and_gradients_of_packed_chats_are_those_of_transformers_on_each_chat_alone(chats):
    task, split = chat(made_recipe(), chats), chats.splits["train"]
    with exactly("llama"):
        theirs = exact_llama(vocabulary=VOCABULARY)
        network = ours(theirs)
        _compare_packed_chats(task, split, theirs, network)


def _compare_packed_chats(task, split, theirs, network):
    batches = task.batches(split, batch_sequences=5, seed=2)
    batch = batches.batch(0)
    inputs = task.inputs(network, batch)
    loss, weight = task.loss(network, task.hidden(network, inputs), inputs)
    (loss / weight).backward()
    total, counted = torch.zeros((), dtype=torch.float64), 0
    for row in range(5):
        for number in batches.packing(0).of(batches_place(batches, row)):
            ids, answers = alone(split, number)
            logits = theirs(torch.from_numpy(ids)[None]).logits[0, :-1]
            targets = torch.from_numpy(np.where(answers, ids, -100)[1:])
            total = total + F.cross_entropy(logits, targets, ignore_index=-100, reduction="sum")
            counted += int(answers[1:].sum())
    (total / counted).backward()
    assert int(weight) == counted == int(task.weight(batch))
    assert loss.item() == pytest.approx(total.item(), rel=1e-9)
    wanted = gradients(theirs, network)
    for name, parameter in network.named_parameters():
        assert float((parameter.grad - wanted[name]).norm() / wanted[name].norm()) < 1e-9, name


def batches_place(batches, row):
    """Which sequence of the first epoch a row of the first batch is, found by its tokens."""
    wanted = batches.batch(0, range(row, row + 1))["tokens"]
    places = range(batches.packing(0).sequences)
    return next(n for n in places if torch.equal(batches.filled([batches.packing(0).of(n)])["tokens"], wanted))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_an_evaluation_measures_each_chat_as_if_it_stood_alone(chats, family):
    task, split, network = chat(made_recipe(), chats), chats.splits["train"], made_network(family).eval()
    costs = task.costs(network, split, EvaluationOptions(batch_sequences=3))
    with torch.no_grad():
        for number, nats, tokens in zip(costs.chats, costs.nats, costs.tokens, strict=True):
            ids, answers = alone(split, int(number))
            logits = network.logits(network(torch.from_numpy(ids)[None, :-1]))[0].double()
            each = F.cross_entropy(logits, torch.from_numpy(ids[1:]), reduction="none").numpy()
            assert nats == pytest.approx(each[answers[1:]].sum(), rel=1e-6)
            assert tokens == answers[1:].sum()
    result = task.evaluate(network, split, EvaluationOptions(batch_sequences=4, detailed=True))
    loss = costs.nats.sum() / costs.tokens.sum()
    assert result.metrics["loss"].value == pytest.approx(loss, rel=1e-6)
    assert result.metrics["perplexity"].value == pytest.approx(math.exp(loss), rel=1e-6)
    hardest = result.details["hardest_chats"]
    assert hardest[0]["loss"] == pytest.approx((costs.nats / costs.tokens).max(), rel=1e-6)


def test_chats_that_no_sequence_holds_are_left_out_and_told(tmp_path):
    dataset = write_chats(tmp_path, [5, SEQUENCE + 2, SEQUENCE + 1, 9])
    task, split = chat(made_recipe(), dataset), dataset.splits["train"]
    (note,) = task.notes({"train": split})
    assert note == f"chats longer than train.sequence_tokens ({SEQUENCE}) are left out: 1 of train"
    result = task.evaluate(made_network(), split, EvaluationOptions(batch_sequences=2))
    assert result.record == {"chats": 3, "left_out_chats": 1}
    with pytest.raises(DataError, match="no chat of the train split fits into a sequence"):
        Chat(sequence_tokens=3).batches(split, batch_sequences=1, seed=0)


def test_a_dataset_of_another_kind_is_refused(tmp_path):
    texts = TokenDataset.open(make_dataset(tmp_path, {"train": ["one two three"] * 9}).path)
    with pytest.raises(DataError, match="holds no chats .*seen documents, expected chats"):
        load_task(made_recipe(), texts)


def test_task_and_sources_belong_together():
    with pytest.raises(ValueError, match="data.sources give documents, and the task chat needs kind: chats"):
        made_recipe(data={"sources": [{"kind": "jsonl", "paths": ["x"]}]})
    with pytest.raises(ValueError, match="data.sources give chats, and the task next-token needs documents"):
        made_recipe(task={"name": "next-token"})
