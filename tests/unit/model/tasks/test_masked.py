"""Filling gaps keeps the contract of tasks; which tokens are hidden follows from seed, step and row alone."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from trainwright.artifact.shards import TokenDataset, TokenSplit
from trainwright.core.errors import DataError
from trainwright.model.build import build_network
from trainwright.model.losses import IGNORE
from trainwright.model.network import Network
from trainwright.model.tasks.masked import Gaps, Masked, masked
from trainwright.model.tasks.task import EvaluationOptions
from trainwright.spec.recipe import Recipe
from trainwright.testing.artifacts import make_dataset
from trainwright.testing.contract_task import TaskContract

SEQUENCE = 12


def made_recipe(family="bert", **train) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "tiny",
            "task": {"name": "masked"},
            "model": {"family": family, "layers": 2, "width": 16, "heads": 2, "context_tokens": 16},
            "data": {"sources": [{"kind": "text", "paths": ["x.txt"]}]},
            "train": {"sequence_tokens": SEQUENCE, "batch_tokens": 4 * SEQUENCE} | train,
        }
    )


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> TokenDataset:
    random = Random(5)
    texts = [" ".join(random.choices(["alpha", "beta", "(x)", "\n"], k=random.randint(1, 9))) for _ in range(40)]
    return TokenDataset.open(make_dataset(tmp_path_factory.mktemp("documents"), {"train": texts}).path)


def made_network(dataset: TokenDataset, family="bert") -> Network:
    network = build_network(made_recipe(family).model_spec(vocabulary=dataset.vocabulary), dtype=torch.float64)
    network.initialise(1)
    return network.to(torch.float64)


@pytest.mark.parametrize(("family", "apart"), [("bert", True), ("roberta", False)])
class TestContract(TaskContract):
    @pytest.fixture(autouse=True)
    def _parts(self, documents: TokenDataset, family: str, apart: bool) -> None:
        self.dataset, self.family, self.apart = documents, family, apart

    def make_task(self) -> Masked:
        return masked(made_recipe(self.family, document_masking=self.apart), self.dataset)

    def make_split(self) -> TokenSplit:
        return self.dataset.splits["train"]

    def make_network(self) -> Network:
        return made_network(self.dataset, self.family)


def test_shares_are_those_of_the_paper_and_special_tokens_are_never_told() -> None:
    """Of 2e5 tokens 15 % are told, of these 80 % as the mask, 10 % as they are, 10 % as any other."""
    gaps = Gaps(mask=3, vocabulary=1000, never=(7, 8))
    tokens = np.random.default_rng(0).integers(10, 1000, (200, 1000))
    tokens[:, ::10] = 7
    inputs, targets = gaps.of(tokens, range(200))
    told = targets != IGNORE
    assert not told[:, ::10].any()
    assert (inputs[~told] == tokens[~told]).all() and (targets[told] == tokens[told]).all()
    count = told.sum()
    assert count / 180_000 == pytest.approx(0.15, abs=4 * math.sqrt(0.15 * 0.85 / 180_000))
    for share, found in (
        (0.8, inputs[told] == 3),
        (0.1 + 0.1 / 1000, inputs[told] == tokens[told]),
        (0.1 - 0.2 / 1000, (inputs[told] != tokens[told]) & (inputs[told] != 3)),
    ):
        assert found.mean() == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / count))
    random = inputs[told & (inputs != 3) & (inputs != tokens)]
    assert random.mean() == pytest.approx(500, abs=4 * 289 / math.sqrt(len(random)))


def test_gaps_differ_by_step_row_and_seed_and_not_by_who_reads_them(documents) -> None:
    split = documents.splits["train"]
    task = masked(made_recipe(), documents)
    batches = task.batches(split, batch_sequences=4, seed=3)
    where = [batches.batch(step)["targets"] != IGNORE for step in range(3)]
    rows = [tuple(row.tolist()) for step in where for row in step]
    assert len(set(rows)) > 8, "rows and steps have gaps of their own"
    assert torch.equal(batches.batch(1, range(2, 4))["targets"], batches.batch(1)["targets"][2:])
    same_tokens = torch.where(where[0], batches.batch(0)["targets"], batches.batch(0)["tokens"])
    assert torch.equal(same_tokens, batches.windows.batch(0)["tokens"][:, :-1])


@pytest.mark.parametrize("apart", [True, False])
def test_an_evaluation_is_what_each_window_alone_says(documents, apart) -> None:
    """Loss and accuracy of the hidden tokens of each window, computed by itself without padding."""
    split, network = documents.splits["train"], made_network(documents).eval()
    task = masked(made_recipe(document_masking=apart), documents)
    nats, right, count = 0.0, 0, 0
    for batch, _, _ in task.in_order(split, 1, None):
        size = int((batch["documents"] >= 0).sum())
        ids, targets = batch["tokens"][:, :size], batch["targets"][:, :size]
        for document in batch["documents"][0, :size].unique():
            here = (batch["documents"][0, :size] == document).nonzero().flatten()
            with torch.no_grad():
                logits = network.logits(network(ids[:, here]))[0]
            told = targets[0, here] != IGNORE
            nats += float(F.cross_entropy(logits[told], targets[0, here][told], reduction="sum"))
            right += int((logits[told].argmax(dim=-1) == targets[0, here][told]).sum())
            count += int(told.sum())
    results = [task.evaluate(network, split, EvaluationOptions(batch_sequences=size)) for size in (1, 3, 8)]
    for result in results:
        assert result.count == count
        assert result.metrics["loss"].value == pytest.approx(nats / count, rel=1e-9)
        assert result.metrics["accuracy"].value == right / count
        assert result.metrics["perplexity"].value == pytest.approx(math.exp(nats / count), rel=1e-9)


def test_the_mask_is_the_tokenizers_own_or_a_byte_that_no_text_has(documents, tmp_path) -> None:
    tokenizer = Tokenizer.from_file(str(documents.tokenizer_path))
    assert masked(made_recipe(), documents).gaps.mask == tokenizer.token_to_id("ÿ")
    assert documents.end_of_text_id in masked(made_recipe(), documents).gaps.never
    for mask in ("[MASK]", "<mask>"):
        tokenizer.add_special_tokens([mask])
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        other = TokenDataset(**{**vars(documents), "tokenizer_path": tmp_path / "tokenizer.json"})
        expected = tokenizer.token_to_id("[MASK]")
        assert masked(made_recipe(), other).gaps.mask == expected


def test_a_tokenizer_without_a_token_for_gaps_is_refused(documents, tmp_path) -> None:
    text = documents.tokenizer_path.read_text(encoding="utf-8").replace('"ÿ"', '"other"')
    (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
    other = TokenDataset(**{**vars(documents), "tokenizer_path": tmp_path / "tokenizer.json"})
    with pytest.raises(DataError, match=r"the tokenizer has no token for a gap .*expected one of \[MASK\], <mask>"):
        masked(made_recipe(), other)
