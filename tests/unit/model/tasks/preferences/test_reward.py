"""Rewards keep the contract of tasks; they and their gradients are those of transformers' networks, chat by chat."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForSequenceClassification

from fixtures.exact_llama import gradients, ours
from fixtures.family_parity import exactly
from fixtures.pairs import SEQUENCE, VOCABULARY, made_recipe, sizes_of, write_pairs
from fixtures.telling import telling
from trainwright.artifact.shard_writer import SplitWriter, write_dataset
from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError
from trainwright.model.tasks.preferences.reward import Reward, bradley_terry, margin_curve, reward
from trainwright.model.tasks.task import EvaluationOptions, load_task
from trainwright.testing.artifacts import END_OF_TEXT, make_dataset
from trainwright.testing.contract_task import TaskContract

CENTER = 0.05
TASK = {"name": "reward", "center": CENTER}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> TokenDataset:
    return write_pairs(tmp_path_factory.mktemp("pairs"), sizes_of(25))


def made_network(family="llama"):
    model = {"family": family, "layers": 2, "width": 16, "heads": 2, "context_tokens": 48}
    spec = made_recipe(TASK, model=model).model_spec(vocabulary=VOCABULARY)
    assert (spec.classes, spec.labels, spec.writes_text) == (1, None, False)
    return telling(spec)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
class TestContract(TaskContract):
    @pytest.fixture(autouse=True)
    def _parts(self, pairs: TokenDataset, family: str) -> None:
        self.dataset, self.family = pairs, family

    def make_task(self) -> Reward:
        return reward(made_recipe(TASK), self.dataset)

    def make_split(self):
        return self.dataset.splits["train"]

    def make_network(self):
        return made_network(self.family)


def chats(split):
    """The tokens of each chat, in order."""
    ends = split.document_ends.tolist()
    return [split.read(start, end).astype(np.int64) for start, end in zip([0, *ends], ends, strict=False)]


def their_llama() -> LlamaForSequenceClassification:
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = LlamaConfig(
        **shape,
        intermediate_size=48,
        vocab_size=VOCABULARY,
        max_position_embeddings=64,
        initializer_range=0.3,
        num_labels=1,
        pad_token_id=0,
        architectures=["LlamaForSequenceClassification"],
    )
    return LlamaForSequenceClassification(config).double()


def written_out(chosen, rejected):
    """The loss of a pair as a probability: that of the model of Bradley and Terry, and the square of the sum."""
    won = chosen.exp() / (chosen.exp() + rejected.exp())
    return -won.log() + CENTER * (chosen + rejected) ** 2


def test_loss_and_gradients_of_packed_pairs_are_those_of_each_chat_alone_in_transformers(pairs) -> None:
    task, split = reward(made_recipe(TASK), pairs), pairs.splits["train"]
    with exactly("llama"):
        theirs = their_llama()
        network = ours(theirs)
        batch = task.batches(split, batch_sequences=4, seed=2).batch(0)
        inputs = task.inputs(network, batch)
        loss, weight = task.loss(network, task.hidden(network, inputs), inputs)
        (loss / weight).backward()
        rows = [
            [batch["tokens"][row][batch["documents"][row] == number] for number in range(2 * int(count))]
            for row, count in enumerate(batch["pairs"])
        ]
        whole = {tuple(ids.tolist()) for ids in chats(split)}
        assert {tuple(ids.tolist()) for row in rows for ids in row} <= whole
        said = [[theirs(ids[None]).logits[0, 0] for ids in row] for row in rows]
        losses = [written_out(*row[at : at + 2]) for row in said for at in range(0, len(row), 2)]
        torch.stack(losses).mean().backward()
        wanted = gradients(theirs, network)
    assert int(weight) == len(losses) == int(task.weight(batch)) > 4
    assert loss.item() == pytest.approx(sum(each.item() for each in losses), rel=1e-9)
    for name, parameter in network.named_parameters():
        assert float((parameter.grad - wanted[name]).norm() / wanted[name].norm()) < 1e-9, name


@pytest.mark.parametrize("size", [1, 3, 50])
def test_an_evaluation_measures_each_pair_as_if_it_stood_alone(pairs, size) -> None:
    task, split, network = reward(made_recipe(TASK), pairs), pairs.splits["train"], made_network()
    with torch.no_grad():
        told = [network.logits(network(torch.from_numpy(ids)[None]))[0, -1].item() for ids in chats(split)]
    chosen, rejected = np.array(told).reshape(-1, 2).T
    losses = np.log1p(np.exp(rejected - chosen)) + CENTER * (chosen + rejected) ** 2
    result = task.evaluate(network, split, EvaluationOptions(batch_sequences=size, detailed=True))
    assert result.count == 25
    assert {name: metric.value for name, metric in result.metrics.items()} == pytest.approx(
        {
            "loss": losses.mean(),
            "accuracy": (chosen > rejected).mean(),
            "margin": (chosen - rejected).mean(),
            "reward_chosen": chosen.mean(),
            "reward_rejected": rejected.mean(),
        },
        rel=1e-6,
    )
    sizes = np.array([len(ids) for ids in chats(split)]).reshape(-1, 2)
    longer = [1.0 if a > b else 0.5 if a == b else 0.0 for a, b in sizes]
    assert result.record == {"left_out_pairs": 0, "longer_chosen": pytest.approx(np.mean(longer))}
    worst = result.details["hardest_pairs"][0]
    assert (worst["pair"], worst["loss"]) == (int(losses.argmax()), pytest.approx(losses.max(), rel=1e-6))
    below = [row["share"] for row in result.details["margins"]["rows"] if row["margin"] < 0]
    assert max(below, default=0) == pytest.approx(1 - (chosen > rejected).mean())


def test_a_reward_stands_before_the_token_between_documents_as_in_transformers(tmp_path) -> None:
    """Which is padding there: of a chat that ends with it the token before is read, in a padded batch too."""
    writer = SplitWriter(tmp_path, "train", vocabulary=VOCABULARY, end_of_text_id=0)
    for ids in ([5, 6, 7, 0], [5, 6, 0], [8, 9], [8, 3, 2, 0]):
        writer.append_chat(np.array(ids), np.arange(len(ids)) > 0, text_bytes=4)
    how = {"vocabulary": VOCABULARY, "end_of_text": END_OF_TEXT, "end_of_text_id": 0}
    write_dataset(tmp_path, **how, splits={"train": writer.close()}, kind="preferences")
    dataset = TokenDataset.open(tmp_path)
    split, task = dataset.splits["train"], reward(made_recipe({"name": "reward"}), dataset)
    with exactly("llama"):
        theirs = their_llama()
        padded = torch.tensor([[5, 6, 7, 0], [5, 6, 0, 0], [8, 9, 0, 0], [8, 3, 2, 0]])
        wanted = theirs(padded).logits.flatten().detach().numpy().reshape(2, 2)
        source = task.pairs(split, batch_sequences=2)
        given = task.measure(ours(theirs), source, EvaluationOptions(batch_sequences=2))
    assert given == pytest.approx(wanted, rel=1e-9)


def test_the_loss_by_hand() -> None:
    both = torch.tensor([[math.log(3), 0.0], [0.0, 0.0]], dtype=torch.float64)
    assert bradley_terry(both).tolist() == pytest.approx([math.log(4 / 3), math.log(2)])
    centred = bradley_terry(both, center=0.5).tolist()
    assert centred == pytest.approx([math.log(4 / 3) + math.log(3) ** 2 / 2, math.log(2)])


def test_the_curve_ends_at_all_pairs_and_is_short() -> None:
    rows = margin_curve(np.arange(1000.0)[::-1] - 300)["rows"]
    assert len(rows) == 100
    assert (rows[0], rows[-1]) == ({"margin": -300.0, "share": 0.001}, {"margin": 699.0, "share": 1.0})
    assert margin_curve(np.array([2.0]))["rows"] == [{"margin": 2.0, "share": 1.0}]


def test_pairs_that_no_sequence_holds_are_left_out_and_told(tmp_path) -> None:
    """Chats are read whole, so that a pair takes two places more than where next tokens are predicted."""
    dataset = write_pairs(tmp_path, [(5, 6), (SEQUENCE // 2, SEQUENCE // 2), (20, 21), (4, 9)])
    task, split = reward(made_recipe(TASK), dataset), dataset.splits["train"]
    (note,) = task.notes({"train": split})
    assert note == f"pairs with more tokens than train.sequence_tokens ({SEQUENCE}) are left out: 1 of train"
    result = task.evaluate(made_network(), split, EvaluationOptions(batch_sequences=2))
    assert (result.count, result.record["left_out_pairs"]) == (3, 1)


def test_a_few_tokens_measure_the_first_pair_that_a_sequence_holds(tmp_path) -> None:
    dataset = write_pairs(tmp_path, [(SEQUENCE, SEQUENCE), (5, 6), (4, 9)])
    task, split, network = reward(made_recipe(TASK), dataset), dataset.splits["train"], made_network()
    for tokens in (1, SEQUENCE, 2 * SEQUENCE + 5):
        result = task.evaluate(network, split, EvaluationOptions(batch_sequences=2, tokens=tokens))
        assert (result.count, result.record["left_out_pairs"]) == (1, 1)


def test_rewards_of_hidden_states_in_bf16_are_not_rounded_to_it(pairs) -> None:
    """Of which two near 10 would differ by 0.06 or not at all."""
    task, network = reward(made_recipe(TASK), pairs), made_network()
    hidden, ends = torch.randn(2, 6, 16).bfloat16(), torch.tensor([[[1, 5]], [[0, 3]]])
    with torch.no_grad():
        weight = network.head_weight.to(torch.float32)
        wanted = torch.stack([hidden[row, at.flatten()].float() @ weight[0] for row, at in enumerate(ends)])
        given = task.rewards(network, hidden, ends)
    assert given.flatten(1).numpy() == pytest.approx(wanted.numpy(), rel=1e-5)


def test_what_holds_no_pair_is_refused(tmp_path) -> None:
    (tmp_path / "long").mkdir()
    dataset = write_pairs(tmp_path / "long", [(SEQUENCE, SEQUENCE)])
    with pytest.raises(DataError, match="no pair of the train split fits into a sequence"):
        reward(made_recipe(TASK), dataset).batches(dataset.splits["train"], batch_sequences=2, seed=0)
    texts = make_dataset(tmp_path / "texts", {"train": ["one two three"] * 9})
    with pytest.raises(DataError, match="this dataset holds no preferences"):
        load_task(made_recipe(TASK), TokenDataset.open(texts.path))
