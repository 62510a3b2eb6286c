"""What is wrong with a training and can be known before anything runs; no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from trainwright.core.errors import MachineError, RecipeError, TrainwrightError
from trainwright.core.extension import Extension
from trainwright.core.plug_in import Called
from trainwright.core.registry import is_reference, load
from trainwright.core.spelling import did_you_mean
from trainwright.model.tasks.words.entities import scheme_of
from trainwright.planner.counts.adapters import placed
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.layout import LayoutSection
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train.layout import of_batch_norms, of_parts, refusals

METRICS = {
    "next-token": ("loss", "bits_per_byte", "perplexity"),
    "distill": ("loss", "bits_per_byte", "perplexity"),
    "masked": ("loss", "accuracy", "perplexity"),
    "chat": ("loss", "perplexity"),
    "classify": ("loss", "accuracy", "macro_f1"),
    "classify-many": ("loss", "subset_accuracy", "micro_f1", "macro_f1", "roc_area", "pr_area"),
    "classify-tokens": ("loss", "accuracy", "macro_f1", "entity_precision", "entity_recall", "entity_f1"),
    "regress": ("loss", "mse", "mae", "r2"),
    "classify-images": ("loss", "accuracy", "macro_f1", "calibration_error"),
    "embed": ("loss", "recall_at_1", "recall_at_10", "mrr"),
    "reward": ("loss", "accuracy", "margin", "reward_chosen", "reward_rejected"),
    "preference": ("loss", "rewards/accuracies", "rewards/margins", "rewards/chosen", "rewards/rejected", "kl"),
}
"""What our tasks measure on the validation split."""
ENTITY_METRICS = ("entity_precision", "entity_recall", "entity_f1")
"""What is measured where labels of words name entities."""
NF4_PACKAGE = "bitsandbytes"
PLACE = "trainwright.stages.train.saving.elsewhere:place_problem"
MAKE = Extension("task", {}, Called(arguments=("recipe", "dataset")))
"""What a plug-in's ``TaskKind.make`` names."""


def problems(recipe: Recipe, tokenizer: Path | None) -> Iterator[TrainwrightError]:
    """Yields each problem; its ``where`` is a key of the recipe."""
    del tokenizer
    how, task, train_loss = recipe.train.exec, recipe.task.name, recipe.train.loss
    yield from _layout(recipe)
    yield from _method(recipe)
    if is_reference(task):
        yield from MAKE.problems(recipe.task.kind.make, where="task.name")
    if train_loss.changes_targets and not recipe.task.kind.smooths:
        key = "label_smoothing" if train_loss.label_smoothing else "z_weight"
        yield RecipeError(
            "the loss of {task} is no cross-entropy of targets that this could change",
            where=f"train.loss.{key}",
            seen=getattr(train_loss, key),
            expected="0",
            task=task,
        )
    yield from _measured(recipe)
    if how.checkpoint_to is not None and find_spec("fsspec") is not None:
        problem: TrainwrightError | None = load(PLACE, kind="check")(how.checkpoint_to)
        if problem is not None:
            yield problem


def _metrics(recipe: Recipe) -> tuple[str, ...]:
    """Returns what the task measures on the validation split; nothing where it is a plug-in's, which nobody knows."""
    known = METRICS.get(recipe.task.name, ())
    apart = () if getattr(recipe.task, "loss", None) == "dpo" else ("kl",)  # from a reference
    told = apart if scheme_of(recipe.task.labels) else (*apart, *ENTITY_METRICS)
    return tuple(name for name in known if name not in told)


def _measured(recipe: Recipe) -> Iterator[RecipeError]:
    """Yields which metric of validation the task does not measure, and that there is none where training needs one."""
    task, how, stopping = recipe.task.name, recipe.train.exec, recipe.train.early_stopping
    asked = {"train.exec.best_by": how.best_by} if how.keep_best else {}
    if stopping is not None:
        asked["train.early_stopping.by"] = stopping.by
        if recipe.data.split.validation == 0:
            yield RecipeError(
                "without a validation split nothing says when to stop early",
                where="train.early_stopping",
                seen="data.split.validation=0",
                expected="above 0",
            )
    for where, by in asked.items():
        metric = by.split()[-1]
        known = _metrics(recipe)
        if known and metric not in known:
            yield RecipeError(
                "{task} measures nothing of this name",
                where=where,
                seen=repr(metric),
                expected=f"one of {', '.join(known)}",
                fix=did_you_mean(metric, known),
                task=task,
            )


def _method(recipe: Recipe) -> Iterator[TrainwrightError]:
    """Yields why the adapters that are asked for cannot be; that there is a base is known where steps are wired."""
    method = recipe.train.method
    if method.frozen == "nf4":
        yield from _quantised()
    if method.adapts and recipe.model.convolutions is None:  # what batch norms refuse is said of the layout
        try:
            placed(recipe.model_spec(vocabulary=1), method.targets)
        except RecipeError as error:
            yield error.at("train.method.targets")


def _quantised() -> Iterator[TrainwrightError]:
    """Yields that what keeps a base in nf4 is not installed."""
    where = "train.method.frozen"
    if find_spec(NF4_PACKAGE) is None:
        yield MachineError(
            "weights in nf4 are kept by {package}, which is not installed",
            where=where,
            seen="nf4",
            fix="pip install 'trainwright[qlora]', or set train.method.frozen=auto",
            package=NF4_PACKAGE,
        )


def _layout(recipe: Recipe) -> Iterator[RecipeError]:
    """Yields why the trainer does not execute the layout that is asked for, or with ``auto`` none at all."""
    train, layout = recipe.train, recipe.train.exec.layout
    asked, where = ParallelPlan(), "train"
    if isinstance(layout, LayoutSection):
        asked, where = layout.parallel(), "train.exec.layout"
    micro = 0 if train.exec.micro_batch == "auto" else train.exec.micro_batch  # 0: the plan chooses
    reasons = of_batch_norms(recipe, replace(asked, micro_batch_sequences=micro) if asked.ranks > 1 else None)
    reasons += of_parts(recipe, recipe.model_spec(vocabulary=1), asked, precision=train.precision)
    reasons += refusals(
        replace(asked, compile=train.exec.compile is True),
        recompute=train.recompute,
        blocks=recipe.model.layers,
        family=recipe.model.family,
        divides=recipe.task.kind.divides,
        pipelines=recipe.task.kind.pipelines,
        tensors=recipe.task.kind.tensors,
        optimizer=train.optimizer,
        precision=train.precision,
        adapts=train.method.adapts,
        quantised=train.method.frozen == "nf4",
    )
    if reasons:
        yield RecipeError("the trainer cannot execute this", where=where, seen="; ".join(reasons))
