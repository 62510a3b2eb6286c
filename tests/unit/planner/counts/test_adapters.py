"""Adapters beside transformers' own networks: which matrices, parameters and operations, as torch counts them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fixtures.reference_models import SMALL, build, counted, inputs, loss
from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.planner.counts.adapters import (
    adaptable,
    adapted,
    adapter_parameters,
    attention,
    beside,
)
from trainwright.planner.counts.flops import count_flops
from trainwright.planner.counts.methods import adapter_training_flops
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


@pytest.mark.parametrize(
    "name", ["llama", "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "gpt_oss", "glm4_moe"]
)
def test_by_default_adapters_stand_beside_every_linear_layer_of_transformers(name):
    module, spec = build(*SMALL[name])
    heads = ("lm_head", "mlp.gate")  # DeepSeek-V2's router is a linear layer
    linear = [each for path, each in module.named_modules() if isinstance(each, nn.Linear) and not path.endswith(heads)]
    theirs = sum(3 * (each.in_features + each.out_features) for each in linear)
    assert adapter_parameters(spec, beside(spec, None, rank=3)) == theirs
    assert beside(spec, ["all-linear"], rank=3) == beside(spec, None, rank=3)


def test_experts_are_one_parameter_of_transformers_that_adapters_reach_by_their_own_word():
    module, spec = build(*SMALL["qwen3_moe"])
    fused = [weight for name, weight in module.named_parameters() if ".experts." in name]
    assert fused and all(weight.dim() == 3 for weight in fused)
    more = beside(spec, ["all-linear", "experts"], rank=2)
    own = [each for each in adapted(spec, more) if each.part == "experts"]
    # gate and up of an expert lie in one tensor there: [experts, 2 x inner, width] and [experts, width, inner].
    assert sum(each.layers * each.copies * each.elements for each in own) == sum(weight.numel() for weight in fused)
    assert set(adapted(spec, more)) - set(adapted(spec, beside(spec, None, rank=2))) == set(own)
    assert set(adapted(spec, beside(spec, ["experts"], rank=2))) >= set(own)


@pytest.mark.parametrize(
    ("name", "words", "targets"),
    [
        ("llama3-8b", ["attention"], "query key value output"),
        ("llama3-8b", ["q_proj", "model.layers.0.self_attn.V_PROJ"], "query value"),
        ("llama3-8b", ["gate_up_proj"], "gate up"),
        ("gpt2", ["c_attn"], "query key value"),
        ("deepseek-v3", ["attention"], "query_down query_up kv_down kv_up output"),
        ("deepseek-v3", ["q_b_proj", "kv_a_proj_with_mqa"], "query_up kv_down"),
        ("deepseek-v3", ["down_proj"], "down"),
        ("qwen3-30b-a3b", ["q_proj", "gate_proj", "up_proj", "down_proj"], "query"),
        ("gpt-oss-120b", None, "query key value output"),
    ],
)
def test_targets_are_named_as_in_peft(name, words, targets):
    model = catalogue_model(name)
    assert beside(model, words, rank=1).targets == tuple(targets.split())


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("llama3-8b", ["q_porj"], "no such matrix to adapt .seen 'q_porj'"),
        ("llama3-8b", ["experts"], "no such matrix to adapt .seen 'experts'"),
        ("llama3-8b", ["kv_a_proj_with_mqa"], "no such matrix to adapt"),
        ("gpt2", ["atention"], "did you mean 'attention'"),
        ("qwen3-30b-a3b", ["gate_proj", "up_proj"], "no linear layer has these names, experts alone .*add experts"),
    ],
)
def test_targets_that_a_model_has_not_are_refused(name, words, message):
    with pytest.raises(RecipeError, match=message):
        beside(catalogue_model(name), words, rank=1)


def test_attention_alone_is_attention_of_every_layer():
    module, spec = build(*SMALL["deepseek_v3"])
    theirs = sum(
        each.in_features + each.out_features
        for path, each in module.named_modules()
        if isinstance(each, nn.Linear) and ".self_attn." in path
    )
    assert adapter_parameters(spec, Adapter(rank=1, targets=attention(spec))) == theirs


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
