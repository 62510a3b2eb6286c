from __future__ import annotations

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from trainwright.model.parts.rotary import RotaryTable, rotate, scaled
from trainwright.spec.parts.rotary import RopeScaling


def test_rotation_is_a_complex_product(tiny):
    spec = tiny.spec(rope_theta=1000.0)
    x = torch.randn(1, 2, 5, 8, generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([[3, 4, 9, 50, 95]])
    turned = rotate(x, RotaryTable(spec)(positions, torch.float32, tokens=5))
    pairs = torch.complex(x[..., :4].double(), x[..., 4:].double())
    angles = positions[0].double()[:, None] * 1000.0 ** -(torch.arange(4).double() / 4)
    expected = pairs * torch.polar(torch.ones_like(angles), angles)
    torch.testing.assert_close(turned[..., :4].double(), expected.real, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(turned[..., 4:].double(), expected.imag, atol=1e-5, rtol=1e-5)


def test_the_table_belongs_to_no_checkpoint(tiny):
    assert not RotaryTable(tiny.spec()).state_dict()


def test_of_a_share_of_a_head_the_rest_stays(tiny):
    spec = tiny.spec(rotary_share=0.5)
    x = torch.randn(1, 2, 5, 8, generator=torch.Generator().manual_seed(0))
    rotary = RotaryTable(spec)(torch.arange(5)[None], torch.float32, tokens=5)
    turned = rotate(x, rotary)
    assert torch.equal(turned[..., 4:], x[..., 4:])
    narrow = RotaryTable(tiny.spec(head_size=4))(torch.arange(5)[None], torch.float32, tokens=5)
    assert torch.equal(turned[..., :4], rotate(x[..., :4], narrow))


SCALINGS = {
    "linear": ({"factor": 4.0}, RopeScaling(kind="linear", factor=4.0)),
    "dynamic": ({"factor": 4.0}, RopeScaling(kind="dynamic", factor=4.0)),
    "yarn": (
        {"factor": 8.0, "original_max_position_embeddings": 256, "attention_factor": 1.2},
        RopeScaling(kind="yarn", factor=8.0, original_tokens=256, attention_factor=1.2),
    ),
    "yarn, no whole bounds": (
        {"factor": 3.0, "original_max_position_embeddings": 96, "attention_factor": 1.0, "truncate": False}
        | {"beta_fast": 4.0, "beta_slow": 0.5},
        RopeScaling(kind="yarn", factor=3.0, original_tokens=96, fast_turns=4.0, slow_turns=0.5, truncated=False),
    ),
    "llama3": (
        {"factor": 8.0, "original_max_position_embeddings": 64, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        RopeScaling(kind="llama3", factor=8.0, original_tokens=64, slow_turns=1.0, fast_turns=4.0),
    ),
}


@pytest.mark.parametrize("name", SCALINGS)
def test_scaled_frequencies_are_those_of_transformers(name):
    keys, scaling = SCALINGS[name]
    rope = {"rope_type": scaling.kind, "rope_theta": 1e4} | keys
    config = transformers.LlamaConfig(
        hidden_size=64, num_attention_heads=2, max_position_embeddings=512, rope_parameters=rope
    )
    expected, factor = ROPE_INIT_FUNCTIONS[scaling.kind](config, "cpu")
    plain = 1e4 ** -(torch.arange(0, 32, 2, dtype=torch.float64) / 32)
    found = scaled(plain, scaling, base=1e4)
    torch.testing.assert_close(found, expected.double(), atol=0, rtol=1e-5)
    assert scaling.attention_factor == factor
    assert scaling.kind == "dynamic" or not torch.allclose(found, plain)


def test_the_table_multiplies_by_the_attention_factor(tiny):
    scaling = RopeScaling(kind="linear", factor=1.0, attention_factor=1.5)
    table, plain = RotaryTable(tiny.spec(rope_scaling=scaling)), RotaryTable(tiny.spec())
    torch.testing.assert_close(table.cosines, 1.5 * plain.cosines)
    torch.testing.assert_close(table.sines, 1.5 * plain.sines)


def test_windowed_layers_have_their_own_base_without_scaling(tiny):
    scaling = RopeScaling(kind="linear", factor=2.0)
    spec = tiny.spec(rope_scaling=scaling, window_rope_theta=100.0, window_tokens=4)
    assert torch.equal(RotaryTable(spec, windowed=True).cosines, RotaryTable(tiny.spec(rope_theta=100.0)).cosines)
