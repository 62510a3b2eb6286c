from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import transformers

from trainwright.artifact.model_folder import read_shape
from trainwright.core.errors import RecipeError
from trainwright.model import hf
from trainwright.model.build import build_network
from trainwright.model.families import vit
from trainwright.spec.model import Dropout

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 16,
    "patch_size": 4,
}
SPEC = vit.from_config(SMALL | {"num_labels": 3}, where="test")


def test_transformers_reads_our_configuration_as_we_meant_it():
    spec = replace(SPEC, norm_epsilon=1e-6, activation="gelu_tanh", qkv_bias=False, labels=("a", "b", "c"))
    theirs = transformers.ViTConfig(**vit.to_config(spec))
    assert vit.from_config(theirs.to_dict(), where="test") == spec


def test_defaults_are_those_of_transformers():
    theirs = transformers.ViTConfig(**SMALL).to_dict()
    assert vit.from_config(SMALL, where="test") == vit.from_config(theirs, where="test")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_channels": 1}, "num_channels=1"),
        ({"hidden_act": "selu"}, "hidden_act='selu'"),
        ({"architectures": ["ViTForMaskedImageModeling"]}, "architectures='ViTForMaskedImageModeling'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config="),
    ],
)
def test_what_changes_the_arithmetic_is_refused(change, message):
    with pytest.raises(RecipeError, match=f"here: this model needs {message}"):
        vit.from_config(SMALL | change, where="here")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kv_heads": 2}, "kv_heads = heads"),
        ({"bias": False}, "biases in attention's output"),
        ({"dropout": Dropout(residual=0.1)}, "one rate of dropout"),
    ],
)
def test_what_the_form_cannot_say_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        vit.to_config(replace(SPEC, **change))


@pytest.mark.parametrize("labels", [None, ("cat", "dog", "none")])
def test_what_we_write_transformers_computes_and_we_read_back(tmp_path, labels):
    network = build_network(replace(SPEC, labels=labels))
    network.initialise(0)
    network.eval()
    weights = dict(network.named_parameters())
    hf.write(tmp_path, network.spec, weights, dtype=torch.float32, extra={})
    assert read_shape(tmp_path) == network.spec
    again = hf.read_weights(tmp_path, network.spec)
    assert again.keys() == weights.keys()
    assert all(torch.equal(again[name], weights[name]) for name in weights)
    theirs = transformers.AutoModelForImageClassification.from_pretrained(tmp_path).eval()
    assert theirs.config.id2label == dict(enumerate(labels or ("LABEL_0", "LABEL_1", "LABEL_2")))
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        ours = network.logits(network(images)[:, 0])
        torch.testing.assert_close(theirs(pixel_values=images).logits, ours, atol=1e-4, rtol=0)


def test_files_of_several_shards_are_read(tmp_path):
    torch.manual_seed(0)
    theirs = transformers.ViTForImageClassification(transformers.ViTConfig(**SMALL, num_labels=3))
    theirs.save_pretrained(tmp_path, max_shard_size="8KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    spec = read_shape(tmp_path)
    weights = hf.read_weights(tmp_path, spec)
    assert weights.keys() == dict(build_network(spec).named_parameters()).keys()
