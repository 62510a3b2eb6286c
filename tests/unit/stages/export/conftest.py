"""``tiny``: the small models of tests/fixtures/tiny_models.py; trained artefacts and a recipe around them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from trainwright.artifact.store import Workspace
from trainwright.spec.manifest import Manifest
from trainwright.spec.recipe import Recipe

_FILE = Path(__file__).parents[3] / "fixtures" / "tiny_models.py"


@pytest.fixture(scope="session")
def tiny():
    found = importlib.util.spec_from_file_location("tiny_models", _FILE)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture
def recipe():
    return Recipe.model_validate(
        {
            "name": "tiny",
            "model": {"layers": 3, "width": 32, "heads": 4, "context_tokens": 96},
            "train": {"sequence_tokens": 96, "batch_tokens": 96},
            "data": {"sources": [{"kind": "text", "paths": ["somewhere/corpus.txt", "s3://bucket/x.txt"]}]},
        }
    )


@pytest.fixture
def make_trained(tiny, tmp_path):
    """Turns a model into a complete trained artefact."""

    def make(model, tokenizer=None):
        workspace = Workspace(tmp_path / "workspace")
        partial = workspace.draft("train", "0" * 64)
        tiny.write_trained(partial, model, tokenizer or tiny.tokenizer())
        summary = {"steps": 10, "tokens": 960, "parameters": 1, "validation_loss": 2.0, "bits_per_byte": 1.5}
        manifest = Manifest(
            stage="train", stage_version=1, fingerprint="0" * 64, identity={}, inputs={}, files=(), summary=summary
        )
        return workspace.commit(partial, manifest)

    return make
