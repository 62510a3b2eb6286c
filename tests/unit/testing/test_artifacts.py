"""What the makers of small artefacts leave behind opens with the readers that stages use."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer

from trainwright.artifact.reading import read_plan
from trainwright.artifact.shards import TokenDataset
from trainwright.spec.recipe import Recipe
from trainwright.testing.artifacts import END_OF_TEXT, make_artifact, make_dataset, make_plan, train_tokenizer

TEXTS = ["alpha beta alpha beta", "beta gamma × é", "alpha\n\tdelta"]


@pytest.fixture
def recipe():
    return Recipe.model_validate(
        {
            "name": "x",
            "model": {"layers": 1, "width": 8, "heads": 1, "context_tokens": 16},
            "data": {"sources": [{"kind": "python-stdlib"}]},
            "train": {"sequence_tokens": 16, "batch_tokens": 64},
        }
    )


def test_the_tokenizer_spells_any_text_and_keeps_end_of_text_apart():
    tokenizer = train_tokenizer(TEXTS, vocabulary=270)
    assert tokenizer.get_vocab_size() <= 270
    assert tokenizer.token_to_id(END_OF_TEXT) == 0
    for text in [*TEXTS, "unseen: 漢字 🙂"]:
        ids = tokenizer.encode(text).ids
        assert tokenizer.decode(ids) == text
        assert 0 not in ids


def test_an_artefact_holds_these_files_and_notices_a_change(tmp_path):
    artifact = make_artifact(tmp_path, "train", {"a.txt": b"one", "b.bin": b"\0"}, {"loss": 2.5})
    artifact.verify()
    assert artifact.file("a.txt").read_bytes() == b"one"
    assert {entry.path for entry in artifact.manifest.files} == {"a.txt", "b.bin"}
    assert artifact.summary == {"loss": 2.5}


def test_a_dataset_is_its_documents_in_order(tmp_path):
    artifact = make_dataset(tmp_path, {"train": TEXTS, "validation": TEXTS[:1]})
    dataset = TokenDataset.open(artifact.path)
    tokenizer = Tokenizer.from_file(str(dataset.tokenizer_path))
    split = dataset.splits["train"]
    ends = split.document_ends.astype(np.int64)
    ids = split.read(0, int(ends[-1]))
    for text, start, end in zip(TEXTS, [0, *ends[:-1]], ends, strict=True):
        assert ids[end - 1] == dataset.end_of_text_id
        assert tokenizer.decode(ids[start : end - 1].tolist()) == text
    assert split.text_bytes == sum(len(text.encode()) for text in TEXTS)
    assert len(dataset.splits["validation"].document_ends) == 1


def test_a_plan_is_what_the_trainer_was_asked_for(tmp_path, recipe):
    artifact = make_plan(tmp_path, recipe, vocabulary=300, steps=7, micro_batch=2, precision="bf16")
    plan = read_plan(artifact.file("plan.json"))
    assert plan.model.vocabulary == 300
    assert (plan.workload.steps, plan.workload.total_tokens) == (7, 7 * 64)
    assert plan.workload.problems(plan.model) == ()
    assert plan.parallel.problems(plan.model, plan.workload, plan.cluster) == ()
    assert plan.parallel.micro_batch_sequences == 2
    assert artifact.summary["precision"] == plan.workload.precision == "bf16"
