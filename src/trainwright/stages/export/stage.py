"""The stage: write each bundle, read it back, and hold its logits against the trained model's."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trainwright.artifact.model_folder import MODEL_FILES
from trainwright.artifact.stage import Context, StageResult
from trainwright.artifact.summaries import ExportSummary
from trainwright.core.errors import TrainwrightError
from trainwright.core.plug_in import blaming, not_an_instance
from trainwright.core.records import to_json
from trainwright.model.bundle import load_network
from trainwright.model.network import Network
from trainwright.runtime.device import DTYPES
from trainwright.spec.model import ModelSpec
from trainwright.spec.sections.export import EXPORTER, ExporterSection
from trainwright.stages.export.exporter import Exporter, outputs_of

TOLERANCE = 1e-4
"""Largest difference of a logit that reading back may show (fp32)."""

CHECKED_TOKENS, CHANNELS = 256, 3


def run(context: Context) -> StageResult:
    """Write the bundles that ``export.formats`` names, each in its folder.

    Raises:
        DataError: the trained model is damaged.
        RecipeError: its shape has no form in a format.
        MachineError: the disk is full.
        TrainwrightError: a bundle computes something else when it is read back.
    """
    recipe, trained = context.recipe, context.input("checkpoint")
    trained.verify(MODEL_FILES)
    model = load_network(trained.path)
    dtype = DTYPES[recipe.export.dtype]
    before = check_logits(model)
    stored = _rounded(model, dtype)
    rounded = check_logits(stored)
    differences = []
    for number, section in enumerate(recipe.export.formats):
        name = section.name
        directory = context.out / name.replace(":", ".")
        directory.mkdir(exist_ok=True)
        context.events.message(f"writing {name} in {recipe.export.dtype} and reading it back")
        make = EXPORTER.bound(section, ExporterSection)
        with blaming(name, where=f"export.formats.{number}"):
            exporter = make()
            if not isinstance(exporter, Exporter):
                raise not_an_instance(exporter, Exporter)
            exporter.write(directory, stored, recipe=recipe, trained=trained, dtype=dtype)
            with torch.inference_mode():
                difference = float((exporter.read(directory)(check_input(model.spec)) - rounded).abs().max())
        if difference > TOLERANCE:
            raise TrainwrightError(
                "the {name} bundle computes other logits than the model it was made from",
                where=directory,
                seen=f"a difference of {difference:.3g}",
                expected=f"{TOLERANCE:g} at most",
                fix="the disk or the memory may be faulty: run the same command again",
                name=name,
            )
        differences.append(difference)
    summary = ExportSummary(
        formats=recipe.export.names,
        dtype=recipe.export.dtype,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        logit_difference=max(differences),
        rounding_difference=float((rounded - before).abs().max()),
    )
    return StageResult(summary=to_json(summary))


def check_logits(model: Network) -> Float[Tensor, "batch seq vocabulary"]:
    """Returns the logits of ``check_input``."""
    with torch.inference_mode():
        return outputs_of(model, check_input(model.spec))


def check_input(spec: ModelSpec) -> Int[Tensor, "batch seq"] | Float[Tensor, "batch channels side side"]:
    """Returns a fixed sequence of random tokens, as long as the context allows; or an image of normal noise."""
    if spec.sees_images:
        image = (1, CHANNELS, spec.image_size, spec.image_size)
        return torch.randn(image, generator=torch.Generator().manual_seed(0))
    shape = (1, min(spec.context_tokens, CHECKED_TOKENS))
    return torch.randint(0, spec.vocabulary, shape, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def _rounded(model: Network, dtype: torch.dtype) -> Network:
    """Returns the model with its weights rounded to the stored precision, still computing in fp32."""
    for parameter in model.parameters():
        parameter.copy_(parameter.to(dtype))
    return model
