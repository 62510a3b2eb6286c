"""A recipe, and a pipeline around the stage that plans on the ideal machine and measures what a test says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainwright.spec.recipe import Recipe


@pytest.fixture
def make_recipe() -> Callable[..., Recipe]:
    """A recipe of small sizes with these ``train`` keys, and ``optimize`` keys beside them."""

    def make(*, optimize: dict | None = None, **train) -> Recipe:
        section = {"sequence_tokens": 32, "batch_tokens": 256, "duration": "1000 steps"} | train
        document = {
            "name": "tiny",
            "model": {"family": "gpt2", "layers": 2, "width": 32, "heads": 2, "context_tokens": 32},
            "data": {"sources": [{"kind": "python-stdlib"}], "tokenizer": {"vocabulary": 300}},
            "train": section,
            "optimize": {"steps": 8} | (optimize or {}),
        }
        return Recipe.model_validate(document)

    return make
