from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from trainwright.model.decoder import INIT_STD, Decoder
from trainwright.planner.counts.parameters import total_parameters

TOKENS = torch.randint(0, 320, (2, 30), generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=["llama", "gpt2"])
def family(request):
    return request.param


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
