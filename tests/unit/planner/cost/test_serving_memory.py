"""Caches are transformers' own tensors, sizes those that papers print, and times what others measured."""

from __future__ import annotations

import pytest

from trainwright.hardware.catalogue.models import model
from trainwright.planner.cost.serving_memory import Serving, cache_bytes, cache_bytes_per_token, weight_bytes
from trainwright.planner.counts.parameters import total_parameters
from trainwright.spec.families.huggingface import from_huggingface

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 97}


CONFIGS = {
    "llama, grouped": ("LlamaConfig", SMALL | {"num_key_value_heads": 2, "max_position_embeddings": 64}),
    "gpt-neox, every head": ("GPTNeoXConfig", SMALL | {"max_position_embeddings": 64}),
    "mistral, window": (
        "MistralConfig",
        SMALL | {"num_key_value_heads": 1, "head_dim": 16, "sliding_window": 8, "max_position_embeddings": 64},
    ),
    "gemma3, some layers with a window": (
        "Gemma3TextConfig",
        SMALL
        | {
            "num_key_value_heads": 2,
            "head_dim": 24,
            "sliding_window": 8,
            "sliding_window_pattern": 2,
            "max_position_embeddings": 64,
        },
    ),
}


@pytest.mark.parametrize("tokens", [5, 8, 21])
@pytest.mark.parametrize(("config_class", "sizes"), CONFIGS.values(), ids=CONFIGS)
def test_the_cache_is_transformers_own(config_class, sizes, tokens):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = getattr(transformers, config_class)(**sizes, pad_token_id=0)
    spec = from_huggingface(config.to_dict(), where="test")
    network = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        kept = network(torch.ones(3, tokens, dtype=torch.long), use_cache=True).past_key_values
    size_bytes = sum(t.nbytes for layer in kept.layers for t in (layer.keys, layer.values))
    serving = Serving(prompt_tokens=tokens, new_tokens=1, cache="fp32")
    # A full window is kept without the token that leaves it next.
    full = spec.windowed_layers * (spec.window_tokens is not None and tokens >= spec.window_tokens)
    left = full * cache_bytes_per_token(spec, "fp32") / spec.layers
    assert size_bytes == 3 * (cache_bytes(spec, serving, tokens=tokens) - left)


@pytest.mark.parametrize(
    ("name", "size_bytes"),
    [
        ("llama3-70b", 320 * 1024),
        # DeepSeek-AI, Insights into DeepSeek-V3 (arXiv 2505.09343), table 1: KB for each token, bf16.
        ("deepseek-v3", 70_272),
        ("qwen2.5-72b", 327_680),
        ("llama3.1-405b", 516_096),
        # Kwon et al., PagedAttention (arXiv 2309.06180), section 3: 800 KB for a token of OPT-13B, fp16.
        ("opt-13b", 800 * 1024),
    ],
)
def test_cache_of_one_token_as_printed(name, size_bytes):
    assert cache_bytes_per_token(model(name), "bf16") == size_bytes
    assert cache_bytes_per_token(model(name), "fp8") == size_bytes / 2


def test_devices_share_heads_but_each_keeps_one_and_the_latent_whole():
    grouped, latent = model("llama3-70b"), model("deepseek-v3")
    for tp, heads in ((1, 8), (4, 2), (8, 1), (16, 1)):
        one = cache_bytes(grouped, Serving(prompt_tokens=1, new_tokens=1, tp=tp), tokens=100)
        assert one == 100 * 80 * heads * 2 * 128 * 2
        assert cache_bytes(latent, Serving(prompt_tokens=1, new_tokens=1, tp=tp), tokens=100) == 100 * 70_272


@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b", "gpt2"])
def test_weights_in_16_bits_are_two_bytes_a_parameter(name):
    assert weight_bytes(model(name), "bf16") == 2 * total_parameters(model(name))


def test_quantised_weights_leave_tables_and_head():
    # TheBloke/Llama-2-70B-GPTQ, 4 bits in groups of 128: 36.65 GB on disk, of which 1.05 GB are tables and head.
    assert weight_bytes(model("llama2-70b"), "int4") == pytest.approx(36.65e9, rel=0.02)
