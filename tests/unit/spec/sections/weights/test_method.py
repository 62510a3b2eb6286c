"""Keys of ``train.method``: what an adapter's product is multiplied by, and keys of another method."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from trainwright.spec.sections.weights.method import WHOLE, MethodSection


def test_scales_are_those_of_lora_and_rslora() -> None:
    assert MethodSection(name="lora", rank=8, alpha=4).scale == 0.5
    assert MethodSection(name="lora", rank=8, alpha=4, scaling="alpha/sqrt(rank)").scale == 4 / math.sqrt(8)


def test_what_adapts() -> None:
    assert not WHOLE.adapts
    assert MethodSection(name="dora").adapts
    assert MethodSection.model_validate(WHOLE.model_dump()) == WHOLE, "as it was written down"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"rank": 8}, "rank is for adapters"),
        ({"name": "full", "targets": ["query"]}, "targets is for adapters"),
        ({"name": "lora", "rank": 0}, "rank"),
        ({"name": "lora", "targets": []}, "targets"),
        ({"name": "prefix"}, "name"),
        ({"frozen": "nf4"}, "frozen is for adapters"),
        ({"name": "dora", "frozen": "nf4"}, "frozen=nf4 is for lora.*set name=lora"),
        ({"name": "lora", "frozen": "int4"}, "frozen"),
    ],
)
def test_keys_of_another_method_are_refused(keys, message) -> None:
    with pytest.raises(ValidationError, match=message):
        MethodSection.model_validate(keys)
