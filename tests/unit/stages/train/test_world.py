"""A world of one process shares nothing, agrees with itself and has everything."""

from __future__ import annotations

from typing import cast

import torch

from fixtures.tiny_models import decoder
from trainwright.artifact.shards import TokenSplit
from trainwright.model.tasks.next_token import NextToken
from trainwright.model.tasks.task import Evaluation, EvaluationOptions
from trainwright.stages.train.world import ALONE


def test_one_process_has_everything() -> None:
    network = decoder()
    before = {name: parameter.clone() for name, parameter in network.named_parameters()}
    ALONE.share(network, compiled=True)
    after = dict(ALONE.whole(network.named_parameters()))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert [id(each) for each in ALONE.local(network.parameters())] == [id(each) for each in network.parameters()]
    value = torch.arange(3.0)
    assert torch.equal(ALONE.laid_out(torch.zeros(3), value), value)
    assert ALONE.placement("embedding", torch.zeros(3, 2)) == ((3, 2), (0, 0))


def test_one_process_hears_itself_and_measures_by_itself() -> None:
    assert ALONE.gathered("word") == ALONE.beside()("word") == ["word"]
    asked: list[tuple[object, ...]] = []

    class Asked(NextToken):
        def evaluate(self, *arguments: object) -> Evaluation:  # type: ignore[override]
            asked.append(arguments)
            return Evaluation(count=1, metrics={})

    arguments = (decoder(), cast("TokenSplit", object()), EvaluationOptions(batch_sequences=1))
    assert ALONE.evaluate(Asked(sequence_tokens=4), *arguments) == Evaluation(count=1, metrics={})
    assert asked == [arguments]


def test_one_process_leads_and_agrees_with_itself() -> None:
    assert (ALONE.leads, ALONE.ranks, ALONE.rows(8)) == (True, 1, None)
    assert ALONE.agreed(3.5, "SIGTERM", saved=True) == (3.5, "SIGTERM")
