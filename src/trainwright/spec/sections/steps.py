"""The ``stages`` list of a recipe: steps with names, where the usual line from doctor to report does not do."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from trainwright.core.errors import RecipeError
from trainwright.core.spelling import unknown
from trainwright.spec.manifest import KINDS
from trainwright.spec.sections.base import Section

Overrides = dict[str, Any]


def _known_stage(name: str) -> str:
    if name not in KINDS:
        raise RecipeError("no such stage", **unknown(name, KINDS))
    return name


def _step_name(name: str) -> str:
    if not name.replace("-", "").replace("_", "").isalnum():
        raise ValueError(f"a step's name has letters, digits, '-' and '_' only, seen {name!r}")
    return name


class StepSection(Section):
    """A step: a stage, its inputs, and the keys in which it differs from the step that it goes on from."""

    stage: Annotated[str, AfterValidator(_known_stage)] = Field(
        description="what it does: train, evaluate, export, ..."
    )
    name: Annotated[str, AfterValidator(_step_name)] | None = Field(
        None, min_length=1, description="names the step; default: the stage's name"
    )
    goes_on_from: str | dict[str, str] | None = Field(
        None,
        alias="from",
        description="what it goes on from: an earlier step, or the path (with a /) of an artefact; or a mapping of "
        "these by role (base, dataset, checkpoint, ...)",
    )
    model: Overrides | None = Field(None, description="keys laid over the model section")
    data: Overrides | None = Field(None, description="keys laid over the data section")
    task: Overrides | None = Field(None, description="keys laid over the task section")
    train: Overrides | None = Field(None, description="keys laid over the train section")
    plan: Overrides | None = Field(None, description="keys laid over the plan section")
    optimize: Overrides | None = Field(None, description="keys laid over the optimize section")
    evaluate: Overrides | None = Field(None, description="keys laid over the evaluate section")
    export: Overrides | None = Field(None, description="keys laid over the export section")
    serve: Overrides | None = Field(None, description="keys laid over the serve section")

    @property
    def title(self) -> str:
        """Returns the step's name."""
        return self.name or self.stage

    @property
    def overrides(self) -> dict[str, Overrides]:
        """Returns the keys of its own, by section."""
        keys = {section: getattr(self, section) for section in SECTIONS}
        return {section: values for section, values in keys.items() if values is not None}


SECTIONS = tuple(name for name, field in StepSection.model_fields.items() if field.annotation == Overrides | None)
"""The sections that a step may lay its own keys over."""
