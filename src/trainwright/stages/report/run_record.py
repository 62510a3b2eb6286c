"""The artefacts of a run, read once: each stage's files as values, or None where the stage has not run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from trainwright.artifact.evaluation import FILE as EVALUATION
from trainwright.artifact.evaluation import read_evaluation
from trainwright.artifact.events import read_events
from trainwright.artifact.model_folder import SHAPE_FILE
from trainwright.artifact.reading import PLAN, read_plan
from trainwright.artifact.store import Artifact
from trainwright.core.paths import read_object
from trainwright.core.records import from_json
from trainwright.hardware.machine.record import FILE as MACHINE
from trainwright.hardware.machine.record import Machine, read_machine
from trainwright.planner.evidence.audit import Audit
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.stages.report.series import Curve, curves


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A recipe and the artefacts that there are, by stage."""

    recipe: Recipe
    artifacts: Mapping[str, Artifact]

    @cached_property
    def machine(self) -> Machine | None:
        """Returns the doctor's record."""
        path = self._path("doctor", MACHINE)
        return None if path is None else read_machine(path)

    @cached_property
    def plan(self) -> Plan | None:
        """Returns the plan."""
        path = self._path("plan", PLAN)
        return None if path is None else read_plan(path)

    @cached_property
    def data(self) -> dict[str, Any] | None:
        """Returns the data stage's report."""
        return self.read("data", "report.json")

    @cached_property
    def training(self) -> dict[str, Any] | None:
        """Returns the training summary."""
        return self.read("train", "summary.json")

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """Metrics of training by name."""
        path = self._path("train", "events.jsonl")
        return {} if path is None else curves(read_events(path))

    @cached_property
    def evaluation(self) -> dict[str, Any] | None:
        """Returns what was measured on held-out text."""
        path = self._path("evaluate", EVALUATION)
        return None if path is None else read_evaluation(path)

    @cached_property
    def audit(self) -> Audit | None:
        """Predicted against measured."""
        record = self.read("audit", "audit.json")
        return None if record is None else from_json(Audit, record, where="audit.json")

    @cached_property
    def model(self) -> ModelSpec | None:
        """Returns the transformer that was trained, else the one that was planned."""
        record = self.read("train", SHAPE_FILE)
        if record is not None:
            return from_json(ModelSpec, record, where=SHAPE_FILE)
        planned = None if self.plan is None else self.plan.model
        return planned if isinstance(planned, ModelSpec) else None

    @cached_property
    def answer(self) -> dict[str, Any] | None:
        """Returns the served model's answer to the recipe's question."""
        return self.read("serve", "answer.json")

    def seconds(self, stage: str) -> float | None:
        """Returns how long a stage worked, over all interruptions."""
        artifact = self.artifacts.get(stage)
        seconds = None if artifact is None else artifact.manifest.execution.get("seconds")
        return None if seconds is None else float(seconds)

    def read(self, stage: str, name: str) -> dict[str, Any] | None:
        """Returns a JSON object of a stage; None where the stage did not run or has no such file.

        Raises:
            DataError: the file holds no JSON object.
        """
        path = self._path(stage, name)
        return None if path is None else read_object(path)

    def _path(self, stage: str, name: str) -> Path | None:
        artifact = self.artifacts.get(stage)
        if artifact is None or all(entry.path != name for entry in artifact.manifest.files):
            return None
        return artifact.path / name
