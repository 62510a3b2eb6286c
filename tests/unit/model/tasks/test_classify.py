"""Classification keeps the contract of tasks; padding is never seen; what it measures is counted by hand."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from trainwright.artifact.shards import TokenDataset, TokenSplit
from trainwright.core.errors import DataError, RecipeError
from trainwright.model.build import build_network
from trainwright.model.network import Network
from trainwright.model.tasks.classify import Classify, classify
from trainwright.model.tasks.task import EvaluationOptions, load_task
from trainwright.planner.counts.parameters import total_parameters
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.updates.optimizer import AdamWSection
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.step import TrainingStep
from trainwright.testing.artifacts import make_dataset
from trainwright.testing.contract_task import TaskContract

LABELS = ("ham", "spam", "unsure")
SEQUENCE = 12


def made_recipe(labels=LABELS, family="llama", **train) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "tiny",
            "task": {"name": "classify", "labels": list(labels)},
            "model": {"family": family, "layers": 2, "width": 16, "heads": 2, "context_tokens": 16},
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
    recipe = made_recipe(family=family)
    network = build_network(recipe.model_spec(vocabulary=dataset.vocabulary), dtype=dtype)
    network.initialise(3 if family == "roberta" else 1)
    with torch.no_grad():
        network.head_weight.mul_(50)  # so that predictions differ
        if network.spec.kind == "encoder":  # the first token of every document is the same
            square = network.transform if network.pooler is None else network.pooler
            for matrix in (*network.matrices().values(), square.weight):
                matrix.mul_(20)
    return network.to(dtype)


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert"])
class TestContract(TaskContract):
    @pytest.fixture(autouse=True)
    def _parts(self, documents: TokenDataset, family: str) -> None:
        self.dataset, self.family = documents, family

    def make_task(self) -> Classify:
        return classify(made_recipe(family=self.family), self.dataset)

    def make_split(self) -> TokenSplit:
        return self.dataset.splits["train"]

    def make_network(self) -> Network:
        return made_network(self.dataset, self.family)


def alone(network: Network, ids: torch.Tensor, end: int) -> torch.Tensor:
    """Logits of a document: of a decoder's last token, of an encoder's first one in its frame, or of all its tokens."""
    if network.spec.kind == "decoder":
        return network.logits(network(ids[None, :SEQUENCE]))[0, -1]
    frame = torch.tensor([end])
    hidden = network(torch.cat((frame, ids[: SEQUENCE - 2], frame))[None])[0]
    return network.logits(hidden[0] if network.spec.pooling == "first" else hidden.mean(dim=0))


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert", "roberta", "modernbert"])
def test_each_document_is_classified_as_if_it_stood_alone_without_padding(documents, family) -> None:
    split, network = documents.splits["train"], made_network(documents, family)
    counts, nats = np.zeros((3, 3), int), 0.0
    ends = split.document_ends.tolist()
    with torch.no_grad():
        for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            ids = torch.from_numpy(split.read(start, end)[:-1].astype(np.int64))
            logits = alone(network, ids, documents.end_of_text_id)
            true = LABELS.index(documents.labels[split.document_labels[number]])
            nats += float(F.cross_entropy(logits[None], torch.tensor([true])))
            counts[true, int(logits.argmax())] += 1
    task = classify(made_recipe(family=family), documents)
    evaluations = [task.evaluate(network, split, EvaluationOptions(batch_sequences=size)) for size in (1, 3, 8)]
    evaluation = task.evaluate(network, split, EvaluationOptions(batch_sequences=6, detailed=True))
    for other in evaluations:
        assert other.metrics["loss"].value == pytest.approx(nats / split.documents, rel=1e-6)
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


def test_accumulating_four_micro_batches_gives_the_gradient_of_one_batch_and_that_by_hand(documents) -> None:
    """Of BERT, whose documents have lengths of their own; a trainer that means means would weigh the ragged one more.

    By hand: the gradient of the mean cross-entropy with respect to the head's bias is the mean of softmax - onehot, the
    loss the mean of -log softmax, with documents of 4, 4, 4 and 3 a micro batch.
    """
    task = classify(made_recipe(family="bert"), documents)
    batch = task.batches(documents.splits["train"], batch_sequences=15, seed=1).batch(0)
    found = []
    for micro_batch in (15, 4):
        network = made_network(documents, "bert")
        clock = PhaseClock(torch.device("cpu"))
        clock.start()
        optimizers = Optimizers(network, AdamWSection(lr=1e-3))
        step = TrainingStep(task, network, optimizers, clock, micro_batch=micro_batch, clip_norm=None, compiled=False)
        loss, weight = step.gradient(batch)
        found.append((float(loss / weight), {name: p.grad for name, p in network.named_parameters()}))
    (whole, of_whole), (parts, of_parts) = found
    assert parts == pytest.approx(whole, rel=1e-12)
    for name, gradient in of_whole.items():
        torch.testing.assert_close(of_parts[name], gradient, atol=1e-12, rtol=1e-9, msg=name)
    with torch.no_grad():
        rows = [alone(network, tokens[1:last], documents.end_of_text_id) for tokens, last in framed(batch)]
        probabilities = torch.stack(rows).exp() / torch.stack(rows).exp().sum(dim=1, keepdim=True)
    told = torch.eye(3, dtype=torch.float64)[batch["class"]]
    assert whole == pytest.approx(float(-(probabilities * told).sum(dim=1).log().mean()), rel=1e-9)
    torch.testing.assert_close(of_parts["head.bias"], (probabilities - told).mean(dim=0), atol=1e-10, rtol=0)


def framed(batch) -> list[tuple[torch.Tensor, int]]:
    return list(zip(batch["tokens"], batch["last"].tolist(), strict=True))


def test_an_encoder_reads_documents_in_a_frame(documents, tmp_path) -> None:
    """That of the tokenizer, where it has one; what does not fit is cut inside of it."""
    split, end = documents.splits["train"], documents.end_of_text_id
    batch = classify(made_recipe(family="bert"), documents).batches(split, batch_sequences=20, seed=3).batch(0)
    ids = sorted(ids[: SEQUENCE - 2] for ids in whole(split))
    assert sorted(tokens[1:last].tolist() for tokens, last in framed(batch)) == ids
    assert all(tokens[0] == end and set(tokens[last:].tolist()) == {end} for tokens, last in framed(batch))
    tokenizer = Tokenizer.from_file(str(documents.tokenizer_path))
    tokens = [("a", tokenizer.token_to_id("a")), ("b", tokenizer.token_to_id("b"))]
    tokenizer.post_processor = TemplateProcessing(single="a $A b", special_tokens=tokens)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    other = TokenDataset(**{**vars(documents), "tokenizer_path": tmp_path / "tokenizer.json"})
    assert classify(made_recipe(family="bert"), other).frame == (tokens[0][1], tokens[1][1])
    assert classify(made_recipe(), other).frame is None


def test_a_sequence_without_room_between_its_frame_is_refused(documents) -> None:
    recipe = made_recipe(family="bert", sequence_tokens=2, batch_tokens=8)
    with pytest.raises(RecipeError, match=r"train\.sequence_tokens: no token .*\(seen 2, expected more than 2"):
        load_task(recipe, documents)


def test_the_planner_counts_the_classifier_as_it_is(documents) -> None:
    for family in ("llama", "gpt2", "bert", "roberta", "modernbert"):
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
