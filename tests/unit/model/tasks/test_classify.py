"""Classification keeps the contract of tasks; padding is never seen; what it measures is counted by hand."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from trainwright.artifact.shards import TokenDataset, TokenSplit
from trainwright.core.errors import DataError, RecipeError
from trainwright.model.build import build_network
from trainwright.model.network import Network
from trainwright.model.tasks.classify import Classify, classify
from trainwright.model.tasks.task import EvaluationOptions, load_task
from trainwright.planner.counts.parameters import total_parameters
from trainwright.spec.recipe import Recipe
from trainwright.testing.artifacts import make_dataset
from trainwright.testing.contract_task import TaskContract

LABELS = ("ham", "spam", "unsure")
SEQUENCE = 12


def made_recipe(labels=LABELS, **train) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "tiny",
            "task": {"name": "classify", "labels": list(labels)},
            "model": {"layers": 2, "width": 16, "heads": 2, "context_tokens": 16},
            "data": {"sources": [{"kind": "jsonl", "paths": ["x.jsonl"], "label_key": "label"}]},
            "train": {"sequence_tokens": SEQUENCE, "batch_tokens": 4 * SEQUENCE} | train,
        }
    )


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> TokenDataset:
    random = Random(5)
    texts = [" ".join(random.choices(["alpha", "beta", "(x)", "\n"], k=random.randint(1, 9))) for _ in range(20)]
    labels = [random.choice(["spam", "ham"]) for _ in texts]
    root = tmp_path_factory.mktemp("documents")
    return TokenDataset.open(make_dataset(root, {"train": texts}, labels={"train": labels}).path)


def made_network(dataset: TokenDataset, family: str = "llama", dtype=torch.float64) -> Network:
    recipe = made_recipe()
    recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"family": family})})
    network = build_network(recipe.model_spec(vocabulary=dataset.vocabulary), dtype=dtype)
    network.initialise(1)
    with torch.no_grad():
        network.head_weight.mul_(50)  # so that predictions differ
    return network.to(dtype)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
class TestContract(TaskContract):
    @pytest.fixture(autouse=True)
    def _parts(self, documents: TokenDataset, family: str) -> None:
        self.dataset, self.family = documents, family

    def make_task(self) -> Classify:
        return classify(made_recipe(), self.dataset)

    def make_split(self) -> TokenSplit:
        return self.dataset.splits["train"]

    def make_network(self) -> Network:
        return made_network(self.dataset, self.family)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_each_document_is_classified_as_if_it_stood_alone_without_padding(documents, family) -> None:
    split, network = documents.splits["train"], made_network(documents, family)
    counts, nats = np.zeros((3, 3), int), 0.0
    ends = split.document_ends.tolist()
    with torch.no_grad():
        for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            ids = torch.from_numpy(split.read(start, end)[:-1][:SEQUENCE].astype(np.int64))
            logits = network.logits(network(ids[None]))[0, -1]
            true = LABELS.index(documents.labels[split.document_labels[number]])
            nats += float(F.cross_entropy(logits[None], torch.tensor([true])))
            counts[true, int(logits.argmax())] += 1
    options = EvaluationOptions(batch_sequences=6, detailed=True)
    evaluation = classify(made_recipe(), documents).evaluate(network, split, options)
    assert evaluation.details["confusion"] == {"labels": LABELS, "counts": counts.tolist()}
    assert len(np.unique(counts.nonzero()[1])) > 1, "predictions differ"
    assert evaluation.metrics["loss"].value == pytest.approx(nats / split.documents, rel=1e-6)
    assert evaluation.metrics["accuracy"].value == counts.trace() / split.documents
    assert [row["label"] for row in evaluation.details["by_label"]] == list(LABELS)


def test_a_limit_in_tokens_covers_whole_documents(documents) -> None:
    split = documents.splits["train"]
    tokens = int(split.document_ends[4])
    options = EvaluationOptions(batch_sequences=2, tokens=tokens)
    evaluation = classify(made_recipe(), documents).evaluate(made_network(documents), split, options)
    assert evaluation.count == 5


def test_every_document_comes_once_an_epoch_with_its_own_label(documents) -> None:
    split = documents.splits["train"]
    source = classify(made_recipe(), documents).batches(split, batch_sequences=4, seed=3)
    rows = [row for step in range(5) for row in zip(*source.batch(step).values(), strict=True)]
    ends = split.document_ends.tolist()
    expected = []
    for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        ids = split.read(start, end)[:-1][:SEQUENCE].tolist()
        label = LABELS.index(documents.labels[split.document_labels[number]])
        expected.append((ids + [documents.end_of_text_id] * (SEQUENCE - len(ids)), len(ids) - 1, label))
    made = [(tokens.tolist(), int(last), int(number)) for tokens, last, number in rows]
    assert sorted(made) == sorted(expected)
    again = [int(label) for step in range(5, 10) for label in source.batch(step)["class"]]
    assert sorted(again) == sorted(label for _, _, label in made)


def test_documents_that_are_cut_and_labels_without_a_training_document_are_said(tmp_path) -> None:
    texts = {"train": ["a", "b " * 9, "c " * 40, "d " * 50], "validation": ["e " * 60, "f"], "test": ["g"]}
    labels = {"train": ["ham"] * 4, "validation": ["spam", "ham"], "test": ["spam"]}
    dataset = TokenDataset.open(make_dataset(tmp_path, texts, labels=labels).path)
    task = classify(made_recipe(), dataset)
    longer = {name: sum(len(ids) > SEQUENCE for ids in whole(split)) for name, split in dataset.splits.items()}
    assert longer == {"train": 2, "validation": 1, "test": 0}
    assert task.notes(dataset.splits) == [
        "documents longer than train.sequence_tokens (12) are cut to it: 2 of train, 1 of validation",
        "no document of the train split has the label 'spam' (1 of validation, 1 of test)",
        "no document of the train split has the label 'unsure'",
    ]
    result = task.evaluate(made_network(dataset), dataset.splits["train"], EvaluationOptions(batch_sequences=2))
    assert (result.count, result.record["cut_documents"]) == (4, 2)


def whole(split: TokenSplit) -> list[list[int]]:
    ends = split.document_ends.tolist()
    return [split.read(start, end)[:-1].tolist() for start, end in zip([0, *ends], ends, strict=False)]


def test_the_planner_counts_the_classifier_as_it_is(documents) -> None:
    for family in ("llama", "gpt2"):
        network = made_network(documents, family)
        assert total_parameters(network.spec) == sum(parameter.numel() for parameter in network.parameters())
        assert network.head_weight.shape == (3, 16)
        assert network.head_weight is not network.embedding


def test_documents_without_labels_are_refused(tmp_path) -> None:
    plain = TokenDataset.open(make_dataset(tmp_path, {"train": ["alpha beta"]}).path)
    with pytest.raises(DataError, match="have no labels .*seen documents, expected documents-with-labels"):
        load_task(made_recipe(), plain)


def test_a_label_that_the_recipe_lacks_is_named(documents) -> None:
    with pytest.raises(RecipeError, match="task.labels: documents have labels that task.labels lacks .*seen 'spam'"):
        load_task(made_recipe(labels=("ham", "other")), documents)
