"""ResNet's shape from a configuration, and that the planner counts the same network."""

from __future__ import annotations

import pytest

from trainwright.core.errors import RecipeError
from trainwright.spec.convnet import counted
from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.encoders import resnet as planned
from trainwright.spec.families.resnet import resnet

KEYS = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [2, 1], "image_size": 32, "num_labels": 4}


@pytest.mark.parametrize(
    "changes", [{}, {"layer_type": "basic"}, {"downsample_in_bottleneck": True, "downsample_in_first_stage": True}]
)
def test_what_is_trained_is_what_is_planned(changes):
    read = ConfigReader(KEYS | changes, where="config.json")
    trained = resnet(read)
    assert (trained.layers, trained.width, trained.context_tokens, trained.sees_images) == (3, 16, 1, True)
    assert trained.problems() == ()
    assert counted(trained) == planned(read)


def test_what_is_counted_is_counted_once():
    shape = planned(ConfigReader(KEYS, where="config.json"))
    assert counted(shape) is shape


@pytest.mark.parametrize("change", [{"num_channels": 1}, {"hidden_act": "silu"}])
def test_what_is_not_trained_is_refused(change):
    with pytest.raises(RecipeError, match=next(iter(change))):
        resnet(ConfigReader(KEYS | change, where="config.json"))
