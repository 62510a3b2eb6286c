"""Embeddings keep the contract of tasks; loss and gradients are those of transformers' network, text by text."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from fixtures.paired import SEQUENCE, VOCABULARY, embed_recipe, write_paired
from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError, RecipeError
from trainwright.model.build import build_network
from trainwright.model.tasks.embeddings.embed import Embed, embed
from trainwright.model.tasks.task import EvaluationOptions, load_task
from trainwright.spec.families.family import huggingface_form
from trainwright.testing.artifacts import make_dataset
from trainwright.testing.contract_task import TaskContract

ROOM = SEQUENCE // 3 - 2
"""Tokens of a text that an encoder's third of a sequence has room for."""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> TokenDataset:
    return write_paired(tmp_path_factory.mktemp("pairs"), records=22, texts=3)


def made_network(seed=1):
    spec = embed_recipe(negatives=1).model_spec(vocabulary=VOCABULARY)
    assert (spec.classes, spec.makes_logits, spec.pooler) == (0, False, False)
    network = build_network(spec, dtype=torch.float64)
    network.initialise(seed)
    with torch.no_grad():
        for matrix in network.matrices().values():
            matrix.mul_(10)
    return network.double()


class TestContract(TaskContract):
    """Of groups of one record any micro batch has whole ones; what is contrasted is its negative."""

    @pytest.fixture(autouse=True)
    def _parts(self, pairs: TokenDataset) -> None:
        self.dataset = pairs

    def make_task(self) -> Embed:
        return embed(embed_recipe({"group": 1}, negatives=1), self.dataset)

    def make_split(self):
        return self.dataset.splits["train"]

    def make_network(self):
        return made_network()


def texts_of(split, record):
    """The ids of a record's texts, as a sequence has room for them, with their frames."""
    ends = [0, *split.document_ends.tolist()]
    for number in range(3 * record, 3 * record + 3):
        yield [0, *split.read(ends[number], ends[number + 1] - 1).astype(np.int64).tolist()[:ROOM], 0]


def vector(hidden, pooling):
    """One text's vector, from its tokens' alone."""
    made = {"mean": hidden.mean(dim=0), "cls": hidden[0], "last": hidden[-1]}[pooling]
    return made / made.norm()


def record_numbers(batch, split):
    """Which records a batch has, known by their first text."""
    firsts = {tuple(next(texts_of(split, number))): number for number in range(split.documents // 3)}
    return [firsts[tuple(row[of == 0].tolist())] for row, of in zip(batch["tokens"], batch["documents"], strict=True)]


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_loss_and_gradients_are_those_of_each_text_alone_in_transformers(pairs, pooling) -> None:
    task, split = embed(embed_recipe({"pooling": pooling}, negatives=1), pairs), pairs.splits["train"]
    network = made_network()
    form = huggingface_form("bert", where="here")
    config = BertConfig(**form.to_config(network.spec))
    theirs = BertModel(config, add_pooling_layer=False).double().eval()
    theirs.load_state_dict(form.to_hf(dict(network.named_parameters()), network.spec))
    batch = task.batches(split, batch_sequences=8, seed=2).batch(0)
    inputs = task.inputs(network, batch)
    loss, weight = task.loss(network, task.hidden(network, inputs), inputs)
    (loss / weight).backward()
    numbers = record_numbers(batch, split)
    made = [
        [vector(theirs(torch.tensor([ids])).last_hidden_state[0], pooling) for ids in texts_of(split, number)]
        for number in numbers
    ]
    losses = []
    for start in (0, 4):  # two groups of four
        group = made[start : start + 4]
        others = torch.stack([each[text] for text in (1, 2) for each in group])
        anchors = torch.stack([each[0] for each in group])
        losses.append(torch.nn.functional.cross_entropy(anchors @ others.T / 0.2, torch.arange(4)) * 4)
    (sum(losses) / 8).backward()
    assert int(weight) == int(task.weight(batch)) == len(set(numbers)) == 8
    assert loss.item() == pytest.approx(sum(losses).item(), rel=1e-9)
    gradients = form.to_hf({name: each.grad for name, each in network.named_parameters()}, network.spec)
    whole = sum(float(each.grad.square().sum()) for each in theirs.parameters() if each.grad is not None) ** 0.5
    for name, parameter in theirs.named_parameters():
        expected = parameter.grad.clone()
        if name == "embeddings.word_embeddings.weight":  # theirs give the row of padding none, which is the frame here
            gradients[name][config.pad_token_id] = expected[config.pad_token_id] = 0
        assert float((gradients[name] - expected).norm()) < 1e-9 * whole, name


@pytest.mark.parametrize("size", [4, 8, 16])
def test_micro_batches_of_whole_groups_give_the_gradient_of_the_batch(pairs, size) -> None:
    task, split = embed(embed_recipe(negatives=1), pairs), pairs.splits["train"]
    batch = task.batches(split, batch_sequences=16, seed=5).batch(1)

    def gradients(size):
        network, total = made_network(), 0.0
        for start in range(0, 16, size):
            inputs = task.inputs(network, {name: tensor[start : start + size] for name, tensor in batch.items()})
            loss, _ = task.loss(network, task.hidden(network, inputs), inputs)
            (loss / 16).backward()
            total += float(loss.detach())
        return total, {name: each.grad for name, each in network.named_parameters()}

    (loss, parts), (whole_loss, whole) = gradients(size), gradients(16)
    assert loss == pytest.approx(whole_loss, rel=1e-12)
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, atol=1e-12, rtol=1e-9, msg=name)


def test_a_micro_batch_that_ends_inside_a_group_is_never_learnt(pairs) -> None:
    task, network = embed(embed_recipe(negatives=1), pairs), made_network()
    inputs = task.inputs(network, task.batches(pairs.splits["train"], batch_sequences=6, seed=1).batch(0))
    with pytest.raises(RecipeError, match=r"ends inside a group of pairs .*seen 6 pairs, expected a multiple of 4"):
        task.loss(network, task.hidden(network, inputs), inputs)


def test_an_evaluation_is_over_the_whole_split_whatever_the_batch(pairs) -> None:
    task, split, network = embed(embed_recipe(negatives=1), pairs), pairs.splits["train"], made_network()
    with torch.no_grad():
        made = [[vector(network(torch.tensor([ids]))[0], "mean") for ids in texts_of(split, n)] for n in range(22)]
    losses, ranks = [], []
    different = {
        tuple(ids): vectors[t] for n, vectors in enumerate(made) for t, ids in enumerate(texts_of(split, n)) if t
    }
    for number, (anchor, positive, _) in enumerate(made):
        first = number // 4 * 4  # groups of four neighbours, the last one of two
        group = made[first : min(first + 4, 22)]
        scores = torch.stack([anchor @ each[text] / 0.2 for text in (1, 2) for each in group])
        losses.append(float(scores.logsumexp(0) - anchor @ positive / 0.2))
        ranks.append(1 + sum(float(anchor @ each) > float(anchor @ positive) + 1e-5 for each in different.values()))
    for size in (1, 5, 22):
        result = task.evaluate(network, split, EvaluationOptions(batch_sequences=size, detailed=True))
        measured = {name: metric.value for name, metric in result.metrics.items()}
        assert result.count == 22 and result.record["candidates"] == len(different)
        assert measured == pytest.approx(
            {
                "loss": np.mean(losses),
                "recall_at_1": np.mean(np.array(ranks) <= 1),
                "recall_at_10": np.mean(np.array(ranks) <= 10),
                "mrr": np.mean(1 / np.array(ranks)),
            },
            rel=1e-5,
        )


def test_a_few_tokens_measure_one_pair(pairs) -> None:
    task, split, network = embed(embed_recipe(negatives=1), pairs), pairs.splits["train"], made_network()
    for tokens in (1, int(split.document_ends[1])):
        assert task.evaluate(network, split, EvaluationOptions(batch_sequences=4, tokens=tokens)).count == 1
    five = int(split.document_ends[5 * 3 - 1])
    assert task.evaluate(network, split, EvaluationOptions(batch_sequences=4, tokens=five)).count == 5


def test_long_texts_are_cut_and_told(pairs) -> None:
    task, split = embed(embed_recipe(negatives=1), pairs), pairs.splits["train"]
    sizes = np.diff(split.document_ends.astype(np.int64), prepend=0) - 1
    cut = int((sizes > ROOM).sum())
    assert cut > 0
    (note,) = task.notes({"train": split})
    assert note == (
        f"train.sequence_tokens ({SEQUENCE}) has room for 3 texts of {ROOM} tokens: longer ones are cut to it: "
        f"{cut} of train"
    )


def test_what_cannot_be_embedded_is_refused(pairs, tmp_path) -> None:
    texts = make_dataset(tmp_path, {"train": ["one two three"] * 9})
    with pytest.raises(DataError, match="this dataset holds no pairs"):
        load_task(embed_recipe(), TokenDataset.open(texts.path))
    with pytest.raises(DataError, match=r"no records of so many .*seen 66 texts in train, expected a multiple of 4"):
        load_task(embed_recipe(negatives=2), pairs)
    with pytest.raises(RecipeError, match=r"no token of a text has room .*expected at least 9 for 3 texts"):
        load_task(embed_recipe(negatives=1, train={"sequence_tokens": 8, "batch_tokens": 32}), pairs)
