"""Every planned family against torch's own counter over transformers' network on the meta device, exactly."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fixtures.reference_models import SMALL, build, counted, inputs, loss, published
from trainwright.planner.counts.flops import count_flops, training_flops_per_token


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("name", SMALL)
def test_forward_and_training_are_what_torch_counts(name):
    module, spec = build(*SMALL[name])
    if spec.family == "resnet":
        spec = replace(spec, image_size=64)  # their images are as large as they come
    expected = count_flops(spec, sequences=2, sequence_tokens=64)
    batch = inputs(module, 2, 64)
    forward, output = counted(lambda: module(**batch))
    backward, _ = counted(lambda: loss(output).backward())
    assert (forward, forward + backward) == (expected.forward, expected.training)


@pytest.mark.parametrize("tokens", [8, 16, 40])
def test_the_causal_count_is_a_triangle_and_windows_are_a_band(tokens):
    """The mask's pairs, counted one by one; pairs on an edge count half, so that a whole window is half the square."""
    _, spec = build(*SMALL["gpt_oss"])
    flops = count_flops(spec, sequences=3, sequence_tokens=tokens)
    ages = torch.arange(tokens)[:, None] - torch.arange(tokens)[None, :]
    seen = ((ages > 0) + 0.5 * (ages == 0)).sum()
    window = spec.window_tokens
    near = ((ages > 0) & (ages < window)).sum() + 0.5 * ((ages == 0) | (ages == window)).sum()
    pair = 2 * 3 * spec.heads * 2 * spec.head_size
    whole = count_flops(replace(spec, window_tokens=None, window_layers=None), sequences=3, sequence_tokens=tokens)
    assert whole.attention - whole.hidden == spec.layers * pair * seen
    assert flops.attention - flops.hidden == pair * (spec.windowed_layers * near + 1 * seen)
    assert flops.hidden >= whole.hidden > 0


@pytest.mark.parametrize("name", ["bert-masked", "vit"])
def test_an_encoder_sees_both_ways(name):
    _, spec = build(*SMALL[name])
    flops = count_flops(spec, sequences=2, sequence_tokens=32)
    assert flops.hidden == 0


@pytest.mark.parametrize("tokens", [3, 9, 40])
@pytest.mark.parametrize("window", [1, 8, 16, 79])
def test_an_encoders_window_is_a_band_on_both_sides(tokens, window):
    """The mask's pairs, counted one by one."""
    spec = replace(build(*SMALL["modernbert-masked"])[1], window_tokens=window)
    flops = count_flops(spec, sequences=3, sequence_tokens=tokens)
    apart = (torch.arange(tokens)[:, None] - torch.arange(tokens)[None, :]).abs()
    near, pair = int((apart <= window // 2).sum()), 2 * 3 * spec.heads * 2 * spec.head_size
    assert spec.windowed_layers == 2
    assert flops.attention - flops.hidden == pair * (2 * near + tokens**2)


def test_an_image_has_its_own_length():
    _, spec = build(*SMALL["vit"])
    assert count_flops(spec, sequences=1, sequence_tokens=7) == count_flops(spec, sequences=1, sequence_tokens=99)
    whole = count_flops(spec, sequences=1, sequence_tokens=1).training
    assert training_flops_per_token(spec, sequence_tokens=1) == whole / spec.context_tokens


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        "gpt2-xl",
        "llama3-70b",
        "mixtral-8x22b",
        "qwen3-235b-a22b",
        "deepseek-v3",
        "gpt-oss-120b",
        "bert-large",
        "vit-h-14",
        "resnet-50",
    ],
)
def test_published_models_cost_what_torch_counts(name):
    module, spec = published(name)
    tokens = min(1024, getattr(spec, "context_tokens", 224))
    batch = inputs(module, 1, 224 if name == "resnet-50" else tokens)
    expected = count_flops(spec, sequences=1, sequence_tokens=tokens)
    forward, output = counted(lambda: module(**batch))
    backward, _ = counted(lambda: loss(output).backward())
    assert (forward, forward + backward) == (expected.forward, expected.training)


def test_further_tokens_cost_a_block_a_projection_and_the_head_again():
    _, spec = build(*SMALL["deepseek_v3"])
    main = count_flops(spec, sequences=2, sequence_tokens=64)
    more = count_flops(replace(spec, further_layers=1), sequences=2, sequence_tokens=64)
    deeper = count_flops(replace(spec, layers=spec.layers + 1), sequences=2, sequence_tokens=64)
    assert (more.linear, more.attention, more.hidden) == (deeper.linear, deeper.attention, deeper.hidden)
    assert more.head == 2 * main.head + 2 * 128 * spec.width * 2 * spec.width
