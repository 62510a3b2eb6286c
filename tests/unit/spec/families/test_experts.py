"""Mixtures: which layers have experts, and which settings are refused."""

from __future__ import annotations

import pytest

from fixtures.reference_models import SMALL, build
from trainwright.core.errors import RecipeError
from trainwright.spec.families import experts
from trainwright.spec.families.config_reader import ConfigReader


def keys_of(name, **changes):
    return ConfigReader(SMALL[name][1] | changes, where="config.json")


@pytest.mark.parametrize("name", ["mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "gpt_oss"])
def test_layers_with_experts_are_those_of_transformers(name):
    module, spec = build(*SMALL[name])
    assert spec.moe_layers == sum(hasattr(layer.mlp, "experts") for layer in module.model.layers)


@pytest.mark.parametrize(
    ("changes", "sparse"),
    [({}, 3), ({"decoder_sparse_step": 2}, 1), ({"decoder_sparse_step": 9}, 0), ({"mlp_only_layers": [0, 2]}, 1)],
)
def test_qwen_says_which_layers_are_sparse(changes, sparse):
    assert experts.qwen3_moe(keys_of("qwen3_moe", **({"mlp_only_layers": []} | changes))).moe_layers == sparse


@pytest.mark.parametrize("rank", [None, 0])
def test_queries_without_a_latent(rank):
    assert experts.deepseek_v3(keys_of("deepseek_v3", q_lora_rank=rank)).latent.query_rank is None


def test_deepseek_without_experts_is_dense():
    assert experts.deepseek_v3(keys_of("deepseek_v3", first_k_dense_replace=3)).experts is None


@pytest.mark.parametrize("absent", [0, None])
def test_further_predicted_tokens_are_for_training_alone(absent):
    trained = experts.deepseek_v3(keys_of("deepseek_v3", num_nextn_predict_layers=1))
    plain = experts.deepseek_v3(keys_of("deepseek_v3", num_nextn_predict_layers=absent))
    assert (trained.further_layers, trained.blocks, trained.moe_layers) == (1, 4, 3)
    assert (plain.further_layers, plain.blocks, plain.moe_layers) == (0, 3, 2)
    assert trained.deployed() == plain == experts.deepseek_v3(keys_of("deepseek_v3"))
    assert experts.glm4_moe(keys_of("glm4_moe", num_nextn_predict_layers=2)).further_layers == 2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (2, 1, "bias")),
        ({"topk_method": "group_limited_greedy"}, (2, 1, "loss")),
        ({"topk_method": "greedy"}, (1, 1, "loss")),
        ({"n_group": 1, "topk_group": 1}, (1, 1, "bias")),
        ({"n_group": 2, "topk_group": 2}, (1, 1, "bias")),
        ({"n_group": None, "topk_group": None}, (1, 1, "bias")),
    ],
)
def test_groups_bound_where_tokens_go(changes, expected):
    """DeepSeek-V3's router picks its groups first; V2's two kinds and transformers' ``null`` are read too."""
    found = experts.deepseek_v3(keys_of("deepseek_v3", **changes)).experts
    assert (found.groups, found.active_groups, found.balance) == expected


def test_a_router_of_another_kind_is_named():
    with pytest.raises(RecipeError, match="topk_method .*'noaux', expected one of greedy, group_limited_greedy"):
        experts.deepseek_v3(keys_of("deepseek_v3", topk_method="noaux"))


def test_deepseek_v2_looks_at_its_groups_where_it_says_so():
    bound = {"topk_method": "group_limited_greedy"}
    assert experts.deepseek_v2(keys_of("deepseek_v2", **bound)).experts.groups == 2
    assert experts.deepseek_v2(keys_of("deepseek_v2")).experts.groups == 1
    assert experts.deepseek_v2(keys_of("deepseek_v2", **bound)).experts.balance == "loss"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"moe_layer_freq": 2}, "moe_layer_freq=2"),
        ({"mlp_only_layers": "all"}, r"mlp_only_layers \(seen 'all', expected a list of whole numbers >= 0\)"),
        ({"num_experts_per_tok": None}, r"num_experts_per_tok \(seen nothing"),
    ],
)
def test_what_cannot_be_read_is_named(changes, message):
    reader, name = (
        (experts.qwen3_moe, "qwen3_moe")
        if "mlp_only_layers" in changes
        else (
            experts.deepseek_v3,
            "deepseek_v3",
        )
    )
    with pytest.raises(RecipeError, match=message):
        reader(keys_of(name, **changes))
