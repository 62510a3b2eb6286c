"""Our families are what their name says, and the files under model/families are those with a Hugging Face form."""

from __future__ import annotations

from pathlib import Path

import pytest

import trainwright.model.families
from trainwright.spec.families.family import FAMILY, Family
from trainwright.spec.model import FAMILIES


def test_every_name_is_a_family_and_every_file_is_one_s_form() -> None:
    families = {name: FAMILY.load(name) for name in FAMILIES}
    assert all(isinstance(family, Family) for family in families.values())
    folder = Path(trainwright.model.families.__path__[0])
    modules = {f"trainwright.model.families.{path.stem}" for path in folder.glob("*.py") if path.stem != "__init__"}
    assert {family.huggingface for family in families.values()} == modules


@pytest.mark.parametrize(
    ("name", "width", "expected"), [("llama", 768, 2048), ("llama", 100, 320), ("gpt2", 768, 3072)]
)
def test_default_feed_forwards(name, width, expected) -> None:
    assert FAMILY.load(name).ffn_width(width) == expected
