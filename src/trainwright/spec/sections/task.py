"""The ``task`` section of a recipe: what the network learns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from trainwright.core.extension import Extension
from trainwright.core.plug_in import Called
from trainwright.spec.sections.base import Section

TASKS: Mapping[str, str] = {
    "next-token": "trainwright.model.tasks.next_token:next_token",
    "classify": "trainwright.model.tasks.classify:classify",
}
"""A task is a function of recipe and dataset that gives a ``Task`` (``model/tasks/task.py``)."""
TASK = Extension("task", TASKS, Called(arguments=("recipe", "dataset")))


class TaskSection(Section):
    """What the network learns from the dataset."""

    name: Annotated[str, TASK] = Field("next-token", description="predict the next token, or classify documents")
    labels: tuple[str, ...] = Field((), description="the classes in the head's order, for a task that has classes")

    @model_validator(mode="after")
    def _labels_where_classes_are(self) -> Self:
        if self.name == "next-token" and self.labels:
            raise ValueError("labels go with a task that has classes; name: classify has them")
        if self.name == "classify" and len(self.labels) < 2:
            raise ValueError(f"labels must name at least 2 classes for name: classify, seen {len(self.labels)}")
        if len(set(self.labels)) < len(self.labels) or "" in self.labels:
            raise ValueError("labels must differ from each other, and none may be empty")
        return self
