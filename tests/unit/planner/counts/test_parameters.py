"""Counts against the real module and against transformers', both on the meta device."""

from dataclasses import replace

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from fixtures.planned_models import GPT2, LLAMA
from trainwright.model.decoder import Decoder
from trainwright.planner.counts.parameters import (
    block_matrices,
    block_matrix_parameters,
    matrices,
    parameter_counts,
    total_parameters,
    wide_matrices,
)


def meta(spec):
    with torch.device("meta"):
        return Decoder(spec)


def test_the_total_is_the_modules(shape):
    assert total_parameters(shape) == sum(parameter.numel() for parameter in meta(shape).parameters())


def test_components_are_the_modules(shape):
    sizes = dict.fromkeys(parameter_counts(shape), 0)
    for name, parameter in meta(shape).named_parameters():
        component = (
            "norms"
            if "norm" in name
            else "attention"
            if ".attention." in name
            else "feed_forward"
            if ".ffn." in name
            else name.split(".")[0]
        )
        sizes[component] += parameter.numel()
    assert sizes == parameter_counts(shape)


def test_matrices_are_those_that_muon_takes(shape):
    weights = [p for name, p in meta(shape).named_parameters() if name.startswith("blocks.") and p.ndim == 2]
    assert sorted(tuple(matrix.shape) for matrix in weights) == sorted(shape.layers * block_matrices(shape))
    assert block_matrix_parameters(shape) == sum(matrix.numel() for matrix in weights)


@pytest.mark.parametrize("tied", [True, False])
def test_llama_is_that_of_transformers(tied):
    spec = replace(LLAMA, kv_heads=2, tied=tied)
    config = LlamaConfig(
        hidden_size=spec.width,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.kv_heads,
        intermediate_size=spec.ffn_width,
        vocab_size=spec.vocabulary,
        max_position_embeddings=spec.context_tokens,
        tie_word_embeddings=tied,
    )
    with torch.device("meta"):
        reference = LlamaForCausalLM(config)
    assert total_parameters(spec) == reference.num_parameters()


def test_gpt2_is_that_of_transformers():
    spec = replace(GPT2, ffn_width=4 * GPT2.width)
    config = GPT2Config(
        n_embd=spec.width,
        n_layer=spec.layers,
        n_head=spec.heads,
        vocab_size=spec.vocabulary,
        n_positions=spec.context_tokens,
    )
    with torch.device("meta"):
        reference = GPT2LMHeadModel(config)
    assert total_parameters(spec) == reference.num_parameters()


def test_gpt2_small_has_its_published_size():
    spec = replace(GPT2, layers=12, width=768, heads=12, kv_heads=12, ffn_width=3072, vocabulary=50257)
    assert total_parameters(spec) == 124_439_808


def test_only_the_vocabularys_rows_are_filled_up_in_products():
    odd = replace(LLAMA, vocabulary=50257)
    pairs = list(zip(matrices(odd), wide_matrices(odd, 64), strict=True))
    assert [(plain.name, wide.outputs) for plain, wide in pairs if plain != wide] == [("vocabulary", 50304)]
    assert list(wide_matrices(odd, 1)) == list(matrices(odd))
