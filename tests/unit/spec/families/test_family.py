"""Our families are what their name says, and the files under model/families are those with a Hugging Face form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trainwright.model.families
from fixtures.tiny_models import spec
from trainwright.core.errors import RecipeError
from trainwright.spec.families.family import FAMILY, Family, huggingface_config
from trainwright.spec.model import FAMILIES
from trainwright.spec.parts.scales import Scales
from trainwright.spec.sections.model import ModelSection


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


@pytest.mark.parametrize(
    ("family", "changes", "said"),
    [
        ("llama", {"qk_norm": True, "norm_offset": 1.0}, "qk_norm=True, norm_offset=1.0"),
        ("llama", {"scales": Scales(logits_divisor=2.0)}, "scales.logits_divisor=2.0"),
        ("gpt2", {"scales": Scales(logits_divisor=2.0)}, "scales.logits_divisor=2.0"),
        ("gpt2", {"bias": False}, "bias=False, qkv_bias=False, output_bias=False"),
        ("gpt2", {"activation": "relu"}, "activation=relu"),
        ("bert", {"window_tokens": 8, "scales": Scales(embedding=3.0)}, "window_tokens=8, scales.embedding=3.0"),
    ],
)
def test_what_no_configuration_of_a_family_says_is_not_exported(family, changes, said) -> None:
    """Nothing of a shape may get lost: what was written would be another network."""
    with pytest.raises(RecipeError, match="this shape cannot be exported") as error:
        huggingface_config(spec(family, **changes), where="here")
    assert error.value.seen == f"Hugging Face's {family} has no form for {said}"


_BLOCKS = {"layers": 2, "width": 32, "heads": 4}
_CONVOLUTIONS = {"depths": [1, 1], "widths": [16, 32], "stem_width": 16, "bottleneck": False}
_EXPERTS = {"count": 4, "active": 2, "ffn_width": 16}
_LATENT = {"kv_rank": 16, "rope_size": 4, "value_size": 8}


def _smallest(name: str) -> dict[str, Any]:
    """Returns the keys of ``model`` that a recipe of a family must have."""
    if name in ("vit", "resnet"):
        network = {"convolutions": _CONVOLUTIONS} if name == "resnet" else {"patch_size": 4, **_BLOCKS}
        return {"image_size": 32, **network}
    family: Family = FAMILY.load(name)
    parts: dict[str, Any] = {} if family.latent is None else {"latent": _LATENT}
    if family.experts is not None:
        parts["experts"] = _EXPERTS | ({"shared_ffn_width": 16} if name == "qwen2_moe" else {})
    return _BLOCKS | parts


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_recipe_of_a_family_leaves_out_is_said(name) -> None:
    """A recipe that names sizes alone is of a network that the family's configuration has."""
    section = ModelSection(family=name, **_smallest(name))
    assert huggingface_config(section.spec(vocabulary=320), where="here")["model_type"] == name


def test_granite_says_the_scales_of_a_llama() -> None:
    config = huggingface_config(spec("granite", scales=Scales(logits_divisor=2.0, attention=0.25)), where="here")
    assert (config["logits_scaling"], config["attention_multiplier"]) == (2.0, 0.25)
