"""Weights of mixtures on disk: a tensor for each expert or all in one; blocks that predict further tokens."""

from __future__ import annotations

import pytest
import torch

from trainwright.model.build import build_network
from trainwright.model.experts.names import experts_of
from trainwright.model.families import deepseek_v3, glm4_moe, kimi_k2, mixtral
from trainwright.spec.model import ModelSpec
from trainwright.spec.sections.model import ModelSection

EXPERTS = {"count": 4, "active": 2, "ffn_width": 16, "shared_ffn_width": 16, "dense_layers": 1}
LATENT = {"query_rank": 12, "kv_rank": 8, "rope_size": 4, "value_size": 6}


def shape(family: str, **different) -> ModelSpec:
    keys = {"family": family, "layers": 2, "width": 32, "heads": 4, "experts": EXPERTS} | different
    return ModelSection(**keys).spec(vocabulary=11)


def weights(spec: ModelSpec) -> dict[str, torch.Tensor]:
    network = build_network(spec)
    network.initialise(1)
    for name, tensor in network.stored():
        if name.endswith("correction"):
            tensor.copy_(torch.arange(4.0))
    return {name: tensor.detach() for name, tensor in network.stored()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.parametrize("form", [deepseek_v3, kimi_k2])
def test_kimi_k2_is_deepseek_v3_under_another_name(form):
    family = form.__name__.rpartition(".")[2]
    spec = shape(family, latent=LATENT)
    ours = weights(spec)
    theirs = form.to_hf(ours, spec)
    assert theirs.keys() == deepseek_v3.to_hf(ours, spec).keys()
    assert same(form.from_hf(theirs, spec), ours)
    config = form.to_config(spec)
    assert config["architectures"] == ["DeepseekV3ForCausalLM"] and config["model_type"] == family
    assert form.from_config(config, where="test").body_differences(spec) == ()


def test_experts_that_lie_joined_are_read_too():
    spec = shape("mixtral", experts=EXPERTS | {"shared_ffn_width": 0, "dense_layers": 0})
    ours = weights(spec)
    apart = mixtral.to_hf(ours, spec)
    assert apart["model.layers.1.block_sparse_moe.experts.3.w2.weight"].shape == (32, 16)
    joined = {
        name.replace("block_sparse_moe", "mlp"): tensor for name, tensor in apart.items() if ".experts." not in name
    }
    for layer in range(2):
        matrices = [ours[f"blocks.{layer}.ffn.{part}.weight"] for part in ("gate", "up", "down")]
        joined[f"model.layers.{layer}.mlp.experts.gate_up_proj"] = torch.cat(matrices[:2], dim=1)
        joined[f"model.layers.{layer}.mlp.experts.down_proj"] = matrices[2]
    assert same(mixtral.from_hf(apart, spec), ours)
    assert same(mixtral.from_hf(joined, spec), ours)


def test_a_missing_expert_is_named():
    spec = shape("glm4_moe")
    theirs = glm4_moe.to_hf(weights(spec), spec)
    del theirs["model.layers.1.mlp.experts.2.up_proj.weight"]
    with pytest.raises(KeyError, match=r"model\.layers\.1\.mlp\.experts\.2\.up_proj\.weight"):
        glm4_moe.from_hf(theirs, spec)


def test_blocks_that_predict_further_tokens_are_left_out_and_others_are_not():
    class Asked(dict):
        def __getitem__(self, name):
            seen.add(name)
            return super().__getitem__(name)

    spec = shape("glm4_moe")
    config = glm4_moe.to_config(spec) | {"num_nextn_predict_layers": 1}
    assert glm4_moe.from_config(config, where="test").body_differences(spec) == ()
    theirs = glm4_moe.to_hf(weights(spec), spec)
    further = {f"model.layers.2.{name}.weight": torch.ones(1) for name in ("eh_proj", "enorm", "mlp.gate")}
    other = {"model.layers.3.mlp.gate.weight": torch.ones(1)}
    seen: set[str] = set()
    glm4_moe.from_hf(Asked(theirs | further | other), spec)
    assert further.keys() <= seen and not other.keys() & seen


def test_a_family_with_experts_has_no_form_without():
    with pytest.raises(ValueError, match="Hugging Face's llama has experts in some layer, this shape has none"):
        experts_of(ModelSection(layers=1, width=16, heads=2).spec(vocabulary=9))


def test_shared_experts_are_a_number_of_experts():
    spec = shape("glm4_moe", experts=EXPERTS | {"shared_ffn_width": 24})
    with pytest.raises(ValueError, match="shared experts of 16 elements each"):
        glm4_moe.to_config(spec)
