"""What is read of rotary settings is what transformers computes with, and is written so that both read it again."""

from __future__ import annotations

import pytest
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.llama import llama
from trainwright.spec.families.rotary import rope_keys, rope_scaling

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 99}
ROPES = {
    "linear": {"factor": 3.0},
    "dynamic": {"factor": 3.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 512},
    "yarn, DeepSeek": {"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.7, "original_max_position_embeddings": 512},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "longrope": {"factor": 4.0, "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    | {"original_max_position_embeddings": 512},
}


def read(rope):
    return ConfigReader(SIZES | {"rope_parameters": rope, "max_position_embeddings": 2048}, where="test")


@pytest.mark.parametrize("name", ROPES)
def test_the_attention_factor_is_that_of_transformers(name):
    rope = {"rope_type": name.partition(",")[0], "rope_theta": 5e5} | ROPES[name]
    config = transformers.LlamaConfig(**SIZES, max_position_embeddings=2048, rope_parameters=dict(rope))
    _, factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu")
    scaling = rope_scaling(read(rope))
    assert scaling.attention_factor == pytest.approx(factor, rel=1e-12)
    assert scaling.original_tokens in (None, config.rope_parameters.get("original_max_position_embeddings"))


@pytest.mark.parametrize("name", ROPES)
@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
def test_it_is_written_where_either_version_reads_it(name, key):
    spec = llama(read({"rope_type": name.partition(",")[0], "rope_theta": 5e5} | ROPES[name]))
    keys = rope_keys(spec)
    again = {key: keys[key], "rope_theta": keys["rope_theta"]}
    assert llama(ConfigReader(SIZES | again | {"max_position_embeddings": 2048}, where="test")) == spec


def test_phi_calls_longrope_otherwise():
    rope = {"type": "yarn", "short_factor": [1.0], "long_factor": [1.0]}
    assert rope_scaling(read(rope), yarn_is_longrope=True).kind == "longrope"
    assert rope_scaling(read(rope | {"type": "su"})).kind == "longrope"
    assert rope_scaling(read({})) is None
