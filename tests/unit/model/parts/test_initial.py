"""First weights: the deviations that papers give, and one generator for all of them."""

from __future__ import annotations

import pytest
import torch

from fixtures import tiny_models as tiny
from trainwright.model.parts.initial import normal

SHAPES = {
    "table": torch.Size((300, 40)),
    "a.norm.weight": torch.Size((40,)),
    "a.bias": torch.Size((7,)),
    "a.out.weight": torch.Size((40, 200)),
}


def test_one_generator_draws_matrices_in_turn() -> None:
    values = dict(normal(SHAPES, 5, lambda name: 0.5 if name == "table" else 2.0, norm=0.25))
    drawn = torch.Generator().manual_seed(5)
    assert torch.equal(values["table"], torch.randn(300, 40, generator=drawn) * 0.5)
    assert torch.equal(values["a.out.weight"], torch.randn(40, 200, generator=drawn) * 2.0)
    assert values["a.norm.weight"].unique().tolist() == [0.25]
    assert not values["a.bias"].any()


def test_shapes_are_asked_for_before_the_first_value() -> None:
    """A network may be shared when its values are wanted: whole ones come all the same."""
    network = tiny.decoder(seed=3)
    values = network.initial(3)
    whole = dict(network.initial(3))
    del network.blocks[1]
    assert {name: value.shape for name, value in values} == {name: value.shape for name, value in whole.items()}


@pytest.mark.parametrize("ending", ["out.weight", "down.weight"])
def test_what_writes_into_the_stream_is_smaller_by_the_root_of_its_writers(ending: str) -> None:
    """Radford et al., 2019: 0.02 / sqrt(2 layers)."""
    network = tiny.decoder(width=64, layers=2)
    values = [value for name, value in network.initial(0) if name.endswith(ending)]
    assert len(values) == 2
    assert torch.cat([value.flatten() for value in values]).std() == pytest.approx(0.02 / 2, rel=0.05)
