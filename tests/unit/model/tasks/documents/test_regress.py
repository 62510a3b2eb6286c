"""Numbers of documents keep the contract of tasks; loss and errors are those of each document alone, and torch's."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch

from fixtures.telling import telling
from trainwright.artifact.shards import TokenDataset, TokenSplit
from trainwright.core.errors import DataError
from trainwright.model.network import Network
from trainwright.model.tasks.documents.regress import Regress, regress
from trainwright.model.tasks.task import EvaluationOptions, load_task
from trainwright.spec.parts.targets import TargetScale
from trainwright.spec.recipe import Recipe
from trainwright.testing.artifacts import make_dataset
from trainwright.testing.contract_task import TaskContract

SEQUENCE = 12


def made_recipe(family: str = "llama", error: str = "mse") -> Recipe:
    return Recipe.model_validate(
        {
            "name": "tiny",
            "task": {"name": "regress", "error": error},
            "model": {"family": family, "layers": 2, "width": 16, "heads": 2, "context_tokens": 16},
            "data": {"sources": [{"kind": "jsonl", "paths": ["x"], "label_key": "y", "label_kind": "number"}]},
            "train": {"sequence_tokens": SEQUENCE, "batch_tokens": 4 * SEQUENCE},
        }
    )


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> TokenDataset:
    random = Random(5)
    texts = [" ".join(random.choices(["alpha", "beta", "(x)", "\n"], k=random.randint(1, 9))) for _ in range(20)]
    numbers = {"train": [random.gauss(1000, 30) for _ in texts], "test": [1.0, 2.0]}
    root = tmp_path_factory.mktemp("documents")
    return TokenDataset.open(make_dataset(root, {"train": texts, "test": ["a", "b"]}, numbers=numbers).path)


def made_network(dataset: TokenDataset, family: str = "llama") -> Network:
    spec = made_recipe(family).model_spec(vocabulary=dataset.vocabulary)
    assert (spec.classes, spec.labels) == (1, None)
    return telling(spec)


@pytest.mark.parametrize("family", ["llama", "bert"])
class TestContract(TaskContract):
    @pytest.fixture(autouse=True)
    def _parts(self, documents: TokenDataset, family: str) -> None:
        self.dataset, self.family = documents, family

    def make_task(self) -> Regress:
        return regress(made_recipe(self.family), self.dataset)

    def make_split(self) -> TokenSplit:
        return self.dataset.splits["train"]

    def make_network(self) -> Network:
        return made_network(self.dataset, self.family)


@pytest.mark.parametrize(("family", "loss"), [("llama", "mse"), ("bert", "mae")])
def test_any_batch_size_measures_what_each_document_gives_alone(documents, family, loss) -> None:
    split, network, told = documents.splits["train"], made_network(documents, family), []
    ends = split.document_ends.tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        ids = split.read(start, end - 1).astype(np.int64).tolist()
        if family == "bert":
            ids = [documents.end_of_text_id, *ids[: SEQUENCE - 2], documents.end_of_text_id]
        with torch.no_grad():
            hidden = network(torch.tensor([ids[:SEQUENCE]]))[0, 0 if family == "bert" else -1]
            told.append(network.logits(hidden).item())
    true = split.document_numbers
    mean, std = true.mean(), true.std()
    off = np.array(told) - (true - mean) / std
    mse, mae = np.square(off).mean(), np.abs(off).mean()
    task = regress(made_recipe(family, loss), documents)
    for size in (1, 3, 20):
        result = task.evaluate(network, split, EvaluationOptions(batch_sequences=size))
        measured = {name: metric.value for name, metric in result.metrics.items()}
        assert result.count == 20
        assert measured == pytest.approx(
            {"loss": mse if loss == "mse" else mae, "mse": mse * std**2, "mae": mae * std, "r2": 1 - mse}, rel=1e-6
        )
        assert result.record["mse_of_train_mean"] == pytest.approx(std**2)


@pytest.mark.parametrize(("loss", "theirs"), [("mse", torch.nn.MSELoss()), ("mae", torch.nn.L1Loss())])
def test_the_loss_is_that_of_torch_for_numbers_in_the_scale_of_the_train_split(documents, loss, theirs) -> None:
    task, network = regress(made_recipe(error=loss), documents), made_network(documents)
    batch = task.batches(documents.splits["train"], batch_sequences=5, seed=2).batch(0)
    inputs = task.inputs(network, batch)
    hidden = task.hidden(network, inputs)
    total, weight = task.loss(network, hidden, inputs)
    assert int(weight) == int(task.weight(batch)) == 5
    mean = theirs(network.logits(hidden).squeeze(), batch["number"].double())
    assert float((total / weight).detach()) == pytest.approx(float(mean.detach()))
    test = task.answers(documents.splits["test"], np.arange(2))["number"]
    true = documents.splits["train"].document_numbers
    assert test == pytest.approx((np.array([1.0, 2.0]) - true.mean()) / true.std(), rel=1e-5)


def test_another_scale_tells_other_numbers_of_the_same_outputs(documents) -> None:
    """As where a model is measured on another dataset than it was trained on: the scale is the model's."""
    network, options = made_network(documents), EvaluationOptions(batch_sequences=4, detailed=True)
    other = replace(documents, scale=TargetScale(mean=5.0, std=2.0))
    rows = [
        regress(made_recipe(), each).evaluate(network, each.splits["test"], options).details["furthest_off"]
        for each in (documents, other)
    ]
    own = documents.scale
    outputs = {row["document"]: (row["predicted"] - own.mean) / own.std for row in rows[0]}
    assert {row["document"]: (row["predicted"] - 5) / 2 for row in rows[1]} == pytest.approx(outputs)


def test_equal_numbers_and_other_datasets_are_refused(documents, tmp_path) -> None:
    equal = make_dataset(tmp_path / "a", {"train": ["a", "b"]}, numbers={"train": [3.0, 3.0]})
    with pytest.raises(DataError, match=r"numbers of the train split do not differ.*seen 3 in every document"):
        load_task(made_recipe(), TokenDataset.open(equal.path))
    single = make_dataset(tmp_path / "b", {"train": ["a"]}, labels={"train": ["odd"]})
    with pytest.raises(DataError, match="the documents of this dataset have no numbers"):
        load_task(made_recipe(), TokenDataset.open(single.path))
