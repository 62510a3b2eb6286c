"""Several labels keep the contract of tasks; loss and scores are those of each document alone, worked out by hand."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch

from fixtures.telling import telling
from trainwright.artifact.shards import TokenDataset, TokenSplit
from trainwright.core.errors import DataError, RecipeError
from trainwright.model.network import Network
from trainwright.model.tasks.documents.classify_many import ClassifyMany, classify_many
from trainwright.model.tasks.task import EvaluationOptions, load_task
from trainwright.spec.recipe import Recipe
from trainwright.testing.artifacts import make_dataset
from trainwright.testing.contract_task import TaskContract

LABELS = ("old", "short", "odd")
SEQUENCE = 12


def made_recipe(family: str = "llama", labels=LABELS) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "tiny",
            "task": {"name": "classify-many", "labels": list(labels)},
            "model": {"family": family, "layers": 2, "width": 16, "heads": 2, "context_tokens": 16},
            "data": {"sources": [{"kind": "jsonl", "paths": ["x"], "label_key": "tags", "label_kind": "names"}]},
            "train": {"sequence_tokens": SEQUENCE, "batch_tokens": 4 * SEQUENCE},
        }
    )


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> TokenDataset:
    random = Random(5)
    texts = [" ".join(random.choices(["alpha", "beta", "(x)", "\n"], k=random.randint(1, 9))) for _ in range(20)]
    sets = [tuple(sorted(random.sample(("odd", "old"), random.randint(0, 2)))) for _ in texts]
    root = tmp_path_factory.mktemp("documents")
    return TokenDataset.open(make_dataset(root, {"train": texts}, labels={"train": sets}).path)


def made_network(dataset: TokenDataset, family: str = "llama") -> Network:
    return telling(made_recipe(family).model_spec(vocabulary=dataset.vocabulary))


@pytest.mark.parametrize("family", ["llama", "bert"])
class TestContract(TaskContract):
    @pytest.fixture(autouse=True)
    def _parts(self, documents: TokenDataset, family: str) -> None:
        self.dataset, self.family = documents, family

    def make_task(self) -> ClassifyMany:
        return classify_many(made_recipe(self.family), self.dataset)

    def make_split(self) -> TokenSplit:
        return self.dataset.splits["train"]

    def make_network(self) -> Network:
        return made_network(self.dataset, self.family)


@pytest.mark.parametrize("family", ["llama", "bert"])
def test_any_batch_size_measures_what_each_document_gives_alone(documents, family) -> None:
    split, network, nats, right = documents.splits["train"], made_network(documents, family), 0.0, 0
    ends = split.document_ends.tolist()
    for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        ids = split.read(start, end - 1).astype(np.int64).tolist()
        if family == "bert":
            ids = [documents.end_of_text_id, *ids[: SEQUENCE - 2], documents.end_of_text_id]
        with torch.no_grad():
            hidden = network(torch.tensor([ids[:SEQUENCE]]))[0, 0 if family == "bert" else -1]
            odds = network.logits(hidden).tolist()
        there = {documents.labels[each] for each in documents.label_sets[split.document_labels[number]]}
        signs = [1 if label in there else -1 for label in LABELS]
        nats += sum(np.log1p(np.exp(-sign * odd)) for sign, odd in zip(signs, odds, strict=True))
        right += all(sign * odd > 0 for sign, odd in zip(signs, odds, strict=True))
    task = classify_many(made_recipe(family), documents)
    results = [task.evaluate(network, split, EvaluationOptions(batch_sequences=size)) for size in (1, 3, 20)]
    for result in results:
        assert (result.count, result.record["documents"]) == (60, 20)
        assert result.metrics["loss"].value == pytest.approx(nats / 60, rel=1e-6)
        assert result.metrics["subset_accuracy"].value == right / 20
        assert result.metrics["micro_f1"] == results[0].metrics["micro_f1"]
        assert result.metrics["roc_area"].value == pytest.approx(results[0].metrics["roc_area"].value)


def test_the_loss_is_that_of_torch_for_yes_and_no(documents) -> None:
    task, network = classify_many(made_recipe(), documents), made_network(documents)
    batch = task.batches(documents.splits["train"], batch_sequences=5, seed=2).batch(0)
    inputs = task.inputs(network, batch)
    hidden = task.hidden(network, inputs)
    loss, weight = task.loss(network, hidden, inputs)
    mean = torch.nn.BCEWithLogitsLoss()(network.logits(hidden), batch["has"].double())
    assert int(weight) == int(task.weight(batch)) == 15
    assert float((loss / weight).detach()) == pytest.approx(float(mean.detach()))


def test_a_document_has_its_own_labels_in_the_order_of_the_head(documents) -> None:
    split, task = documents.splits["train"], classify_many(made_recipe(), documents)
    has = task.answers(split, np.arange(20))["has"]
    for number, row in enumerate(has):
        there = {documents.labels[each] for each in documents.label_sets[split.document_labels[number]]}
        assert {label for label, flag in zip(LABELS, row, strict=True) if flag} == there


def test_labels_that_tell_nothing_are_said(tmp_path) -> None:
    texts = {"train": ["a", "b"], "validation": ["c", "d"]}
    sets = {"train": [("odd",), ("odd",)], "validation": [("old",), ()]}
    dataset = TokenDataset.open(make_dataset(tmp_path, texts, labels=sets).path)
    assert classify_many(made_recipe(), dataset).notes(dataset.splits) == [
        "no document of the train split has the label 'old' (1 of validation)",
        "no document of the train split has the label 'short'",
        "every document of the train split has the label 'odd'",
    ]


def test_other_labels_and_other_datasets_are_refused(documents, tmp_path) -> None:
    with pytest.raises(RecipeError, match=r"task.labels: documents have labels that task.labels lacks \(seen 'odd'"):
        load_task(made_recipe(labels=("old", "short")), documents)
    single = TokenDataset.open(make_dataset(tmp_path, {"train": ["a"]}, labels={"train": ["odd"]}).path)
    with pytest.raises(DataError, match="the documents of this dataset have no lists of labels"):
        load_task(made_recipe(), single)
