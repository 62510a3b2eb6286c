"""What of a recipe decides a stage's result: the identity that goes into its address, beside its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.artifact.store import Artifact
from trainwright.spec.recipe import Recipe


def data_identity(recipe: Recipe, inputs: Mapping[str, Artifact]) -> Mapping[str, Any]:
    """Where the tokenizer of a base lies is no part of what is made; its digest is."""
    section = recipe.identity("data")
    if "base" in inputs:
        section["tokenizer"] = {"end_of_text": recipe.data.tokenizer.end_of_text}
    return {"data": section}


def plan_identity(recipe: Recipe, inputs: Mapping[str, Artifact]) -> Mapping[str, Any]:
    """With what ``exec`` asks the plan for: a plan is of one way to carry a training out."""
    return {
        "model": recipe.identity("model"),
        "task": recipe.identity("task"),
        "train": recipe.train.model_dump(mode="json"),
        "plan": recipe.identity("plan"),
        "split": recipe.data.split.model_dump(mode="json"),
        "vocabulary": recipe.data.tokenizer.vocabulary,
    }


def train_identity(recipe: Recipe, inputs: Mapping[str, Artifact]) -> Mapping[str, Any]:
    """``precision: auto`` is identified by what it stands for on this machine, because the weights depend on it."""
    return {
        "seed": recipe.seed,
        "model": recipe.identity("model"),
        "task": recipe.identity("task"),
        "train": recipe.identity("train") | {"precision": inputs["plan"].summary["precision"]},
    }


def optimize_identity(recipe: Recipe, inputs: Mapping[str, Artifact]) -> Mapping[str, Any]:
    """With those keys of ``train.exec`` that a measurement depends on: those of the recipe as given among them."""
    how = recipe.train.exec
    names = ("device", "threads", "deterministic", "micro_batch", "compile", "attention", "update", "loss_chunk_tokens")
    return {
        "seed": recipe.seed,
        "model": recipe.identity("model"),
        "task": recipe.identity("task"),
        "train": recipe.identity("train"),
        "exec": {name: getattr(how, name) for name in (*names, "cuda_graphs")},
        "optimize": recipe.identity("optimize"),
    }


def evaluate_identity(recipe: Recipe, inputs: Mapping[str, Artifact]) -> Mapping[str, Any]:
    """With the windows that the model was trained on; the model itself is an input."""
    window = {key: getattr(recipe.train, key) for key in ("sequence_tokens", "document_masking")}
    return {
        "task": recipe.identity("task"),
        "evaluate": recipe.identity("evaluate"),
        "window": window,
        "seed": recipe.seed,
    }


def export_identity(recipe: Recipe, inputs: Mapping[str, Artifact]) -> Mapping[str, Any]:
    """With what the model card says of the data and of training, which equal weights can differ in."""
    data, trained = recipe.identity("data"), inputs["checkpoint"]
    told = (recipe.counted[0], "steps", "validation_loss", "bits_per_byte")
    return {
        "name": recipe.name,
        "export": recipe.identity("export"),
        "data": {key: data[key] for key in ("sources", "split", "dedup")},
        "trained": {key: trained.summary.get(key) for key in told},
        "pretrained": "base" in trained.manifest.inputs or recipe.model.init_from is not None,
    }


def serve_identity(recipe: Recipe, inputs: Mapping[str, Artifact]) -> Mapping[str, Any]:
    """Wherever it listens: host and port change no answer."""
    return {"name": recipe.name, "serve": recipe.serve.model_dump(mode="json", exclude={"host", "port"})}


def report_identity(recipe: Recipe, inputs: Mapping[str, Artifact]) -> Mapping[str, Any]:
    """The whole recipe is shown, but for its list of steps, which are inputs."""
    return {"recipe": recipe.model_dump(mode="json", exclude={"stages"})}
