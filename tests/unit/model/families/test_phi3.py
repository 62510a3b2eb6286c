from __future__ import annotations

import torch

from trainwright.model.families import phi3


def test_joined_matrices_come_apart_and_together_again(tiny):
    model = tiny.decoder("phi3")
    ours = dict(model.named_parameters())
    theirs = phi3.to_hf(ours, model.spec)
    joined = theirs["model.layers.1.self_attn.qkv_proj.weight"]
    assert joined.shape == (4 * 8 + 2 * 2 * 8, 32)
    assert torch.equal(joined[32:48], ours["blocks.1.attention.key.weight"])
    assert torch.equal(theirs["model.layers.0.mlp.gate_up_proj.weight"][48:], ours["blocks.0.ffn.up.weight"])
    assert not any("q_proj" in name or "up_proj" in name.replace("gate_up_proj", "") for name in theirs)
    back = phi3.from_hf(theirs, model.spec)
    assert back.keys() == ours.keys()
    assert all(torch.equal(back[name], ours[name]) for name in ours)
