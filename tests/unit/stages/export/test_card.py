from __future__ import annotations

import yaml

from trainwright.stages.export.card import model_card


def test_card_says_what_is_known_and_what_is_not(tiny, recipe):
    summary = {"parameters": 1_234_567, "tokens": 3_000_000, "steps": 732, "validation_loss": 1.23456}
    card = model_card(recipe, tiny.spec(), summary=summary, dtype="fp32")
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
