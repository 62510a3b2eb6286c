"""Our exporter and a plug-in keep the contract; one that rounds without saying so is noticed."""

from __future__ import annotations

import sys
import types

import pytest
import torch
from safetensors.torch import load_file, save_file

from trainwright.model.bundle import build
from trainwright.testing.contract_exporter import ExporterContract


class Plain:
    """Our own names in one file; the shape comes from the checkpoint."""

    dtype = torch.float32

    def write(self, directory, network, *, recipe, trained, dtype):
        self.spec = network.spec
        weights = {name: parameter.to(self.dtype) for name, parameter in network.named_parameters()}
        save_file(weights, directory / "plain.safetensors")

    def read(self, directory):
        weights = {name: weight.float() for name, weight in load_file(directory / "plain.safetensors").items()}
        network = build(self.spec, weights, where=directory)
        return lambda tokens: network.logits(network(tokens))


class Coarse(Plain):
    dtype = torch.float8_e4m3fn


@pytest.fixture(autouse=True)
def _plugged(monkeypatch):
    monkeypatch.setitem(sys.modules, "plugged_exporters", types.SimpleNamespace(Plain=Plain, Coarse=Coarse))


class TestHuggingFace(ExporterContract):
    exporter = "huggingface"


class TestPlugIn(ExporterContract):
    exporter = "plugged_exporters:Plain"


def test_weights_that_are_rounded_too_far_are_noticed(tmp_path) -> None:
    class Broken(ExporterContract):
        exporter = "plugged_exporters:Coarse"

    with pytest.raises(AssertionError):
        Broken().test_what_is_read_back_computes_the_same(tmp_path)
