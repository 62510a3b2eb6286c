"""Latent attention against transformers' own modules: results and all gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import transformers
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Attention
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention

from trainwright.model.parts import latent
from trainwright.model.parts.latent import LatentAttention
from trainwright.spec.parts import latent as parts
from trainwright.spec.parts.scales import Scales

WIDTH, TOKENS, ROPE = 32, 9, 8
NAMES = {
    "query": "q_proj",
    "query_down": "q_a_proj",
    "query_norm": "q_a_layernorm",
    "query_up": "q_b_proj",
    "kv_down": "kv_a_proj_with_mqa",
    "kv_norm": "kv_a_layernorm",
    "kv_up": "kv_b_proj",
    "out": "o_proj",
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}


def attention(tiny, *, scale: float | None = None, **different) -> LatentAttention:
    sizes = {"query_rank": 20, "kv_rank": 12, "rope_size": ROPE, "value_size": 6} | different
    spec = tiny.spec("llama", width=WIDTH, heads=4, head_size=10, kv_heads=4)
    module = LatentAttention(
        replace(
            spec, latent=parts.LatentAttention(**sizes), qkv_bias=True, output_bias=True, scales=Scales(attention=scale)
        ),
        0,
    ).double()
    for number, parameter in enumerate(module.parameters()):
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(number))
    return module


def config(kind: type[transformers.PretrainedConfig], **different) -> transformers.PretrainedConfig:
    sizes = {"kv_lora_rank": 12, "qk_nope_head_dim": 10, "qk_rope_head_dim": ROPE, "v_head_dim": 6, "q_lora_rank": 20}
    same = {"hidden_size": WIDTH, "num_attention_heads": 4, "num_key_value_heads": 4, "attention_bias": True}
    return kind(**(sizes | same | {"attn_implementation": "eager"} | different))


def angles() -> torch.Tensor:
    frequencies = 1e4 ** -(torch.arange(0, ROPE, 2, dtype=torch.float64) / ROPE)
    return torch.outer(torch.arange(TOKENS, dtype=torch.float64), frequencies).unsqueeze(0)


def compared(ours: LatentAttention, theirs: torch.nn.Module, positions: object) -> None:
    theirs = theirs.double()
    own = dict(ours.named_parameters())
    named = {f"{NAMES[name.rpartition('.')[0]]}.{name.rpartition('.')[2]}": p for name, p in own.items()}
    assert named.keys() == dict(theirs.named_parameters()).keys()
    x = torch.randn(2, TOKENS, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(50)).requires_grad_()
    upstream = torch.randn(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(51))
    mask = torch.full((TOKENS, TOKENS), float("-inf"), dtype=torch.float64).triu(1)
    expected = torch.func.functional_call(
        theirs, named, (x,), {"position_embeddings": positions, "attention_mask": mask[None, None]}
    )[0]
    rotary = (angles().cos().unsqueeze(1), angles().sin().unsqueeze(1))
    wanted = (x, *own.values())
    y = ours(x, rotary=rotary, mask=None, cache=None)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-10)
    grads = zip(torch.autograd.grad(y, wanted, upstream), torch.autograd.grad(expected, wanted, upstream), strict=True)
    for mine, other in grads:
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-10)


@pytest.fixture
def _exact(monkeypatch):
    """transformers computes norms, softmax and turns in fp32 whatever it is given: here in fp64."""
    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("rank", [20, None])
def test_it_is_deepseek_v3s(tiny, rank, interleaved):
    ours = attention(tiny, query_rank=rank, interleaved=interleaved)
    theirs = DeepseekV3Attention(
        config(transformers.DeepseekV3Config, q_lora_rank=rank, rope_interleave=interleaved), 0
    )
    both = torch.cat((angles(), angles()), dim=-1)
    compared(ours, theirs, (both.cos(), both.sin()))


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("rank", [20, None])
def test_it_is_deepseek_v2s(tiny, rank):
    ours = attention(tiny, query_rank=rank)
    theirs = DeepseekV2Attention(config(transformers.DeepseekV2Config, q_lora_rank=rank), 0)
    compared(ours, theirs, torch.polar(torch.ones_like(angles()), angles()))


@pytest.mark.usefixtures("_exact")
def test_scores_have_yarns_scale_where_the_spec_says_it(tiny):
    """DeepSeek multiplies scores by the square of 0.1 mscale ln(factor) + 1."""
    made = config(transformers.DeepseekV3Config, rope_parameters=YARN | {"mscale_all_dim": 0.7})
    theirs = DeepseekV3Attention(made, 0)
    assert theirs.scaling != pytest.approx(18**-0.5)
    both = torch.cat((angles(), angles()), dim=-1)
    compared(attention(tiny, scale=theirs.scaling), theirs, (both.cos(), both.sin()))


def test_the_latents_norms_have_their_own_epsilon(tiny):
    assert attention(tiny).kv_norm.epsilon == latent.EPSILON
    theirs = DeepseekV3Attention(config(transformers.DeepseekV3Config, rms_norm_eps=1e-3), 0)
    assert theirs.kv_a_layernorm.variance_epsilon == theirs.q_a_layernorm.variance_epsilon == latent.EPSILON
