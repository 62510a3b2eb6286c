"""The recipe that trains what was planned: a new one for a model alone, or what a recipe is run with elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.core.errors import TrainwrightError
from trainwright.render.trained_here import is_run_here
from trainwright.spec.model import FAMILIES, ModelSpec
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.layout import OF_AXES, LayoutSection
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.workload import Workload

CORPUS = "corpus.jsonl"
"""Stands in a new recipe for the data, which no plan knows."""
LAYOUT = "train.exec.layout"


def recipe_of(plan: Plan, *, name: str) -> dict[str, Any] | None:
    """Returns the recipe that trains the planned run from the start; None where a recipe cannot say it.

    Its tokenizer is trained on its data, with as many entries as the model has.
    """
    if not isinstance(plan.model, ModelSpec):
        return None
    model, keys = _model_keys(plan.model), _train_keys(plan)
    if model is None or keys is None:
        return None
    tree: dict[str, Any] = {
        "name": name,
        "model": model,
        "data": {
            "sources": [{"kind": "jsonl", "paths": [CORPUS]}],
            "tokenizer": {"kind": "byte-bpe", "vocabulary": plan.model.vocabulary},
        },
    }
    keys |= {"train.duration": f"{plan.workload.steps} steps", "train.precision": plan.workload.precision}
    for key, value in keys.items():
        *parents, last = key.split(".")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    try:
        Recipe.model_validate(tree)
    except (TrainwrightError, ValueError):
        return None
    return tree


def overrides_of(plan: Plan, recipe: Recipe, asked: Workload, *, precision: bool) -> list[str] | None:
    """Returns in what a recipe is run otherwise than it stands, to train as planned; None where a recipe cannot say it.

    Args:
        plan: of the recipe, on another cluster.
        recipe: as it stands.
        asked: its workload.
        precision: another one was asked for.
    """
    keys = _train_keys(plan)
    if keys is None:
        return None
    if plan.workload.steps != asked.steps:
        keys["train.duration"] = f"{plan.workload.steps} steps"
    if precision:
        keys["train.precision"] = plan.workload.precision
    stands = recipe.model_dump(mode="json")
    return [f"{key}={_written(value)}" for key, value in keys.items() if _at(stands, key) != value]


def _model_keys(model: ModelSpec) -> dict[str, Any] | None:
    """Returns the model section of exactly this shape; None where there is none, or its data would be images."""
    if model.family not in FAMILIES or model.sees_images:
        return None
    names = ("family", "layers", "width", "heads", "kv_heads", "head_size", "ffn_width", "context_tokens")
    keys = {name: getattr(model, name) for name in (*names, "tied", "rope_theta", "norm_epsilon")}
    try:
        shape = ModelSection(**keys).spec(vocabulary=model.vocabulary)
    except ValueError:  # experts and latent attention have keys that are not written here
        return None
    return keys if shape == model else None


def _train_keys(plan: Plan) -> dict[str, Any] | None:
    """Returns keys of the train section by name; None where the trainer does something of the plan otherwise."""
    work, parallel = plan.workload, plan.parallel
    if not is_run_here(plan):
        return None
    keys: dict[str, Any] = {
        "train.sequence_tokens": work.sequence_tokens,
        "train.batch_tokens": work.batch_tokens,
        "train.recompute": work.recompute,
        "train.optimizer.name": "sgd" if work.optimizer == "plain-sgd" else work.optimizer,
    }
    if work.optimizer == "plain-sgd":
        keys["train.optimizer.momentum"] = 0
    if work.moments is not None:
        keys["train.optimizer.moments"] = work.moments
    if work.activation_offload:
        keys["train.activation_offload"] = True
    keys["train.exec.micro_batch"] = parallel.micro_batch_sequences
    if plan.cluster.devices == 1:
        return keys
    fields = LayoutSection.model_fields
    for name in fields:
        value = getattr(parallel, name)
        unused = name in OF_AXES and all(getattr(parallel, axis) == 1 for axis in OF_AXES[name])
        if value != fields[name].default and not unused:
            keys[f"{LAYOUT}.{name}"] = value
    return keys


def _at(tree: Mapping[str, Any], key: str) -> object:
    """Returns the value of a dotted key; None where there is none."""
    value: Any = tree
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
