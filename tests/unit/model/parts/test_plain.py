"""What encoders and networks of images leave out is what their families have not, and decoders may have."""

from __future__ import annotations

import pytest

from fixtures.tiny_models import spec
from trainwright.model.decoder import refusals
from trainwright.model.parts.plain import OF_IMAGES, PLAIN
from trainwright.spec.families.family import FAMILY
from trainwright.spec.model import FAMILIES


@pytest.mark.parametrize("family", [name for name in FAMILIES if FAMILY.load(name).kind != "decoder"])
def test_families_have_the_values_that_are_computed(family) -> None:
    shape = spec(family, vocabulary=0) if FAMILY.load(family).sees_images else spec(family)
    table = OF_IMAGES if shape.sees_images else PLAIN
    assert {name: getattr(shape, name) for name, values in table.items() if getattr(shape, name) not in values} == {}


def test_a_decoder_has_other_values() -> None:
    llama, gemma = spec("llama"), spec("gemma2")
    assert (llama.gated, llama.norm, gemma.norms_per_block) == (True, "rmsnorm", 4)
    assert not refusals(llama)
    assert not refusals(gemma)
    assert not any(getattr(llama, name) in PLAIN[name] for name in ("gated", "norm"))
