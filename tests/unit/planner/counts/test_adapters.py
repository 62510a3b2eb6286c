"""Adapters beside transformers' own networks: which matrices, parameters and operations, as torch counts them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fixtures.reference_models import SMALL, build, counted, inputs, loss
from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.planner.counts.adapters import adaptable, adapter_parameters, adapter_training_flops
from trainwright.planner.counts.flops import count_flops
from trainwright.spec.workload import Adapter


@pytest.mark.parametrize("rank", [1, 8])
def test_adapters_are_two_factors_beside_each_target(rank):
    module, spec = build(*SMALL["llama"])
    named = {
        "query": "q_proj",
        "key": "k_proj",
        "value": "v_proj",
        "output": "o_proj",
        "gate": "gate_proj",
        "up": "up_proj",
        "down": "down_proj",
    }
    for targets in (("query", "value"), tuple(named)):
        theirs = sum(
            rank * sum(weight.shape)
            for name, weight in module.named_parameters()
            if any(f".{named[target]}.weight" in name for target in targets)
        )
        assert adapter_parameters(spec, Adapter(rank=rank, targets=targets)) == theirs


def test_adapters_stand_beside_every_expert():
    _, spec = build(*SMALL["mixtral"])
    each = spec.width + spec.experts.ffn_width
    assert adapter_parameters(spec, Adapter(rank=2, targets=("down",))) == spec.layers * spec.experts.count * 2 * each
    assert adapter_parameters(spec, Adapter(rank=2, parameters=7)) == 7


def test_an_unknown_target_is_named_with_its_neighbour():
    _, spec = build(*SMALL["llama"])
    with pytest.raises(RecipeError, match=r"no such matrix to adapt \(seen 'quary', expected .*did you mean 'query'"):
        adapter_parameters(spec, Adapter(rank=2, targets=("quary",)))


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("llama3-8b", "query key value output gate up down"),
        ("gpt2", "query key value output up down"),
        ("deepseek-v3", "query_down query_up kv_down kv_up output gate up down"),
        ("mixtral-8x7b", "query key value output gate up down"),
    ],
)
def test_adapters_may_stand_beside_all_matrices_of_a_block_but_the_router(name, names):
    targets = adaptable(catalogue_model(name))
    assert targets == tuple(names.split())


class _Adapted(nn.Module):
    """A frozen linear layer and two low-rank factors beside it."""

    def __init__(self, frozen, rank):
        super().__init__()
        self.frozen = frozen
        self.down = nn.Linear(frozen.in_features, rank, bias=False)
        self.up = nn.Linear(rank, frozen.out_features, bias=False)

    def forward(self, x):
        return self.frozen(x) + self.up(self.down(x))


@pytest.mark.parametrize("targets", [("query", "value"), ("query", "key", "value", "output", "gate", "up", "down")])
def test_adapters_cost_what_torch_counts(targets):
    module, spec = build(*SMALL["llama"])
    module.requires_grad_(requires_grad=False)
    module.enable_input_require_grads()
    named = {
        "query": "q_proj",
        "key": "k_proj",
        "value": "v_proj",
        "output": "o_proj",
        "gate": "gate_proj",
        "up": "up_proj",
        "down": "down_proj",
    }
    with torch.device("meta"):
        for layer in module.model.layers:
            for target in targets:
                owner = layer.self_attn if hasattr(layer.self_attn, named[target]) else layer.mlp
                setattr(owner, named[target], _Adapted(getattr(owner, named[target]), 4))
    forward, output = counted(lambda: module(**inputs(module, 2, 64)))
    backward, _ = counted(lambda: loss(output).backward())
    adapter = Adapter(rank=4, targets=targets)
    assert adapter_training_flops(spec, adapter, sequences=2, sequence_tokens=64) == forward + backward


def test_other_adapters_cost_six_operations_for_each_parameter_and_token():
    _, spec = build(*SMALL["llama"])
    costs = [
        adapter_training_flops(spec, Adapter(rank=1, parameters=count), sequences=2, sequence_tokens=64)
        for count in (0, 1000)
    ]
    assert costs[1] - costs[0] == 6 * 1000 * 128
    assert costs[0] < count_flops(spec, sequences=2, sequence_tokens=64).training
