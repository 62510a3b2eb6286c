"""The stage: write each bundle, read it back, and hold its logits against the trained model's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from trainwright.artifact.events import Events
from trainwright.artifact.stage import StageResult
from trainwright.artifact.store import Artifact
from trainwright.core.errors import TrainwrightError
from trainwright.model.bundle import load_bundle
from trainwright.model.decoder import Decoder
from trainwright.runtime.device import DTYPES
from trainwright.spec.recipe import Recipe
from trainwright.stages.export import huggingface

FORMATS: Mapping[str, Callable[..., None]] = {"huggingface": huggingface.write}
"""Writers by the format's name: ``write(directory, model, recipe=, trained=, dtype=)``."""

TOLERANCE = 1e-4
"""Largest difference of a logit that reading back may show (fp32)."""

CHECKED_TOKENS = 256


def run(recipe: Recipe, inputs: Mapping[str, Artifact], out: Path, events: Events) -> StageResult:
    """Write the bundles that ``export.formats`` names, each in its folder.

    Raises:
        DataError: the trained model is damaged.
        RecipeError: its shape has no form in a format.
        MachineError: the disk is full.
        TrainwrightError: a bundle computes something else when it is read back.
    """
    trained = inputs["train"]
    trained.verify({"model.json", "model.safetensors", "tokenizer.json"})
    model, _ = load_bundle(trained.path)
    dtype = DTYPES[recipe.export.dtype]
    before = check_logits(model)
    stored = _rounded(model, dtype)
    rounded = check_logits(stored)
    differences = []
    for name in recipe.export.formats:
        directory = out / name
        directory.mkdir(exist_ok=True)
        events.message(f"writing {name} in {recipe.export.dtype} and reading it back")
        FORMATS[name](directory, stored, recipe=recipe, trained=trained, dtype=dtype)
        difference = float((check_logits(load_bundle(directory)[0]) - rounded).abs().max())
        if difference > TOLERANCE:
            raise TrainwrightError(
                f"the {name} bundle computes other logits than the model it was made from", where=directory,
                seen=f"a difference of {difference:.3g}", expected=f"{TOLERANCE:g} at most",
                fix="the disk or the memory may be faulty: run the same command again",
            )  # fmt: skip
        differences.append(difference)
    return StageResult(
        summary={
            "formats": list(recipe.export.formats),
            "dtype": recipe.export.dtype,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "logit_difference": max(differences),
            "rounding_difference": float((rounded - before).abs().max()),
        }
    )


def check_logits(model: Decoder) -> Float[Tensor, "batch seq vocabulary"]:
    """The logits of a fixed sequence of random tokens, as long as the context allows."""
    spec = model.spec
    shape = (1, min(spec.context_tokens, CHECKED_TOKENS))
    tokens = torch.randint(0, spec.vocabulary, shape, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        return model.logits(model(tokens))


@torch.no_grad()
def _rounded(model: Decoder, dtype: torch.dtype) -> Decoder:
    """The model with its weights rounded to the stored precision, still computing in fp32."""
    for parameter in model.parameters():
        parameter.copy_(parameter.to(dtype))
    return model
