"""Adapters as PEFT has them: ``adapter_config.json`` and ``adapter_model.safetensors``, beside a base elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from trainwright.artifact.model_folder import ADAPTERS, TOKENIZER, WEIGHTS, read_adaptation
from trainwright.artifact.store import Artifact
from trainwright.core.errors import RecipeError
from trainwright.core.paths import read_object
from trainwright.model.adapters import peft
from trainwright.model.adapters.attach import attach, fill
from trainwright.model.adapters.quantised import AS_TRANSFORMERS_SAYS, quantise
from trainwright.model.bundle import load_bundle
from trainwright.model.network import Network
from trainwright.model.weights import load_weights
from trainwright.spec.recipe import Recipe
from trainwright.stages.export.exporter import Logits, outputs_of


class Peft:
    """The exporter ``peft``."""

    def write(
        self, directory: Path, network: Network, *, recipe: Recipe, trained: Artifact, dtype: torch.dtype
    ) -> None:
        """Write the adapters as they were trained, in fp32; ``network`` has them merged, and is not read.

        Where the base was kept in nf4, how to quantise it stands beside them.

        Raises:
            RecipeError: nothing but whole weights was trained, or they have no form there.
            MachineError: the disk is full.
        """
        if not (trained.path / ADAPTERS).is_file():
            fix = "train with train.method.name=lora, or export huggingface"
            raise RecipeError("this model was trained whole: it has no adapters", where="export.formats", fix=fix)
        adaptation = read_adaptation(trained.path)
        tensors = load_weights(trained.path / WEIGHTS)
        adapters = peft.Adapters(modules=adaptation.modules, tensors=tensors, magnitude=adaptation.magnitude)
        quantisation = AS_TRANSFORMERS_SAYS if adaptation.frozen == "nf4" else None
        peft.write(directory, network.spec, adapters, base=adaptation.base.path, quantisation=quantisation)
        shutil.copyfile(trained.path / TOKENIZER, directory / TOKENIZER)

    def read(self, directory: Path) -> Logits:
        """Returns the logits of the base with the adapters that the directory holds, quantised as it says."""
        network, _ = load_bundle(Path(read_object(directory / peft.CONFIG)["base_model_name_or_path"]))
        adapters = peft.read(directory, network.spec)
        if (directory / peft.QUANTISATION).is_file():
            quantise(network)
        attach(network, adapters.modules, magnitude=adapters.magnitude)
        fill(network, adapters.tensors)
        return lambda tokens: outputs_of(network, tokens)
