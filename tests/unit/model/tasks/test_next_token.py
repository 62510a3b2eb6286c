"""Next-token prediction keeps the contract of tasks; what it counts and measures is what the text says."""

from __future__ import annotations

import math
from random import Random

import pytest
import torch
import torch.nn.functional as F

from trainwright.artifact.shards import TokenDataset, TokenSplit
from trainwright.model.build import build_network
from trainwright.model.losses import IGNORE
from trainwright.model.network import Network
from trainwright.model.tasks.next_token import NextToken
from trainwright.model.tasks.task import EvaluationOptions
from trainwright.spec.sections.model import ModelSection
from trainwright.testing.artifacts import make_dataset
from trainwright.testing.contract_task import TaskContract

END = 0
SEQUENCE = 12


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> TokenDataset:
    random = Random(5)
    texts = [" ".join(random.choices(["alpha", "beta", "(x)", "\n"], k=random.randint(3, 20))) for _ in range(20)]
    return TokenDataset.open(make_dataset(tmp_path_factory.mktemp("words"), {"train": texts}).path)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("end_of_text", [None, END])
class TestContract(TaskContract):
    @pytest.fixture(autouse=True)
    def _parts(self, words: TokenDataset, family: str, end_of_text: int | None) -> None:
        self.dataset, self.family, self.end_of_text = words, family, end_of_text

    def make_task(self) -> NextToken:
        return NextToken(sequence_tokens=SEQUENCE, end_of_text=self.end_of_text)

    def make_split(self) -> TokenSplit:
        return self.dataset.splits["train"]

    def make_network(self) -> Network:
        section = ModelSection(family=self.family, layers=2, width=16, heads=2, context_tokens=16)
        network = build_network(section.spec(vocabulary=self.dataset.vocabulary), dtype=torch.float64)
        network.initialise(1)
        return network.to(torch.float64)


def test_targets_that_are_missing_count_for_nothing() -> None:
    tokens = torch.tensor([[0, 5, 6, 7], [0, 8, IGNORE, IGNORE]])
    task = NextToken(sequence_tokens=3)
    assert int(task.weight({"tokens": tokens})) == 4


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_positions_start_anew_only_where_a_table_holds_them(tiny, family) -> None:
    inputs = NextToken(sequence_tokens=5, end_of_text=END).inputs(
        tiny.decoder(family), {"tokens": torch.tensor([[END, 5, 6, END, 7, 8]])}
    )
    assert inputs["documents"].tolist() == [[1, 1, 1, 2, 2]]
    assert ("positions" in inputs) == (family == "gpt2")
    if family == "gpt2":
        assert inputs["positions"].tolist() == [[0, 1, 2, 0, 1]]


def test_it_measures_loss_perplexity_and_bits_per_byte(words) -> None:
    network = build_network(ModelSection(layers=1, width=16, heads=2).spec(vocabulary=words.vocabulary))
    network.initialise(2)
    split = words.splits["train"]
    ids = torch.from_numpy(split.read(0, split.tokens).astype("int64"))
    nats = 0.0
    with torch.no_grad():
        for start in range(0, len(ids) - 1, SEQUENCE):
            window = ids[start : start + SEQUENCE + 1]
            nats += float(F.cross_entropy(network.logits(network(window[None, :-1]))[0], window[1:], reduction="sum"))
    evaluation = NextToken(sequence_tokens=SEQUENCE).evaluate(network, split, EvaluationOptions(batch_sequences=4))
    measured = {name: metric.value for name, metric in evaluation.metrics.items()}
    assert evaluation.count == len(ids) - 1
    assert evaluation.record == {"documents": split.documents, "text_bytes": split.text_bytes}
    assert measured["loss"] == pytest.approx(nats / (len(ids) - 1), rel=1e-5)
    assert measured["perplexity"] == pytest.approx(math.exp(measured["loss"]), rel=1e-9)
    assert measured["bits_per_byte"] == pytest.approx(nats / math.log(2) / split.text_bytes, rel=1e-5)
