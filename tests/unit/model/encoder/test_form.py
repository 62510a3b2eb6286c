"""Names cover every parameter of every head, and each once."""

from __future__ import annotations

import pytest

from trainwright.model.build import build_network
from trainwright.model.families import bert, roberta


@pytest.mark.parametrize("form", [bert, roberta])
@pytest.mark.parametrize(
    "head",
    [
        {},
        {"tied": False},
        {"classes": 3, "pooler": True, "language_head": False},
        {"classes": 3, "language_head": False},
        {"language_head": False, "pooler": True},
    ],
    ids=str,
)
def test_names_cover_every_parameter(tiny, form, head):
    family = form.__name__.rpartition(".")[2]
    weights = dict(build_network(tiny.spec(family, **head)).named_parameters())
    theirs = form.to_hf(weights, tiny.spec(family, **head))
    assert len(theirs) == len(weights)
    assert form.from_hf(theirs, tiny.spec(family, **head)).keys() == weights.keys()


def test_a_bare_encoders_names_are_taken_too(tiny):
    spec = tiny.spec("bert")
    weights = dict(tiny.encoder().named_parameters())
    bare = {name.removeprefix("bert."): weight for name, weight in bert.to_hf(weights, spec).items()}
    assert all(bert.from_hf(bare, spec)[name] is weight for name, weight in weights.items())
    with pytest.raises(KeyError, match=r"bert\.encoder\.layer\.1\.attention\.self\.query\.weight"):
        bert.from_hf({name: w for name, w in bare.items() if "layer.1.attention.self.query" not in name}, spec)
