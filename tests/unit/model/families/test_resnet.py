from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import transformers

from trainwright.artifact.model_folder import read_shape
from trainwright.core.errors import RecipeError
from trainwright.model import hf
from trainwright.model.build import build_network
from trainwright.model.families import resnet

SMALL = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [2, 1], "layer_type": "basic", "image_size": 16}
SPEC = resnet.from_config(SMALL | {"num_labels": 3}, where="test")


@pytest.mark.parametrize("bottleneck", [True, False])
def test_transformers_reads_our_configuration_as_we_meant_it(bottleneck):
    stages = replace(SPEC.convolutions, bottleneck=bottleneck, stride_first=bottleneck, halves_first=True)
    spec = replace(SPEC, convolutions=stages, labels=("a", "b", "c"))
    theirs = transformers.ResNetConfig(**resnet.to_config(spec))
    assert resnet.from_config(theirs.to_dict() | {"image_size": 16}, where="test") == spec


def test_defaults_are_those_of_transformers():
    theirs = transformers.ResNetConfig().to_dict()
    assert resnet.from_config({}, where="test") == resnet.from_config(theirs, where="test")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_channels": 1}, "num_channels=1"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ({"architectures": ["ResNetBackbone"]}, "architectures='ResNetBackbone'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config="),
    ],
)
def test_what_changes_the_arithmetic_is_refused(change, message):
    with pytest.raises(RecipeError, match=f"here: this model needs {message}"):
        resnet.from_config(SMALL | change, where="here")


def test_what_the_form_cannot_say_is_refused():
    with pytest.raises(ValueError, match="norm_epsilon=1e-05 only"):
        resnet.to_config(replace(SPEC, norm_epsilon=1e-3))


@pytest.mark.parametrize("labels", [None, ("cat", "dog", "none")])
def test_what_we_write_transformers_computes_and_we_read_back(tmp_path, labels):
    network = build_network(replace(SPEC, labels=labels))
    network.initialise(0)
    images = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(4))
    network.before_update(torch.tensor(1.0))
    network(images)
    network.after_update(lambda value: value, made=True)
    network.eval()
    weights = dict(network.stored())
    hf.write(tmp_path, network.spec, weights, dtype=torch.float32, extra={})
    assert read_shape(tmp_path) == network.spec
    again = hf.read_weights(tmp_path, network.spec)
    assert again.keys() == weights.keys()
    assert all(torch.equal(again[name], weights[name]) for name in weights)
    theirs, report = transformers.AutoModelForImageClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert theirs.config.id2label == dict(enumerate(labels or ("LABEL_0", "LABEL_1", "LABEL_2")))
    with torch.no_grad():
        ours = network.logits(network(images)[:, 0])
        torch.testing.assert_close(theirs.eval()(pixel_values=images).logits, ours, atol=1e-4, rtol=0)


def test_a_missing_statistic_is_named():
    network = build_network(SPEC)
    network.initialise(0)
    weights = resnet.to_hf(dict(network.stored()), SPEC)
    del weights["resnet.embedder.embedder.normalization.running_var"]
    with pytest.raises(KeyError, match="running_var"):
        resnet.from_hf(weights, SPEC)
