"""Counts against torch's own counter over the real module on the meta device."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, LlamaForCausalLM

from fixtures.planned_models import LLAMA
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.model.decoder import Decoder
from trainwright.planner.counts.flops import again_flops, count_flops, training_flops_per_token, utilisation
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Workload


def counted(call):
    with FlopCounterMode(display=False) as counter:
        result = call()
    return counter.get_total_flops(), result


@pytest.mark.parametrize(("sequences", "tokens"), [(1, 96), (3, 64)])
def test_forward_and_backward_are_what_torch_counts(shape, sequences, tokens):
    with torch.device("meta"):
        model = Decoder(shape)
        ids = torch.zeros(sequences, tokens, dtype=torch.long)
    expected = count_flops(shape, sequences=sequences, sequence_tokens=tokens)
    forward, logits = counted(lambda: model.logits(model(ids)))
    backward, _ = counted(lambda: logits.sum().backward())
    assert (forward, backward) == (expected.forward, expected.backward)


def test_they_are_what_torch_counts_for_transformers():
    spec = replace(LLAMA, kv_heads=2)
    config = LlamaConfig(
        hidden_size=spec.width,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.kv_heads,
        intermediate_size=spec.ffn_width,
        vocab_size=spec.vocabulary,
        max_position_embeddings=spec.context_tokens,
        attn_implementation="eager",
    )
    with torch.device("meta"):
        reference = LlamaForCausalLM(config)
        ids = torch.zeros(2, 128, dtype=torch.long)
    training, _ = counted(lambda: reference(ids).logits.sum().backward())
    # Rotary angles are one more product there: positions x frequencies.
    angles = 2 * 128 * (spec.head_size // 2)
    assert training - count_flops(spec, sequences=2, sequence_tokens=128).training in (0, angles, 2 * angles)


def test_a_causal_count_leaves_half_of_attention_out(shape):
    flops = count_flops(shape, sequences=2, sequence_tokens=64)
    assert flops.hidden == flops.attention // 2
    assert flops.training == 3 * (flops.linear + flops.attention + flops.head)


def test_per_token_counts_add_up_to_the_batch(shape):
    whole = count_flops(shape, sequences=5, sequence_tokens=96).training
    assert training_flops_per_token(shape, sequence_tokens=96) * 5 * 96 == whole


rates = st.floats(min_value=1e6, max_value=1e18)


@given(rates, rates)
def test_a_share_is_never_above_one(flops_per_s, peak_flops_per_s):
    share = utilisation(flops_per_s, peak_flops_per_s)
    assert (share is None) == (flops_per_s > peak_flops_per_s)
    assert share is None or share == pytest.approx(flops_per_s / peak_flops_per_s)


def test_without_a_peak_nothing_is_known():
    assert utilisation(1e12, None) is None
    assert utilisation(1e12, 0.0) is None


def test_a_beaten_peak_is_no_peak():
    assert utilisation(1.35e11, 1e11) is None


def test_recomputation_repeats_what_the_software_means_by_it():
    work = Workload(sequence_tokens=64, batch_tokens=64, steps=1, precision="bf16", optimizer="adamw", states="fp32")
    whole = count_flops(LLAMA, sequences=1, sequence_tokens=64)

    def again(stack, recompute, *, compiled=False, **options):
        run = RunSpec(
            model=LLAMA, workload=replace(work, **options), cluster=cluster("8xh100-sxm"), stack=read_stack(stack)
        )
        return again_flops(run, recompute, whole, compiled=compiled)

    assert again("torchtitan", "none") == 0
    assert again("torchtitan", "full") == whole.linear + whole.attention
    assert again("megatron-core", "selective") == whole.attention
    assert again("torchtitan", "selective", compiled=True) == whole.linear / 2
    assert again("trainwright", "selective", compiled=True) == 0
    assert again("trainwright", "selective", fused_attention=False) == whole.attention


def test_deepseeks_software_makes_up_projections_again_unless_whole_blocks_are():
    """arXiv 2412.19437, section 3.2.3; sizes of 62 blocks: ranks of 1,536 and 512, 128 heads of 128 + 64 and 128."""
    model = catalogue_model("deepseek-v3")
    work = Workload(sequence_tokens=64, batch_tokens=64, steps=1, precision="fp8", optimizer="adamw")
    run = RunSpec(model=model, workload=work, cluster=cluster("8xh800-sxm"), stack=read_stack("hai-llm"))
    whole = count_flops(model, sequences=1, sequence_tokens=64)
    up = 128 * (1536 * (128 + 64) + 512 * (128 + 128))
    assert again_flops(run, "none", whole, compiled=False) == 2 * 64 * 62 * up
    assert again_flops(run, "full", whole, compiled=False) == whole.linear + whole.attention
