"""The stages: what each is made of, what it takes, and the string that names its code.

A stage's fingerprint covers its identity configuration, the named files of its input artefacts, and digests from
outside (the corpus, the machine, pretrained weights). Code is named by string, so that `plan` never loads a trainer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.artifact.store import Artifact, directory_digest
from trainwright.core.registry import load
from trainwright.spec.recipe import Recipe

DATASET_FILES = ("dataset.json", "tokenizer.json", "*.tokens", "*.index")
MODEL_FILES = ("model.json", "model.safetensors", "tokenizer.json")

Identity = Callable[[Recipe, Mapping[str, Artifact]], Mapping[str, Any]]
Outside = Callable[[Recipe, Path], Mapping[str, str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One step from artefacts to an artefact.

    ``inputs`` maps a stage to the patterns of its files that this stage's result depends on; ``uses`` are artefacts
    it reads without depending on them (how, not what).
    """

    name: str
    version: int
    run: str
    identity: Identity
    inputs: Mapping[str, tuple[str, ...]]
    uses: tuple[str, ...] = ()
    outside: Outside = lambda recipe, root: {}

    @property
    def needs(self) -> tuple[str, ...]:
        """Every stage that must be there first."""
        return (*self.inputs, *self.uses)


def _machine(recipe: Recipe, root: Path) -> Mapping[str, str]:
    return {"machine": load("trainwright.hardware.machine:machine_digest", kind="function")()}


def _corpus(recipe: Recipe, root: Path) -> Mapping[str, str]:
    corpus_digest = load("trainwright.stages.data.sources:corpus_digest", kind="function")
    return {"corpus": corpus_digest(recipe.data, cache=root / "corpus-digests.json")}


def _pretrained(recipe: Recipe, root: Path) -> Mapping[str, str]:
    if recipe.model.init_from is None:
        return {}
    return {"init_from": directory_digest(Path(recipe.model.init_from))}


def _plan_identity(recipe: Recipe, inputs: Mapping[str, Artifact]) -> Mapping[str, Any]:
    return {
        "model": recipe.identity("model"),
        "train": recipe.train.model_dump(mode="json"),
        "plan": recipe.identity("plan"),
        "vocabulary": recipe.data.tokenizer.vocabulary,
        "evaluate": recipe.identity("evaluate"),
    }


def _train_identity(recipe: Recipe, inputs: Mapping[str, Artifact]) -> Mapping[str, Any]:
    """``precision: auto`` is identified by what it stands for on this machine, because the weights depend on it."""
    return {
        "seed": recipe.seed,
        "model": recipe.identity("model"),
        "train": recipe.identity("train") | {"precision": inputs["plan"].summary["precision"]},
    }


def _section(name: str) -> Identity:
    return lambda recipe, inputs: {name: recipe.identity(name)}


def _evaluate_identity(recipe: Recipe, inputs: Mapping[str, Artifact]) -> Mapping[str, Any]:
    window = {key: getattr(recipe.train, key) for key in ("sequence_tokens", "document_masking")}
    return {"evaluate": recipe.identity("evaluate"), "window": window, "seed": recipe.seed}


def _serve_identity(recipe: Recipe, inputs: Mapping[str, Artifact]) -> Mapping[str, Any]:
    return {"name": recipe.name, "serve": recipe.serve.model_dump(mode="json", exclude={"host", "port"})}


_EVERYTHING = {
    "doctor": ("*",), "plan": ("*",), "data": ("*",), "train": ("*",), "evaluate": ("*",),
    "audit": ("*",), "export": ("*",), "serve": ("*",),
}  # fmt: skip

STAGES: Mapping[str, Stage] = {
    stage.name: stage
    for stage in (
        Stage(name="doctor", version=1, run="trainwright.stages.doctor:run", inputs={}, outside=_machine,
              identity=lambda recipe, inputs: {}),
        Stage(name="plan", version=1, run="trainwright.stages.plan:run", inputs={"doctor": ("*",)},
              identity=_plan_identity),
        Stage(name="data", version=1, run="trainwright.stages.data:run", inputs={}, outside=_corpus,
              identity=_section("data")),
        Stage(name="train", version=1, run="trainwright.stages.train:run", inputs={"data": DATASET_FILES},
              uses=("plan",), outside=_pretrained, identity=_train_identity),
        Stage(name="evaluate", version=1, run="trainwright.stages.evaluate:run",
              inputs={"train": MODEL_FILES, "data": DATASET_FILES}, uses=("plan",), identity=_evaluate_identity),
        Stage(name="audit", version=1, run="trainwright.stages.audit:run", inputs={"plan": ("*",), "train": ("*",)},
              identity=lambda recipe, inputs: {}),
        Stage(name="export", version=1, run="trainwright.stages.export:run", inputs={"train": MODEL_FILES},
              identity=lambda recipe, inputs: {"name": recipe.name, "export": recipe.identity("export")}),
        Stage(name="serve", version=1, run="trainwright.stages.serve:run", inputs={"export": ("*",)},
              identity=_serve_identity),
        Stage(name="report", version=1, run="trainwright.stages.report:run", inputs=_EVERYTHING,
              identity=lambda recipe, inputs: {"recipe": recipe.model_dump(mode="json")}),
    )
}  # fmt: skip
"""In the order in which they run."""


def upstream(name: str) -> tuple[Stage, ...]:
    """The stage and all that it needs, in running order."""
    wanted = {name}
    for stage in reversed(list(STAGES.values())):
        if stage.name in wanted:
            wanted.update(stage.needs)
    return tuple(stage for stage in STAGES.values() if stage.name in wanted)
