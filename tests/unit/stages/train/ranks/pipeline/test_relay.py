"""A relay passes calls on and has what its network has."""

from __future__ import annotations

import torch

from fixtures.tiny_models import decoder
from trainwright.model.tasks.next_token import NextToken
from trainwright.stages.train.ranks.pipeline.relay import Relay


def test_a_task_speaks_to_a_relay_as_to_its_network() -> None:
    network = decoder("gpt2")
    heard: list[dict[str, torch.Tensor]] = []

    def run(tokens: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
        heard.append(inputs)
        return network(tokens, **inputs)

    relay = Relay(network, run)
    task = NextToken(sequence_tokens=8, end_of_text=1)
    batch = {"tokens": torch.tensor([[5, 1, 7, 8, 9, 3, 2, 1, 4]])}
    inputs = task.inputs(relay, batch)
    hidden = task.hidden(relay, inputs)
    assert torch.equal(hidden, task.hidden(network, inputs))
    assert relay.output is hidden
    assert heard[0].keys() >= {"positions", "documents"}
    ours, truth = (task.loss(each, hidden, inputs)[0] for each in (relay, network))
    assert torch.equal(ours, truth)
    rows, targets = hidden.flatten(0, 1), inputs["targets"].flatten()
    assert torch.equal(relay.token_losses(rows, targets), network.token_losses(rows, targets))
    assert torch.equal(relay.logits(rows), network.logits(rows))
    assert relay.head_weight is network.head_weight
    assert (relay.matrices(), relay.tables()) == (network.matrices(), network.tables())
    assert relay.device == network.device
    relay.train()
    assert network.training
