"""Labels of words keep the contract of tasks; loss and metrics are those of each sentence alone."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch

from fixtures.telling import telling
from trainwright.artifact.model_folder import TOKENIZER
from trainwright.artifact.shard_files import NO_TAG
from trainwright.artifact.shard_writer import SplitWriter, write_dataset
from trainwright.artifact.shards import WORDS, TokenDataset, TokenSplit
from trainwright.core.errors import DataError, RecipeError
from trainwright.model.losses import IGNORE
from trainwright.model.tasks.task import EvaluationOptions
from trainwright.model.tasks.words.classify_tokens import ClassifyTokens, classify_tokens
from trainwright.model.tasks.words.entities import entities
from trainwright.planner.counts.parameters import parameter_counts
from trainwright.spec.families.family import huggingface_form
from trainwright.spec.recipe import Recipe
from trainwright.testing.artifacts import END_OF_TEXT, make_dataset, train_tokenizer
from trainwright.testing.contract_task import TaskContract

SEQUENCE = 10
NAMES = ("B-x", "I-x", "O")
"""As a dataset numbers them; the recipe has them in another order."""


def made_recipe(family: str = "llama", labels=("O", "B-x", "I-x", "B-y")) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "tiny",
            "task": {"name": "classify-tokens", "labels": labels},
            "model": {"family": family, "layers": 2, "width": 16, "heads": 2, "context_tokens": 16},
            "data": {"sources": [{"kind": "words", "paths": ["x"]}]},
            "train": {"sequence_tokens": SEQUENCE, "batch_tokens": 4 * SEQUENCE},
        }
    )


@pytest.fixture(scope="module")
def sentences(tmp_path_factory) -> TokenDataset:
    root, random = tmp_path_factory.mktemp("sentences"), Random(3)
    tokenizer = train_tokenizer(["alpha beta (x)"], vocabulary=300)
    tokenizer.save(str(root / TOKENIZER))
    writer = SplitWriter(root, "train", vocabulary=300, end_of_text_id=0, shard_tokens=64)
    for _ in range(20):
        size = random.randint(1, 14)
        tags = [random.choice([0, 1, 2, NO_TAG]) for _ in range(size)]
        tags[0] = 2
        ids = np.array([random.randint(1, 200) for _ in range(size)])
        writer.append_words(ids, np.array(tags, np.uint16), text_bytes=size)
    splits = {"train": writer.close()}
    write_dataset(
        root, vocabulary=300, end_of_text=END_OF_TEXT, end_of_text_id=0, splits=splits, labels=NAMES, kind=WORDS
    )
    return TokenDataset.open(root)


def made_network(family: str):
    spec = made_recipe(family).model_spec(vocabulary=300)
    assert (spec.classes, spec.tells_tokens, spec.pooler) == (4, True, False)
    return telling(spec)


@pytest.mark.parametrize("family", ["llama", "bert"])
class TestContract(TaskContract):
    @pytest.fixture(autouse=True)
    def _parts(self, sentences: TokenDataset, family: str) -> None:
        self.dataset, self.family = sentences, family

    def make_task(self) -> ClassifyTokens:
        return classify_tokens(made_recipe(self.family), self.dataset)

    def make_split(self) -> TokenSplit:
        return self.dataset.splits["train"]

    def make_network(self):
        return made_network(self.family)


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert", "modernbert"])
def test_the_plan_counts_the_weights_that_are_there(family) -> None:
    spec, network = made_recipe(family).model_spec(vocabulary=300), made_network(family)
    assert sum(parameter_counts(spec).values()) == sum(each.numel() for each in network.parameters())
    assert network.logit_bias.shape == (4,)
    form = huggingface_form(family, where="test")
    config = form.to_config(spec) | {"id2label": dict(enumerate(spec.labels))}
    again = form.from_config(config, where="test")
    assert again.tells_tokens and again.has_head_of(spec)


def each_alone(split: TokenSplit):
    """Ids and names of labels of each sentence, None where no word begins."""
    ends = split.document_ends.tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        names = [None if tag == NO_TAG else NAMES[tag] for tag in split.tags(start, end - 1).tolist()]
        yield split.read(start, end - 1).astype(np.int64).tolist(), names


@pytest.mark.parametrize("family", ["llama", "roberta"])
def test_any_batch_size_measures_what_each_sentence_gives_alone(sentences, family) -> None:
    split, network, recipe = sentences.splits["train"], made_network(family), made_recipe(family)
    labels, room = recipe.task.labels, SEQUENCE - (2 if family == "roberta" else 0)
    nats, right, words, cut = 0.0, 0, 0, 0
    found: list[set] = [set(), set()]
    for number, (ids, names) in enumerate(each_alone(split)):
        cut += sum(name is not None for name in names[room:])
        seen = ids[:room] if family == "llama" else [0, *ids[:room], 0]
        with torch.no_grad():
            logits = network.logits(network(torch.tensor([seen])))[0]
        logits = logits if family == "llama" else logits[1:-1]
        told = [(row.log_softmax(0), name) for row, name in zip(logits, names[:room], strict=True) if name is not None]
        said = [labels[int(odds.argmax())] for odds, _ in told]
        nats -= sum(float(odds[labels.index(name)]) for odds, name in told)
        right += sum(a == name for a, (_, name) in zip(said, told, strict=True))
        words += len(told)
        for some, here in zip(found, ([name for _, name in told], said), strict=True):
            some |= {(number, *entity) for entity in entities(here, "IOB2")}
    assert cut > 0
    task = classify_tokens(recipe, sentences)
    shown = []
    for size in (1, 3, 20):
        options = EvaluationOptions(batch_sequences=size, detailed=True, progress=lambda *done: shown.append(done))
        result = task.evaluate(network, split, options)
        measured = {name: metric.value for name, metric in result.metrics.items()}
        both = len(found[0] & found[1])
        assert (result.count, result.record["cut_words"], result.record["scheme"]) == (words, cut, "IOB2")
        assert measured["loss"] == pytest.approx(nats / words, rel=1e-9)
        assert measured["accuracy"] == right / words
        assert measured["entity_f1"] == 2 * both / (len(found[0]) + len(found[1]))
        assert result.record["entities"] == len(found[0])
        assert sum(row["words"] for row in result.details["by_label"]) == words
        assert shown[-1] == (words, words)


def test_labels_without_entities_are_measured_word_by_word(sentences) -> None:
    recipe = made_recipe(labels=("O", "B-x", "I-x", "noun"))
    result = classify_tokens(recipe, sentences).evaluate(
        made_network("llama"), sentences.splits["train"], EvaluationOptions(batch_sequences=4)
    )
    assert set(result.metrics) == {"loss", "accuracy", "macro_f1"}


def test_it_says_what_is_cut_and_which_label_is_nowhere(sentences) -> None:
    task = classify_tokens(made_recipe(), sentences)
    cut = sum(name is not None for _, names in each_alone(sentences.splits["train"]) for name in names[SEQUENCE:])
    assert list(task.notes(sentences.splits)) == [
        f"words behind the first train.sequence_tokens (10) tokens of a sentence are cut off: {cut} of train",
        "no word of the train split has the label 'B-y'",
    ]


def test_labels_stand_where_their_tokens_are(sentences) -> None:
    task, split = classify_tokens(made_recipe("bert"), sentences), sentences.splits["train"]
    batch = task.batches(split, batch_sequences=4, seed=0).documents(np.arange(20))
    for row, (ids, names) in enumerate(each_alone(split)):
        size = min(len(ids), SEQUENCE - 2)
        targets = [IGNORE if name is None else task.labels.index(name) for name in names[:size]]
        assert batch["tokens"][row, 1 : size + 1].tolist() == ids[:size]
        assert batch["targets"][row].tolist() == [IGNORE, *targets, *[IGNORE] * (SEQUENCE - size - 1)]


def test_other_data_and_unknown_labels_are_refused(sentences, tmp_path) -> None:
    with pytest.raises(RecipeError, match=r"labels that task.labels lacks.*'I-x'"):
        classify_tokens(made_recipe(labels=("O", "B-x")), sentences)
    other = TokenDataset.open(make_dataset(tmp_path, {"train": ["a b"]}).path)
    with pytest.raises(DataError, match=r"have no labels of words.*seen documents, expected words"):
        classify_tokens(made_recipe(), other)
