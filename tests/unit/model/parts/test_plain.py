"""What encoders and networks of images leave out is what their families have not, and decoders may have."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fixtures.tiny_models import spec
from trainwright.model.decoder import refusals
from trainwright.model.encoder import network as encoder
from trainwright.model.parts.plain import OF_IMAGES, PLAIN
from trainwright.spec.families.family import FAMILY
from trainwright.spec.model import FAMILIES, ModelSpec


def other_values(shape: ModelSpec, table: Mapping[str, tuple[object, ...]]) -> dict[str, object]:
    """The fields of a shape that have none of a table's values."""
    return {name: getattr(shape, name) for name, values in table.items() if getattr(shape, name) not in values}


@pytest.mark.parametrize("family", [name for name in FAMILIES if FAMILY.load(name).sees_images])
def test_families_of_images_have_the_values_that_are_computed(family) -> None:
    assert other_values(spec(family, vocabulary=0), OF_IMAGES) == {}


@pytest.mark.parametrize("family", [name for name in FAMILIES if FAMILY.load(name).kind == "encoder"])
def test_encoders_have_these_values_or_are_built_with_their_own(family) -> None:
    shape = spec(family)
    assert encoder.refusals(shape) == ()
    if family in ("bert", "roberta"):
        assert other_values(shape, PLAIN) == {}
    else:
        assert other_values(shape, PLAIN).keys() >= {"gated", "window_tokens", "first_norm"}


def test_a_decoder_has_other_values() -> None:
    llama, gemma = spec("llama"), spec("gemma2")
    assert (llama.gated, llama.norm, gemma.norms_per_block) == (True, "rmsnorm", 4)
    assert not refusals(llama)
    assert not refusals(gemma)
    assert not any(getattr(llama, name) in PLAIN[name] for name in ("gated", "norm"))
