"""Preferences keep the contract of tasks; losses and gradients are those of plain torch over transformers' networks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fixtures.exact_llama import exact_llama, gradients, ours
from fixtures.family_parity import exactly
from fixtures.pairs import SEQUENCE, VOCABULARY, made_recipe, sizes_of, write_pairs
from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError
from trainwright.model.build import build_network
from trainwright.model.losses import IGNORE
from trainwright.model.tasks.preferences.preference import Preference, preference
from trainwright.model.tasks.task import EvaluationOptions, load_task, refers, without_reference
from trainwright.testing.artifacts import make_dataset
from trainwright.testing.contract_task import TaskContract

DPO = {"loss": "dpo", "beta": 0.3, "label_smoothing": 0.1}
ORPO = {"loss": "orpo", "beta": 0.4}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> TokenDataset:
    return write_pairs(tmp_path_factory.mktemp("pairs"), sizes_of(25))


def made_task(dataset, how) -> Preference:
    """The task; what its reference says is drawn."""
    task = preference(made_recipe(how), dataset)
    drawn = np.random.default_rng(5).uniform(-5, -3, dataset.splits["train"].tokens).astype(np.float32)
    return task.referring({"train": drawn}) if refers(task) else task


def made_network(family="llama"):
    model = {"family": family, "layers": 2, "width": 16, "heads": 2, "context_tokens": 48}
    network = build_network(made_recipe(model=model).model_spec(vocabulary=VOCABULARY), dtype=torch.float64)
    network.initialise(1)
    return network.double()


@pytest.mark.parametrize(("family", "how"), [("llama", DPO), ("gpt2", ORPO)], ids=["dpo", "orpo"])
class TestContract(TaskContract):
    @pytest.fixture(autouse=True)
    def _parts(self, pairs: TokenDataset, family: str, how) -> None:
        self.dataset, self.family, self.how = pairs, family, how

    def make_task(self) -> Preference:
        return made_task(self.dataset, self.how)

    def make_split(self):
        return self.dataset.splits["train"]

    def make_network(self):
        return made_network(self.family)


def documents(split, pair):
    """Of both chats of a pair the ids, which of them are answers, and their places in the split."""
    for number in (2 * pair, 2 * pair + 1):
        start, end = int(split.document_ends[number - 1]) if number else 0, int(split.document_ends[number])
        yield split.read(start, end).astype(np.int64), split.answers(start, end), slice(start + 1, end)


def said(logits_of, split, pair, reference=None):
    """Summed log-probability of both answers, less a reference's, and their lengths, each chat alone."""
    sums, sizes = [], []
    for ids, answers, places in documents(split, pair):
        logps = logits_of(torch.from_numpy(ids)[None])[0, :-1].log_softmax(-1)
        each = logps.gather(1, torch.from_numpy(ids[1:])[:, None]).squeeze(1)
        if reference is not None:
            each = each - torch.from_numpy(reference[places].astype(np.float64))
        counted = torch.from_numpy(answers[1:])
        sums.append(each[counted].sum())
        sizes.append(int(counted.sum()))
    return sums, sizes


def written_out(how, sums, sizes):
    """The losses as their papers write them."""
    if how["loss"] == "dpo":
        margin = how["beta"] * (sums[0] - sums[1])
        smooth = how["label_smoothing"]
        return -(1 - smooth) * F.logsigmoid(margin) - smooth * F.logsigmoid(-margin)
    chosen, rejected = ((total / size).exp() for total, size in zip(sums, sizes, strict=True))
    ratio = (chosen / (1 - chosen)) / (rejected / (1 - rejected))
    return -chosen.log() - how["beta"] * torch.log(torch.sigmoid(torch.log(ratio)))


@pytest.mark.parametrize("how", [DPO, ORPO], ids=["dpo", "orpo"])
def test_loss_and_gradients_of_packed_pairs_are_those_of_plain_torch_over_transformers(pairs, how):
    task, split = made_task(pairs, how), pairs.splits["train"]
    with exactly("llama"):
        theirs = exact_llama(vocabulary=VOCABULARY)
        network = ours(theirs)
        batches = task.batches(split, batch_sequences=4, seed=2)
        inputs = task.inputs(network, batches.batch(0))
        loss, weight = task.loss(network, task.hidden(network, inputs), inputs)
        (loss / weight).backward()
        reference = task.references["train"] if task.references else None
        numbers = drawn_pairs(batches, split, rows=4)
        losses = [
            written_out(how, *said(lambda ids: theirs(ids).logits, split, number, reference)) for number in numbers
        ]
        torch.stack(losses).mean().backward()
        wanted = gradients(theirs, network)
    assert int(weight) == len(numbers) == int(task.weight(batches.batch(0)))
    assert len(numbers) > 4, "several pairs share a sequence"
    assert loss.item() == pytest.approx(sum(each.item() for each in losses), rel=1e-9)
    for name, parameter in network.named_parameters():
        assert float((parameter.grad - wanted[name]).norm() / wanted[name].norm()) < 1e-9, name


def drawn_pairs(batches, split, *, rows):
    """The pairs of the first batch, known by their tokens."""
    batch = batches.batch(0)
    found = []
    for row in range(rows):
        for place in range(int(batch["pairs"][row])):
            mine = batch["tokens"][row][batch["documents"][row] == 2 * place].numpy()
            found.append(
                next(n for n in range(split.documents // 2) if np.array_equal(next(documents(split, n))[0][:-1], mine))
            )
    return found


@pytest.mark.parametrize("how", [DPO, ORPO], ids=["dpo", "orpo"])
def test_an_evaluation_measures_each_pair_as_if_it_stood_alone(pairs, how):
    task, split, network = made_task(pairs, how), pairs.splits["train"], made_network().eval()
    reference = task.references["train"] if task.references else None
    losses, rewards, likelier, bound = [], [], [], []
    with torch.no_grad():
        for number in range(split.documents // 2):
            sums, sizes = said(lambda ids: network.logits(network(ids)), split, number, reference)
            plain, _ = said(lambda ids: network.logits(network(ids)), split, number)
            losses.append(float(written_out(how, sums, sizes)))
            rewards.append(
                [how["beta"] * float(s) / (1 if reference is not None else n) for s, n in zip(sums, sizes, strict=True)]
            )
            likelier.append(float(plain[0] > plain[1]))
            bound.append(sizes)
    result = task.evaluate(network, split, EvaluationOptions(batch_sequences=3, detailed=True))
    metrics = {name: metric.value for name, metric in result.metrics.items()}
    better, worse = np.array(rewards).T
    assert result.count == len(losses)
    assert metrics["loss"] == pytest.approx(np.mean(losses), rel=1e-6)
    assert metrics["rewards/accuracies"] == pytest.approx(np.mean(better > worse))
    assert metrics["rewards/margins"] == pytest.approx(np.mean(better - worse), rel=1e-6)
    assert metrics["rewards/chosen"] == pytest.approx(better.mean(), rel=1e-6)
    assert metrics["rewards/rejected"] == pytest.approx(worse.mean(), rel=1e-6)
    assert result.record["likelier_chosen"] == pytest.approx(np.mean(likelier))
    assert result.details["hardest_pairs"][0]["loss"] == pytest.approx(max(losses), rel=1e-6)
    assert ("kl" in metrics) == (how["loss"] == "dpo")


def test_the_network_that_training_begins_with_prefers_nothing(pairs):
    """Against itself each margin is 0: a loss of ln 2, half of the preferences, and no divergence."""
    task, split, network = made_task(pairs, DPO), pairs.splits["train"], made_network()
    reference = np.zeros(split.tokens, np.float32)
    for places, values, _, _ in task.reference_parts(network, split, batch_sequences=3, rows=lambda _: None):
        reference[places] = values
    task = task.referring({"train": reference})
    metrics = task.evaluate(network, split, EvaluationOptions(batch_sequences=5)).metrics
    assert metrics["loss"].value == pytest.approx(np.log(2), abs=1e-5)
    assert metrics["kl"].value == pytest.approx(0, abs=1e-9)
    inputs = task.inputs(network, task.batches(split, batch_sequences=7, seed=1).batch(0))
    loss, weight = task.loss(network, task.hidden(network, inputs), inputs)
    assert (loss / weight).item() == pytest.approx(np.log(2), abs=1e-5)


def test_divergences_are_those_of_the_estimator(pairs):
    """Of the tokens of answers exp(r) - 1 - r, whose mean over what the reference writes is the divergence."""
    task, split, network = made_task(pairs, DPO), pairs.splits["train"], made_network().eval()
    total, tokens = 0.0, 0
    for number in range(split.documents // 2):
        for ids, answers, places in documents(split, number):
            with torch.no_grad():
                logps = network.logits(network(torch.from_numpy(ids)[None]))[0, :-1].log_softmax(-1)
            each = logps.gather(1, torch.from_numpy(ids[1:])[:, None]).squeeze(1).numpy()
            ratio = (each - task.references["train"][places])[answers[1:]]
            total, tokens = total + float((np.exp(ratio) - 1 - ratio).sum()), tokens + len(ratio)
    measured = task.evaluate(network, split, EvaluationOptions(batch_sequences=4)).metrics["kl"].value
    assert measured == pytest.approx(total / tokens, rel=1e-6)


def test_pairs_that_no_sequence_holds_are_left_out_and_told(tmp_path):
    dataset = write_pairs(tmp_path, [(5, 6), (SEQUENCE // 2 + 1, SEQUENCE // 2 + 2), (21, 21), (4, 9)])
    task, split = made_task(dataset, ORPO), dataset.splits["train"]
    (note,) = task.notes({"train": split})
    assert note == f"pairs with more tokens than train.sequence_tokens ({SEQUENCE}) are left out: 1 of train"
    result = task.evaluate(made_network(), split, EvaluationOptions(batch_sequences=2))
    assert (result.count, result.record["left_out_pairs"]) == (3, 1)


def test_of_a_split_without_a_fitting_pair_there_is_no_batch_and_nothing_to_ask(tmp_path):
    dataset = write_pairs(tmp_path, [(SEQUENCE, SEQUENCE)])
    task, split = preference(made_recipe(), dataset), dataset.splits["train"]
    assert list(task.reference_parts(made_network(), split, batch_sequences=2, rows=lambda _: None)) == []
    with pytest.raises(DataError, match="no pair of the train split fits into a sequence"):
        task.batches(split, batch_sequences=2, seed=0)


def test_a_step_of_which_time_counts_needs_no_reference(pairs):
    task = without_reference(load_task(made_recipe(), pairs), pairs.splits)
    batch = task.batches(pairs.splits["train"], batch_sequences=3, seed=1).batch(0)
    assert not batch["reference"].any()
    orpo = load_task(made_recipe(ORPO), pairs)
    assert without_reference(orpo, pairs.splits) is orpo
    assert "reference" not in orpo.batches(pairs.splits["train"], batch_sequences=3, seed=1).batch(0)


def test_other_datasets_are_refused(tmp_path):
    with pytest.raises(DataError, match="this dataset holds no preferences"):
        load_task(made_recipe(), TokenDataset.open(make_dataset(tmp_path, {"train": ["one two three"] * 9}).path))


def test_prompts_and_padding_count_for_nothing(pairs):
    task, split = made_task(pairs, DPO), pairs.splits["train"]
    batch = task.batches(split, batch_sequences=5, seed=3).batch(0)
    assert not batch["reference"][batch["targets"] == IGNORE].any()
    assert batch["reference"][batch["targets"] != IGNORE].all()
