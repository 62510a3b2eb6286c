from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from trainwright.model.decoder import INIT_STD, Decoder
from trainwright.planner.counts.parameters import total_parameters
from trainwright.spec.parts.dropout import Dropout
from trainwright.spec.workload import KernelChoice

TOKENS = torch.randint(0, 320, (2, 30), generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=["llama", "gpt2"])
def family(request):
    return request.param


ALIBI = {"positions": "alibi", "embedding_norm": True}
SIDE_BY_SIDE = {"parallel_residual": True, "positions": "rope", "rotary_share": 0.5}
SHAPES = [
    ALIBI,
    ALIBI | {"kv_heads": 2, "bias": False, "norm_bias": False, "activation": "relu"},
    SIDE_BY_SIDE,
    SIDE_BY_SIDE | {"norms_per_block": 1, "activation": "gelu"},
    {"extra_positions": 2, "parallel_residual": True},
]
"""Shapes of the decoders with LayerNorm beside GPT-2's own."""


def test_no_token_sees_a_later_one(tiny, family):
    model = tiny.decoder(family)
    changed = TOKENS.clone()
    changed[:, 17:] = (changed[:, 17:] + 1) % 320
    before, after = model(TOKENS), model(changed)
    torch.testing.assert_close(before[:, :17], after[:, :17], atol=1e-6, rtol=1e-6)
    assert not torch.allclose(before[:, 17], after[:, 17])


def test_with_documents_each_is_computed_as_if_alone(tiny, family):
    model = tiny.decoder(family)
    documents = torch.tensor([[0] * 11 + [1] * 19] * 2)
    positions = torch.tensor([[*range(11), *range(19)]] * 2)
    together = model(TOKENS, positions=positions, documents=documents)
    alone = torch.cat((model(TOKENS[:, :11]), model(TOKENS[:, 11:])), dim=1)
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_shapes_with_layernorm_keep_documents_and_later_tokens_apart(tiny, shape):
    model = tiny.decoder("gpt2", **shape)
    documents = torch.tensor([[0] * 11 + [1] * 19, [0] * 4 + [1] * 26])
    positions = torch.tensor([[*range(11), *range(19)], [*range(4), *range(26)]])
    together = model(TOKENS, positions=positions, documents=documents)
    first = torch.cat((model(TOKENS[:1, :11]), model(TOKENS[:1, 11:])), dim=1)
    second = torch.cat((model(TOKENS[1:, :4]), model(TOKENS[1:, 4:])), dim=1)
    torch.testing.assert_close(together, torch.cat((first, second)), atol=1e-5, rtol=1e-5)
    changed = TOKENS.clone()
    changed[:, 17:] = (changed[:, 17:] + 1) % 320
    torch.testing.assert_close(model(TOKENS)[:, :17], model(changed)[:, :17], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_shapes_with_layernorm_are_counted_and_recomputed_exactly(tiny, shape):
    gradients = []
    for recompute in ("none", "selective", "full"):
        model = tiny.decoder("gpt2", recompute=recompute, **shape).train().requires_grad_(True)
        assert total_parameters(model.spec) == sum(parameter.numel() for parameter in model.parameters())
        model.logits(model(TOKENS)).square().mean().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        for again in gradients[1:]:
            torch.testing.assert_close(gradient, again[name], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("dropped", [0.0, 0.3])
def test_biases_of_positions_are_the_same_in_every_kernel(tiny, dropped):
    """Grouped heads, documents, whole scores and torch's fused attention, with weights dropped and without."""
    documents = torch.tensor([[0] * 11 + [1] * 19] * 2)
    found = []
    for kernel in ("math", "sdpa"):
        rates = Dropout(attention=dropped)
        model = tiny.decoder("gpt2", **ALIBI, kv_heads=2, dropout=rates).train().requires_grad_(True)
        model.use(KernelChoice(attention=kernel))
        found.append(model(TOKENS, documents=documents, samples=torch.tensor([3, 4])))
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)


def test_a_kernel_that_adds_nothing_to_scores_is_refused_where_positions_are_biases(tiny):
    with pytest.raises(ValueError, match="attention=flex adds nothing to scores, and ALiBi does"):
        tiny.decoder("gpt2", **ALIBI).use(KernelChoice(attention="flex"))


def test_a_shared_norm_needs_two_halves_side_by_side(tiny):
    with pytest.raises(ValueError, match="norms_per_block=1 .* needs parallel_residual"):
        Decoder(tiny.spec(norms_per_block=1))
    with pytest.raises(ValueError, match="norms_per_block=1 or 2, not norms_per_block=4"):
        Decoder(tiny.spec(norms_per_block=4, parallel_residual=True))


def test_rotary_positions_are_relative_and_learned_ones_are_not(tiny, family):
    model = tiny.decoder(family)
    shifted = model(TOKENS, positions=torch.arange(50, 80)[None])
    assert torch.allclose(model(TOKENS), shifted, atol=1e-4) == (family == "llama")


def test_recomputing_changes_no_gradient(tiny, family):
    gradients = []
    for recompute in ("none", "selective", "full"):
        model = tiny.decoder(family, recompute=recompute).train().requires_grad_(True)
        model.logits(model(TOKENS)).square().mean().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        for again in gradients[1:]:
            torch.testing.assert_close(gradient, again[name], atol=1e-6, rtol=1e-5)


def test_tying_shares_the_matrix_and_its_gradient(tiny):
    tied = tiny.decoder(tied=True)
    assert tied.head_weight is tied.embedding
    assert "head.weight" not in dict(tied.named_parameters())
    assert tiny.decoder(tied=False).head_weight is not tiny.decoder(tied=False).embedding


@pytest.mark.parametrize("tied", [True, False])
def test_a_bias_of_the_head_is_added_to_logits_and_is_in_the_loss(tiny, tied):
    model, plain = (tiny.decoder(tied=tied, head_bias=each) for each in (True, False))
    plain.load_state_dict({name: weight for name, weight in model.state_dict().items() if name != "head_bias"})
    hidden = plain(TOKENS)
    logits = plain.logits(hidden) + model.head_bias
    torch.testing.assert_close(model.logits(model(TOKENS)), logits)
    expected = F.cross_entropy(logits.flatten(0, 1), TOKENS.flatten(), reduction="none")
    rows, targets = hidden.flatten(0, 1), TOKENS.flatten()
    torch.testing.assert_close(model.token_losses(rows, targets), expected)
    torch.testing.assert_close(model.head_loss(rows, targets)[0], expected.sum())
    assert total_parameters(model.spec) == sum(parameter.numel() for parameter in model.parameters())
    assert not hasattr(tiny.decoder(head_bias=True, classes=3).head_bias, "shape"), "classes have none"


@pytest.mark.parametrize("tied", [True, False])
def test_the_planner_counts_the_parameters(tiny, family, tied):
    model = tiny.decoder(family, tied=tied)
    assert total_parameters(model.spec) == sum(parameter.numel() for parameter in model.parameters())


def test_initial_weights_follow_the_seed_and_the_rule(tiny, family):
    spec = tiny.spec(family, width=128, heads=4, kv_heads=4, head_size=32, ffn_width=256, layers=8)
    first, again, other = (Decoder(spec) for _ in range(3))
    torch.manual_seed(1)
    first.initialise(5)
    torch.manual_seed(2)
    again.initialise(5)
    other.initialise(6)
    for (name, a), b, c in zip(first.named_parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b), name
        if name.endswith("bias"):
            assert not a.any()
        elif "norm" in name:
            assert bool((a == 1).all())
        else:
            assert not torch.equal(a, c), name
            std = INIT_STD / 4 if name.endswith(("out.weight", "down.weight")) else INIT_STD
            assert abs(a.std().item() / std - 1) < 0.05, name


def test_bfloat16_computes_and_logits_are_float32(tiny, family):
    model = tiny.decoder(family, dtype=torch.bfloat16)
    hidden = model(TOKENS)
    assert hidden.dtype == torch.bfloat16
    assert model.logits(hidden).dtype == torch.float32


def test_an_impossible_shape_is_refused(tiny):
    with pytest.raises(ValueError, match="heads"):
        Decoder(tiny.spec(kv_heads=3))
