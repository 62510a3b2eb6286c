"""Mixtures of experts against transformers' own modules: results and all gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import transformers
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Moe
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssMLP
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeSparseMoeBlock

from trainwright.model.experts.balance import Share
from trainwright.model.experts.mixture import Mixture
from trainwright.spec.parts.experts import Experts

WIDTH, INNER, SHARED = 24, 20, 12
MIXTRAL = Experts(count=6, active=2, ffn_width=INNER)
DEEPSEEK = {"hidden_size": WIDTH, "moe_intermediate_size": INNER, "n_routed_experts": 6, "num_experts_per_tok": 2}


def mixture(tiny, experts: Experts) -> Mixture:
    spec = replace(tiny.spec("llama", width=WIDTH, heads=4), experts=experts)
    module = Mixture(spec).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3)
    return module


def joined(ours: Mixture, *, transposed: bool = False) -> dict[str, torch.Tensor]:
    """Our experts' weights as transformers keeps them: gate and up in one."""
    if not transposed:
        return {
            "experts.gate_up_proj": torch.cat([ours.gate.weight, ours.up.weight], dim=1),
            "experts.down_proj": ours.down.weight,
        }
    both = torch.stack([ours.gate.weight, ours.up.weight], dim=2).flatten(1, 2)
    return {
        "experts.gate_up_proj": both.transpose(1, 2),
        "experts.gate_up_proj_bias": torch.stack([ours.gate.bias, ours.up.bias], dim=2).flatten(1, 2),
        "experts.down_proj": ours.down.weight.transpose(1, 2),
        "experts.down_proj_bias": ours.down.bias,
    }


def shared(ours: Mixture, name: str) -> dict[str, torch.Tensor]:
    return {f"{name}.{part}_proj.weight": getattr(ours.shared, part).weight for part in ("gate", "up", "down")}


def mixtral(tiny):
    ours = mixture(tiny, MIXTRAL)
    config = transformers.MixtralConfig(
        hidden_size=WIDTH, intermediate_size=INNER, num_local_experts=6, num_experts_per_tok=2
    )
    return ours, MixtralSparseMoeBlock(config), joined(ours) | {"gate.weight": ours.router.weight}


def qwen2_moe(tiny):
    experts = replace(MIXTRAL, active=3, normalised=False, shared_ffn_width=SHARED, shared_gate=True)
    ours = mixture(tiny, experts)
    config = transformers.Qwen2MoeConfig(
        hidden_size=WIDTH,
        moe_intermediate_size=INNER,
        num_experts=6,
        num_experts_per_tok=3,
        shared_expert_intermediate_size=SHARED,
    )
    weights = joined(ours) | shared(ours, "shared_expert")
    weights |= {"gate.weight": ours.router.weight, "shared_expert_gate.weight": ours.shared_gate.weight}
    return ours, Qwen2MoeSparseMoeBlock(config), weights


def deepseek_v2(tiny):
    experts = replace(
        MIXTRAL, normalised=False, scale=1.7, groups=3, active_groups=2, group_best=1, shared_ffn_width=2 * INNER
    )
    ours = mixture(tiny, experts)
    groups = {"n_group": 3, "topk_group": 2, "topk_method": "group_limited_greedy", "routed_scaling_factor": 1.7}
    config = transformers.DeepseekV2Config(**DEEPSEEK, **groups, num_attention_heads=4, n_shared_experts=2)
    weights = joined(ours) | shared(ours, "shared_experts") | {"gate.weight": ours.router.weight}
    return ours, DeepseekV2Moe(config), weights


def deepseek_v3(tiny):
    experts = replace(
        MIXTRAL, scores="sigmoid", scale=2.5, groups=3, active_groups=2, balance="bias", shared_ffn_width=INNER
    )
    ours = mixture(tiny, experts)
    ours.router.correction.copy_(torch.tensor([0.3, -0.2, 0.0, 0.25, -0.1, 0.05]))
    config = transformers.DeepseekV3Config(**DEEPSEEK, n_group=3, topk_group=2, routed_scaling_factor=2.5)
    weights = joined(ours) | shared(ours, "shared_experts") | {"gate.weight": ours.router.weight}
    return ours, DeepseekV3MoE(config), weights | {"gate.e_score_correction_bias": ours.router.correction}


def gpt_oss(tiny):
    experts = replace(MIXTRAL, bias=True, router_bias=True, limit=0.7)
    ours = mixture(tiny, experts)
    config = transformers.GptOssConfig(
        hidden_size=WIDTH, intermediate_size=INNER, num_local_experts=6, num_experts_per_tok=2, swiglu_limit=0.7
    )
    router = {"router.weight": ours.router.weight, "router.bias": ours.router.bias}
    return ours, GptOssMLP(config), joined(ours, transposed=True) | router


KINDS = (mixtral, qwen2_moe, deepseek_v2, deepseek_v3, gpt_oss)


@pytest.fixture
def _exact(monkeypatch):
    """transformers computes scores in fp32 whatever it is given: here in fp64."""
    monkeypatch.setattr(torch, "float", torch.float64)
    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("kind", KINDS)
def test_results_and_gradients_are_those_of_transformers(tiny, kind):
    ours, theirs, weights = kind(tiny)
    theirs = theirs.double()
    assert weights.keys() == theirs.state_dict().keys()
    x = torch.randn(3, 7, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    upstream = torch.randn(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = torch.func.functional_call(theirs, weights, (x,))
    expected = expected[0] if isinstance(expected, tuple) else expected
    wanted = (x, *ours.parameters())
    of_theirs = torch.autograd.grad(expected, wanted, upstream)
    y = ours(x)
    of_ours = torch.autograd.grad(y, wanted, upstream)
    tolerance = {"rtol": 0, "atol": 1e-11}
    torch.testing.assert_close(y, expected, **tolerance)
    for mine, other in zip(of_ours, of_theirs, strict=True):
        torch.testing.assert_close(mine, other, **tolerance)


def made(tiny, **different) -> Mixture:
    return mixture(tiny, replace(MIXTRAL, **different))


def batch(sequences: int) -> torch.Tensor:
    return torch.randn(sequences, 5, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(sequences))


def test_an_expert_that_nobody_chose_has_a_gradient_of_zero(tiny):
    module = made(tiny)
    module.router.weight.data[0] = 0
    x = batch(1).abs()
    module.router.weight.data[1:] = x.mean((0, 1))  # all but the first have large logits
    module(x).sum().backward()
    for layer in (module.gate, module.up, module.down):
        assert not layer.weight.grad[0].any() and layer.weight.grad[1:].any()


def test_a_pass_without_sequences_has_gradients_of_zero(tiny):
    module = made(tiny, loss_weight=0.1)
    share = Share(torch.tensor(1.0))
    module(batch(2)[:0], share).sum().backward()
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in module.parameters())
    assert not module.load.any()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_balance_loss_does_not_depend_on_micro_batches(tiny, size):
    """Against the loss of the whole batch, added to the task's by hand."""
    module, x = made(tiny, loss_weight=0.3, z_weight=0.2, scores="sigmoid"), batch(4)
    y = module(x)
    (y.square().sum() / 4 + _by_hand(module, x).mean()).backward()
    expected = [parameter.grad for parameter in module.parameters()]
    module.zero_grad()
    for micro in x.split(size):
        (module(micro, Share(torch.tensor(0.25))).square().sum() / 4).backward()
    for parameter, grad in zip(module.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, grad, rtol=0, atol=1e-12)


def _by_hand(module: Mixture, x: torch.Tensor) -> torch.Tensor:
    """Equations 17 to 20 of DeepSeek-V3 and equation 5 of ST-MoE, a sequence and an expert at a time."""
    losses = []
    for sequence in x:
        logits = sequence @ module.router.weight.T
        scores, tokens = logits.sigmoid(), len(sequence)
        chosen = [set(row.topk(2).indices.tolist()) for row in scores]
        loss = 0.2 * logits.exp().sum(-1).log().square().mean()
        for expert in range(6):
            often = sum(expert in each for each in chosen) * 6 / (2 * tokens)
            share = sum(row[expert] / row.sum() for row in scores) / tokens
            loss = loss + 0.3 * often * share
        losses.append(loss)
    return torch.stack(losses)


def test_sequences_that_fill_a_micro_batch_up_count_for_nothing(tiny):
    module, x = made(tiny, loss_weight=0.3), batch(3)
    one = Share(torch.tensor(1.0, dtype=torch.float64))
    (grad,) = torch.autograd.grad(module(x[:2], one).sum() * 0, module.router.weight)
    load = module.load.clone()
    module.load.zero_()
    filled = Share(one.of_sequence, sequences=2)
    (again,) = torch.autograd.grad(module(x, filled).sum() * 0, module.router.weight)
    torch.testing.assert_close(again, grad, rtol=0, atol=1e-14)
    assert torch.equal(module.load, load) and load.sum() == 2 * 5 * 2


def test_the_load_is_counted_once_in_training_alone(tiny):
    module, share = made(tiny), Share(torch.tensor(1.0))
    with torch.no_grad():
        module(batch(2), share)
    module(batch(2))
    assert not module.load.any()
    checkpoint(module, batch(2).requires_grad_(), share, use_reentrant=False).sum().backward()
    chosen = module.router(batch(2).flatten(0, 1)).chosen
    assert module.load.tolist() == torch.bincount(chosen.flatten(), minlength=6).tolist()


def test_operations_are_those_of_the_chosen_experts(tiny):
    module = made(tiny, shared_ffn_width=SHARED)
    with FlopCounterMode(display=False) as counter:
        module(batch(2))
    assert counter.get_total_flops() == 2 * 10 * WIDTH * (6 + 3 * 2 * INNER + 3 * SHARED)
