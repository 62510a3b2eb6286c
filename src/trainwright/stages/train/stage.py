"""The stage: verify the dataset, build or restore the model, train, write the model bundle and the summary."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from trainwright.artifact.events import START, Events, worked_s
from trainwright.artifact.model_folder import MODEL_FILES
from trainwright.artifact.reading import PLAN, described_facts, read_plan
from trainwright.artifact.shards import TokenDataset
from trainwright.artifact.stage import Context, StageResult
from trainwright.artifact.store import write_atomically
from trainwright.core.errors import RecipeError
from trainwright.core.records import to_json
from trainwright.core.registry import load
from trainwright.model.tasks.task import HasTeacher, load_task, refers, without_reference
from trainwright.planner.plan.workload import average_start, resolve, steps_in
from trainwright.runtime.device import DTYPES
from trainwright.runtime.execution import execution_of, torch_settings
from trainwright.spec.convnet import counted
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.updates.loss import PLAIN
from trainwright.spec.summary import TrainSummary
from trainwright.stages.train.checkpoints import Checkpoints, whole_on_cpu, write_bundle
from trainwright.stages.train.layout import check_executable, plan_differences
from trainwright.stages.train.optimizer import assigned
from trainwright.stages.train.saving.keeping import Policy
from trainwright.stages.train.settings import Settings
from trainwright.stages.train.trainer import Trainer
from trainwright.stages.train.weights.beginning import begin
from trainwright.stages.train.world import ALONE, MEETING, World

if TYPE_CHECKING:
    from trainwright.stages.train.saving.elsewhere import Mirror

LINES = "trainwright.model.optimizers.groups:lines"
TERMS = "trainwright.model.regularisation.terms:add_terms"
BASE_FOLDER = "trainwright.artifact.hub.base:base_folder"
REFERENCE = "trainwright.stages.train.weights.reference:refer"
TEACHER = "trainwright.model.tasks.distillation.teacher:load_teacher"
OFFLOAD = "trainwright.model.memory.offload:offload_activations"
FLOAT8 = "trainwright.model.precision.float8:convert"
ELSEWHERE = "trainwright.stages.train.saving.elsewhere"
MEMORY = "trainwright.stages.train.faults.memory"
ON_THIS_HOST = "trainwright.stages.train.ranks.start:train_on_ranks"
TOGETHER = "trainwright.stages.train.ranks.several.together:call_and_train"


def run(context: Context) -> StageResult:
    """Train as the recipe and the plan say, with one process or several, from the start or the last checkpoint.

    Raises:
        TrainwrightError: as ``train``; and a rank that died, by its number.
    """
    planned = context.input("plan")
    planned.verify()
    plan = read_plan(planned.file(PLAN))
    check_executable(plan, context.recipe)
    if plan.parallel.ranks == 1 and MEETING.get() is None:
        if context.recipe.train.exec.on_oom == "adapt":
            return result_of(load(f"{MEMORY}:adapting", kind="fault")(context, plan, train, ALONE), context.recipe)
        return result_of(train(context, plan, ALONE), context.recipe)
    start = ON_THIS_HOST if MEETING.get() is None else TOGETHER
    return cast("StageResult", load(start, kind="layout")(context, plan))


def train(context: Context, plan: Plan, world: World) -> TrainSummary:
    """Trains as one process of ``world``, from the start or from the last checkpoint in ``out``.

    Raises:
        DataError: a damaged shard, or a split shorter than a sequence.
        TrainingError: the loss is no longer a number, or no checkpoint can be used.
        Interrupted: a signal asked to stop; the last step is in a checkpoint.
    """
    recipe, out, events, began_s = context.recipe, context.out, context.events, time.monotonic()
    prepared = context.input("dataset")
    prepared.verify()
    dataset = TokenDataset.open(prepared.path)
    settings = settings_of(recipe, plan, dataset)
    with torch_settings(settings):
        trainer, notes = trainer_of(context, settings, dataset, world)
        log = out / "events.jsonl"
        interrupted, (before_s, told_s) = log.is_file(), worked_s(log)
        # The session began with the command, or where it goes on after a fault with its last line; never after now.
        began_s = min(began_s, max(context.began_s, time.monotonic() - (time.time() - told_s)))
        told = Events(log if world.leads else None, run=recipe.name, listeners=events.listeners)
        with told as recorded, trainer.checkpoints:
            if interrupted:
                recorded.emit("resume", "train", trainer.progress.step, step=trainer.progress.step)
            else:
                for note in (*notes, *settings.notes(), *trainer.task.notes(dataset.splits)):
                    recorded.message(note)
            recorded.metric(START, time.monotonic() - began_s, step=trainer.progress.step, unit="s")
            with _naming_what_grew(trainer, plan):
                summary = trainer.run(recorded, began_s=began_s - before_s, launched_s=context.began_s)
    with trainer.optimizers.result():
        weights = whole_on_cpu(trainer.network.stored(), world)
        if world.leads:
            write_bundle(out, trainer.network, weights, dataset.tokenizer_path)
    if world.leads:
        record = json.dumps(to_json(summary), indent=1, allow_nan=False)
        write_atomically(out / "summary.json", record.encode() + b"\n")
    return summary


@contextmanager
def _naming_what_grew(trainer: Trainer, plan: Plan) -> Iterator[None]:
    """Says where memory went, and what helps, where there is no more of it."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        explained = load(f"{MEMORY}:out_of_memory", kind="fault")(error, trainer, plan)
        if explained is None:
            raise
        raise explained from error


def result_of(summary: TrainSummary, recipe: Recipe) -> StageResult:
    """Returns what the manifest says of a finished training."""
    faults, found = summary.faults, _headline(summary, *recipe.counted)
    if faults and recipe.train.faults.goes_back:  # an update that was rolled back is none of the steps
        found["left_out_or_rolled_back"] = faults
    elif faults:
        found["left_out"] = f"{faults:,} of {summary.steps:,} updates"
    if summary.ranks:
        found["on"] = f"{len(summary.ranks)} ranks"  # a result may be found again under another layout
    return StageResult(summary=found, execution=to_json(summary.execution))


def trainer_of(
    context: Context, settings: Settings, dataset: TokenDataset, world: World = ALONE, *, learns: bool = True
) -> tuple[Trainer, list[str]]:
    """Returns the trainer, where checkpoints in ``out`` left it, and notes on its weights; raises as ``train``.

    One that never ``learns`` is for its time alone: what values a task compares with is not computed.
    """
    recipe, tokenizer, out = context.recipe, dataset.tokenizer_path, context.out
    begun = begin(recipe, settings, tokenizer, base=_base(context))
    network, notes = begun.network, [f"a new head for {begun.new_head}"] if begun.new_head else []
    if recipe.train.loss != PLAIN:
        notes += load(TERMS, kind="loss")(network, recipe.train.loss)
    if recipe.train.optimizer.groups or recipe.model.width_ratio != 1:
        notes += load(LINES, kind="group")(assigned(network, recipe.train.optimizer))
    if settings.precision == "fp8":
        load(FLOAT8, kind="precision")(network)
    world.share(network, compiled=settings.compiled)
    begun.fill(settings.device, world)
    if recipe.train.activation_offload:
        load(OFFLOAD, kind="memory")(network)
    how = recipe.train.exec
    checkpoints = Checkpoints(
        out / "checkpoints",
        keep=Policy.of(recipe.train),
        tokenizer=tokenizer,
        events=context.events,
        world=world,
        elsewhere=None if how.checkpoint_to is None else _mirror(how.checkpoint_to, out, world),
    )
    task, follows = load_task(recipe, dataset), "base" in context.inputs
    if isinstance(task, HasTeacher):
        tokens, where = settings.sequence_tokens, {"device": settings.device, "dtype": settings.dtype}
        teacher = load(TEACHER, kind="teacher")(recipe.task, tokenizer, sequence_tokens=tokens, **where)
        task = task.taught_by(teacher)
    if not learns:
        task = without_reference(task, dataset.splits)
    elif refers(task):
        sequences = settings.micro_batch
        task = load(REFERENCE, kind="reference")(task, network, dataset, context, world=world, sequences=sequences)
    trainer = Trainer(
        task, network, dataset, checkpoints, settings, recipe=recipe, out=out, from_step=follows, world=world
    )
    return trainer, notes


def _mirror(place: str, out: Path, world: World) -> Mirror:
    """Returns the other place that checkpoints go to. Raises as ``Elsewhere``."""
    there = load(f"{ELSEWHERE}:Elsewhere", kind="place")(place, out)
    mirror = load(f"{ELSEWHERE}:Mirror", kind="place")
    return cast("Mirror", mirror(there, out / "checkpoints", rank=world.rank, ranks=world.ranks))


def settings_of(recipe: Recipe, plan: Plan, dataset: TokenDataset) -> Settings:
    """Returns what is computed and how: the recipe's mathematics, laid out as the plan says.

    ``train.exec`` asked the plan for a micro batch, threads, compilation, determinism and a device; what the plan
    answered is executed, so that it runs as it was predicted.

    Raises:
        RecipeError: the run is shorter than one update, the plan is of another run, or its device is not executed here.
        MachineError: the plan is for an accelerator, and torch sees none.
    """
    split, facts = dataset.splits["train"], described_facts(dataset.path)
    here, precision = execution_of(plan, recipe.train.exec), plan.workload.precision
    workload = resolve(recipe, facts, precision=precision)
    if recipe.train.exec.fit_memory is not None:  # which the plan did, by what changes no result
        planned = plan.workload
        workload = replace(workload, recompute=planned.recompute, recompute_budget=planned.recompute_budget)
    peak = plan.cluster.device.flops_per_s.get(precision)
    model = recipe.model_spec(vocabulary=dataset.vocabulary)
    others = plan_differences(plan, counted(model), workload, recipe.unmeasured)
    if others:
        raise RecipeError("the plan is of another run", where="plan", seen=", ".join(others), fix="plan this recipe")
    return Settings(
        model=model,
        steps=workload.steps,
        asked_warmup_steps=steps_in(recipe, recipe.train.schedule.warmup, facts),
        average_from=average_start(recipe, facts),
        result_weights=recipe.train.result_weights,
        rate_factor=recipe.train.rate_factor,
        width_ratio=recipe.model.width_ratio,
        epoch_tokens=recipe.epoch_tokens(tokens=split.tokens, documents=split.documents),
        sequence_tokens=workload.sequence_tokens,
        sizes=workload.sizes,
        micro_batch=plan.parallel.micro_batch_sequences,
        precision=precision,
        dtype=DTYPES[precision],
        compiled=plan.parallel.compile,
        recompute=workload.recompute,
        recompute_budget=workload.recompute_budget,
        offload=plan.parallel.offload == "optimizer",
        threads=here.threads,
        deterministic=here.deterministic,
        tf32=here.tf32,
        device=here.device,
        peak_flops_per_s=None if peak is None else peak * plan.parallel.ranks,
    )


def _base(context: Context) -> Path | None:
    """Returns the folder with the weights that training begins with, or None where it begins with random ones."""
    pretrained = context.recipe.model.init_from
    base = context.optional_input("base", kind="checkpoint")
    if base is None:
        return None if pretrained is None else load(BASE_FOLDER, kind="base")(pretrained, weights=True)
    base.verify(MODEL_FILES)
    return base.path


def _headline(summary: TrainSummary, unit: str, unit_tokens: int) -> dict[str, Any]:
    measured = {} if summary.validation is None else summary.validation["metrics"]
    metrics = {name: metric["value"] for name, metric in measured.items()}
    return {
        "steps": summary.steps,
        unit: summary.tokens // unit_tokens,
        "passes": summary.passes,
        "parameters": summary.parameters,
        "precision": summary.precision,
        "train_loss": summary.train_loss,
        "validation_loss": metrics.pop("loss", None),
        "bits_per_byte": metrics.pop("bits_per_byte", None),
        "seconds": math.fsum(summary.phases.as_dict().values()),
        f"{unit}_per_s": summary.tokens_per_s / unit_tokens,
        "mfu": summary.mfu,
        **{f"validation_{name}": value for name, value in metrics.items()},
        **({"overflows": summary.overflows} if summary.overflows else {}),
        **({} if summary.weights == "trained" else {"weights": summary.weights}),
        **({} if summary.best is None else {"best_checkpoint": summary.best["checkpoint"]}),
        **_stopping(summary),
    }


def _stopping(summary: TrainSummary) -> dict[str, Any]:
    """Returns after how many steps a run stopped early, and of which step its weights are if not of the last one."""
    stopping, steps = summary.early_stopping, summary.steps
    if stopping is None:
        return {}
    planned, result = stopping.planned_steps, stopping.result_step
    early = {"stopped_early": f"step {steps:,} of {planned:,}"} if steps < planned else {}
    return early | ({"result_step": result} if result != steps else {})
