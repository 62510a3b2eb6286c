from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.resnet import resnet
from trainwright.stages.export.card import model_card


def test_card_says_what_is_known_and_what_is_not(tiny, recipe):
    summary = {"parameters": 1_234_567, "tokens": 3_000_000, "steps": 732, "validation_loss": 1.23456}
    card = model_card(recipe, tiny.spec(), summary=summary, pretrained=False, dtype="fp32")
    header = yaml.safe_load(card.split("---")[1])
    assert header["library_name"] == "transformers"
    assert "license" not in header
    assert "# tiny\n" in card
    assert "| parameters | 1.235M |" in card
    assert "| trained on | 3M tokens in 732 steps |" in card
    assert "| validation loss | 1.2346 nats per token |" in card
    assert "bits per byte" not in card
    assert "- `text`: corpus.txt, s3://bucket/x.txt\n" in card
    assert "Unknown: the licences of the training data" in card


def test_the_loss_of_a_classifier_is_per_document(tiny, recipe):
    card = model_card(
        recipe, replace(tiny.spec(), classes=3), summary={"validation_loss": 0.5}, pretrained=False, dtype="fp32"
    )
    assert "| validation loss | 0.5000 nats per document |" in card


@pytest.mark.parametrize(("pretrained", "origin"), [(True, "the weights of another model"), (False, "scratch")])
def test_the_card_says_what_training_began_with(tiny, recipe, pretrained, origin):
    card = model_card(recipe, tiny.spec(), summary={}, pretrained=pretrained, dtype="fp32")
    assert f"trained from {origin} with Trainwright." in card


def test_a_residual_network_has_stages_and_no_patches(recipe):
    read = ConfigReader({"depths": [2, 1], "hidden_sizes": [16, 32], "layer_type": "basic"}, where="config.json")
    card = model_card(recipe, resnet(read), summary={"images": 1760, "steps": 40}, pretrained=False, dtype="fp32")
    assert "A residual network as a classifier of images" in card
    assert "| stages | 2 blocks of 16 channels, 1 blocks of 32 channels |" in card
    assert "| trained on | 1,760 images in 40 steps |" in card
    assert "patches" not in card and "heads" not in card
