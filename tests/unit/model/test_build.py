"""A network computes its whole spec: what it does not compute, it refuses by the field's name."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from trainwright.core.errors import RecipeError
from trainwright.model.build import build_network
from trainwright.model.decoder import Decoder
from trainwright.model.network import Network
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.convolutions import Convolutions
from trainwright.spec.workload import KernelChoice

BUILT = frozenset(
    {
        "sinks",
        "experts",
        "latent",
        "family",
        "layers",
        "width",
        "heads",
        "kv_heads",
        "head_size",
        "ffn_width",
        "vocabulary",
        "context_tokens",
        "tied",
        "gated",
        "norm",
        "norm_epsilon",
        "rope_theta",
        "bias",
        "head_bias",
        "classes",
        "token_classes",
        "labels",
        "dropout",
        "activation",
        "qkv_bias",
        "output_bias",
        "qk_norm",
        "window_tokens",
        "window_layers",
        "rotary_share",
        "rope_scaling",
        "window_rope_theta",
        "norm_offset",
        "scales",
        "score_cap",
        "logit_cap",
        "norm_bias",
        "parallel_residual",
        "embedding_norm",
        "extra_positions",
    }
)
"""Fields that the decoder computes whatever their value is; labels are names of the classes that it computes."""
REFUSED = {
    "kind": "encoder",
    "post_norm": True,
    "positions": "none",
    "norms_per_block": 3,
    "first_norm": False,
    "final_norm": False,
    "further_layers": 1,
    "segments": 2,
    "pooler": True,
    "pooling": "mean",
    "head_transform": True,
    "language_head": False,
    "image_size": 32,
    "patch_size": 16,
    "convolutions": Convolutions(depths=(3,), widths=(32,)),
}

NEEDED = {"pooling": {"head_transform": True}}
"""What else a shape with that value has: without it the shape is impossible."""


def test_every_field_of_the_spec_is_built_or_refused() -> None:
    assert BUILT | REFUSED.keys() == {field.name for field in fields(ModelSpec)}
    assert not BUILT & REFUSED.keys()


@pytest.mark.parametrize("field", REFUSED)
def test_a_field_that_is_not_computed_is_refused_by_its_name(tiny, field) -> None:
    with pytest.raises(RecipeError, match=rf"can be planned, not built .*\b{field}=.*not {field}="):
        build_network(tiny.spec(**(NEEDED.get(field, {}) | {field: REFUSED[field]})))


def test_classes_and_logits_are_not_both_made(tiny) -> None:
    with pytest.raises(RecipeError, match="language_head"):
        build_network(tiny.spec(classes=3, language_head=True))


def test_an_impossible_shape_is_named_with_the_key(tiny) -> None:
    with pytest.raises(RecipeError, match=r"here: this is no possible model .*heads \(4\)"):
        build_network(tiny.spec(kv_heads=3), where="here")


def test_kernels_go_to_every_attention_and_to_the_loss(tiny) -> None:
    network = build_network(tiny.spec(), kernels=KernelChoice(attention="math", loss_chunk_tokens=64))
    assert {block.attention.kernel for block in network.blocks} == {"math"}
    assert network.kernels.loss_chunk_tokens == 64


def test_a_network_with_one_attention_refuses_another_by_name(tiny, monkeypatch) -> None:
    monkeypatch.setattr(Decoder, "use", Network.use)
    build_network(tiny.spec(), kernels=KernelChoice(loss_chunk_tokens="whole"))
    with pytest.raises(RecipeError, match=r"train\.exec\.attention: .*one attention, not attention=sdpa"):
        build_network(tiny.spec(), kernels=KernelChoice(attention="sdpa"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activations_have_the_dtype_that_was_asked_for_and_parameters_stay_fp32(tiny, dtype) -> None:
    network = build_network(tiny.spec(), dtype=dtype)
    network.initialise(0)
    assert network(torch.zeros(1, 4, dtype=torch.long)).dtype == dtype
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
