"""What an encoder promises beside its arithmetic, which tests/unit/model/families hold to transformers."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from trainwright.core.errors import RecipeError
from trainwright.model.build import build_network
from trainwright.model.dropout import sample_keys
from trainwright.model.losses import IGNORE
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.convolutions import Convolutions
from trainwright.spec.parts.dropout import Dropout
from trainwright.spec.parts.experts import Experts
from trainwright.spec.parts.latent import LatentAttention
from trainwright.spec.parts.rotary import RopeScaling
from trainwright.spec.parts.scales import Scales
from trainwright.spec.workload import KernelChoice

TOKENS = torch.randint(2, 320, (4, 9), generator=torch.Generator().manual_seed(0))
PADDING = torch.arange(9) >= torch.tensor([[9], [4], [6], [1]])
REFUSED = {
    "kind": "decoder",
    "positions": "none",
    "activation": "silu",
    "norm": "rmsnorm",
    "first_norm": False,
    "token_classes": True,
    "norms_per_block": 4,
    "parallel_residual": True,
    "embedding_norm": False,
    "qk_norm": True,
    "sinks": True,
    "experts": Experts(count=4, active=2, ffn_width=8),
    "latent": LatentAttention(query_rank=None, kv_rank=8, rope_size=4, value_size=8),
    "further_layers": 1,
    "image_size": 32,
    "patch_size": 16,
    "convolutions": Convolutions(depths=(3,), widths=(32,)),
    "rotary_share": 0.5,
    "rope_scaling": RopeScaling(kind="linear", factor=2.0),
    "window_rope_theta": 5000.0,
    "norm_offset": 1.0,
    "scales": Scales(embedding=2.0),
    "score_cap": 50.0,
    "logit_cap": 30.0,
}
BUILT = {"family", "layers", "width", "heads", "kv_heads", "head_size", "ffn_width", "vocabulary", "context_tokens"}
BUILT |= {"tied", "norm_epsilon", "rope_theta", "bias", "extra_positions", "segments", "pooler", "classes", "labels"}
BUILT |= {"language_head", "dropout", "gated", "norm_bias", "post_norm", "final_norm", "head_bias", "qkv_bias"}
BUILT |= {"output_bias", "window_tokens", "window_layers", "head_transform", "pooling"}


def test_every_field_of_the_spec_is_built_or_refused() -> None:
    assert BUILT | REFUSED.keys() == {field.name for field in fields(ModelSpec)}


@pytest.mark.parametrize("field", REFUSED)
def test_a_field_that_is_not_computed_is_refused_by_its_name(tiny, field) -> None:
    with pytest.raises(RecipeError, match=rf"can be planned, not built .*\b{field}=.*not {field}="):
        build_network(tiny.spec("bert", **{field: REFUSED[field]}))


def test_a_token_sees_both_sides_and_no_padding(tiny) -> None:
    network = tiny.encoder(dtype=torch.float64)
    hidden = network(TOKENS, documents=PADDING.long())
    other = torch.where(PADDING, (TOKENS + 7) % 320, TOKENS)
    assert torch.equal(network(other, documents=PADDING.long())[~PADDING], hidden[~PADDING]), "what padding is"
    for row, size in enumerate((~PADDING).sum(dim=1).tolist()):
        alone = network(TOKENS[row : row + 1, :size])[0]
        torch.testing.assert_close(hidden[row, :size], alone, atol=1e-12, rtol=1e-12)
    changed = TOKENS.clone()
    changed[:, -1] = 5
    assert not torch.allclose(network(changed)[:, 0], network(TOKENS)[:, 0])


WINDOW = {"window_tokens": 4, "window_layers": (0, 2)}


@pytest.mark.parametrize("family", ["bert", "modernbert"])
@pytest.mark.parametrize("kernel", ["math", "sdpa"])
def test_documents_and_padding_are_apart_to_the_bit(tiny, family, kernel) -> None:
    """Two packed documents and padding: what stands in one changes no bit of the others, with windows or without."""
    network = tiny.encoder(family, **WINDOW)
    network.use(KernelChoice(attention=kernel))
    documents = torch.tensor([[0] * 4 + [1] * 3 + [2] * 2] * 4)
    whole = network(TOKENS, documents=documents)
    for number in (1, 2):
        inside = documents == number
        other = network(torch.where(inside, (TOKENS + 7) % 320, TOKENS), documents=documents)
        assert torch.equal(other[~inside], whole[~inside])
        assert not torch.allclose(other[inside], whole[inside])


def test_a_window_lies_on_both_sides(tiny) -> None:
    """One windowed layer: a changed token changes itself, and what is at most half a window away."""
    network = tiny.encoder("modernbert", layers=1, window_tokens=4, window_layers=None)
    whole = network(TOKENS)
    changed = TOKENS.clone()
    changed[:, 4] += 1
    differs = (network(changed) != whole).any(dim=2)
    assert differs.tolist() == [[2 <= place <= 6 for place in range(9)]] * 4
    wide = tiny.encoder("modernbert", layers=1, window_tokens=16, window_layers=None)
    everything = tiny.encoder("modernbert", layers=1, window_tokens=None, window_layers=None)
    assert torch.equal(wide(TOKENS), everything(TOKENS)), "a window that reaches all hides nothing"


def test_windowed_layers_turn_by_a_base_of_their_own(tiny) -> None:
    one, other = (tiny.encoder("modernbert", window_rope_theta=base, rope_theta=5e4) for base in (1e4, 5e4))
    same = tiny.encoder("modernbert", window_rope_theta=None, rope_theta=5e4)
    assert torch.equal(other(TOKENS), same(TOKENS))
    assert not torch.allclose(one(TOKENS), other(TOKENS))


@pytest.mark.parametrize("attention", ["math", "sdpa"])
def test_kernels_agree(tiny, attention) -> None:
    network = tiny.encoder(dtype=torch.float64)
    expected = network(TOKENS, documents=PADDING.long())[~PADDING]
    network.use(KernelChoice(attention=attention))
    torch.testing.assert_close(network(TOKENS, documents=PADDING.long())[~PADDING], expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("attention", ["flex", "fa3"])
def test_kernels_that_look_back_alone_are_refused(tiny, attention) -> None:
    with pytest.raises(RecipeError, match=rf"attention={attention} hides later tokens, which an encoder sees"):
        build_network(tiny.spec("bert"), kernels=KernelChoice(attention=attention))


@pytest.mark.parametrize(
    "asked", [{"cache": object()}, {"part": range(1)}, {"places": torch.arange(9)}], ids=["cache", "part", "places"]
)
def test_parts_of_sequences_and_caches_are_refused(tiny, asked) -> None:
    with pytest.raises(ValueError, match="an encoder sees whole sequences"):
        tiny.encoder()(TOKENS, **asked)


@pytest.mark.parametrize(("family", "recompute"), [("bert", "full"), ("bert", "selective"), ("modernbert", "full")])
def test_recomputation_changes_no_bit(tiny, family, recompute) -> None:
    spec = tiny.spec(family, dropout=Dropout(residual=0.2, embedding=0.1, attention=0.3))
    gradients = []
    for how in ("none", recompute):
        network = build_network(spec, recompute=how)
        network.initialise(1)
        hidden = network.train()(TOKENS, documents=PADDING.long(), samples=sample_keys(1, 0, range(4)))
        network.head_loss(hidden.flatten(0, 1), torch.where(PADDING, IGNORE, TOKENS).flatten())[0].backward()
        gradients.append([parameter.grad for parameter in network.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


def test_the_head_is_what_another_task_replaces(tiny) -> None:
    assert tiny.encoder().head_names() == {
        "head_bias",
        "transform.weight",
        "transform.bias",
        "transform_norm.weight",
        "transform_norm.bias",
    }
    classes = tiny.encoder(classes=3, pooler=True, language_head=False)
    assert classes.head_names() == {"head.weight", "head.bias"}
    transformed = tiny.encoder("modernbert", classes=3, pooler=True, language_head=False)
    assert transformed.head_names() == {"head.weight", "head.bias"}
    assert transformed.transform is not None, "it is what a base brings along"
    bare = tiny.encoder(language_head=False)
    assert not bare.head_names()
    with pytest.raises(ValueError, match="no head"):
        bare.logits(bare(TOKENS))


def test_losses_are_those_of_the_logits(tiny) -> None:
    network = tiny.encoder(dtype=torch.float64)
    hidden = network(TOKENS).flatten(0, 1)
    targets = torch.where(PADDING, IGNORE, TOKENS).flatten()
    expected = torch.nn.functional.cross_entropy(network.logits(hidden), targets, reduction="none")
    loss, weight = network.head_loss(hidden, targets)
    assert (int(weight), float(loss)) == (int((~PADDING).sum()), pytest.approx(float(expected.sum()), rel=1e-12))
    torch.testing.assert_close(network.token_losses(hidden, targets).double(), expected, atol=1e-4, rtol=1e-4)
