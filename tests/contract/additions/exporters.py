"""An exporter that the project does not have."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from trainwright.artifact.store import Artifact
from trainwright.core.records import from_json, to_json
from trainwright.model.bundle import build
from trainwright.model.network import Network
from trainwright.spec.model import ModelSpec
from trainwright.spec.recipe import Recipe
from trainwright.stages.export.exporter import Logits


class Pair:
    """Shape and weights in two files, under our own names."""

    def write(
        self, directory: Path, network: Network, *, recipe: Recipe, trained: Artifact, dtype: torch.dtype
    ) -> None:
        (directory / "shape.json").write_text(json.dumps(to_json(network.spec)), encoding="utf-8")
        weights = {name: parameter.to(dtype).contiguous() for name, parameter in network.named_parameters()}
        save_file(weights, directory / "weights.safetensors")

    def read(self, directory: Path) -> Logits:
        spec = from_json(ModelSpec, json.loads((directory / "shape.json").read_text()), where=str(directory))
        weights: dict[str, Tensor] = load_file(directory / "weights.safetensors")
        network = build(spec, {name: weight.float() for name, weight in weights.items()}, where=directory)
        return lambda tokens: network.logits(network(tokens))
