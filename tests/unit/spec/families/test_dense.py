"""What sets each decoder of GPT-2's kind apart."""

from __future__ import annotations

import pytest

from fixtures.reference_models import SMALL
from trainwright.core.errors import RecipeError
from trainwright.spec.families import dense
from trainwright.spec.families.config_reader import ConfigReader


def keys_of(name, **changes):
    return ConfigReader(SMALL[name][1] | changes, where="config.json")


@pytest.mark.parametrize(
    ("changes", "kv_heads", "norms"),
    [
        ({"multi_query": True}, 1, 1),
        ({"multi_query": False}, 4, 1),
        ({"multi_query": False, "parallel_attn": False}, 4, 2),
        ({"new_decoder_architecture": True, "num_kv_heads": 2}, 2, 2),
        ({"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}, 2, 1),
    ],
)
def test_falcons_differ_in_key_heads_and_norms(changes, kv_heads, norms):
    keys = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}
    spec = dense.falcon(ConfigReader(keys | changes, where="config.json"))
    assert (spec.kv_heads, spec.norms_per_block) == (kv_heads, norms)


def test_mpt_learns_positions_where_alibi_is_off():
    assert dense.mpt(keys_of("mpt")).positions == "alibi"
    spec = dense.mpt(keys_of("mpt", attn_config={"alibi": False, "kv_n_heads": 2}))
    assert (spec.positions, spec.kv_heads) == ("learned", 2)


def test_older_names_of_keys_are_read():
    new = dense.bloom(keys_of("bloom"))
    old = {"n_embed": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 301}
    assert dense.bloom(ConfigReader(old, where="old")) == new


@pytest.mark.parametrize(
    ("reader", "name", "changes", "message"),
    [
        (dense.opt, "opt", {"word_embed_proj_dim": 32}, "word_embed_proj_dim=32"),
        (dense.opt, "opt", {"layer_norm_elementwise_affine": False}, "layer_norm_elementwise_affine=False"),
        (dense.mpt, "mpt", {"attn_config": {"qk_ln": True}}, "attn_config: this model needs qk_ln=True"),
        (dense.mpt, "mpt", {"no_bias": False}, "no_bias=False"),
    ],
)
def test_what_the_counts_do_not_cover_is_refused(reader, name, changes, message):
    with pytest.raises(RecipeError, match=message):
        reader(keys_of(name, **changes))
