"""A small network, and the same weights in transformers."""

from __future__ import annotations

import pytest
import torch

from fixtures import tiny_models
from trainwright.model import hf


@pytest.fixture
def make_pair(tmp_path):
    """Returns our network, the folder of its Hugging Face form, and transformers' network with equal weights."""
    transformers = pytest.importorskip("transformers")

    def make(family, **changes):
        ours = tiny_models.decoder(family, layers=2, **changes)
        folder = tmp_path / f"{family}-base"
        folder.mkdir()
        hf.write(folder, ours.spec, dict(ours.named_parameters()), dtype=torch.float32, extra={})
        tiny_models.tokenizer().save(str(folder / "tokenizer.json"))
        theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return ours, folder, theirs

    return make


@pytest.fixture
def tokens():
    return torch.randint(0, 320, (2, 24), generator=torch.Generator().manual_seed(3))
