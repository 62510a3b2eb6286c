"""A recipe's plan: this machine, its finished runs and the dataset are gathered here, for command and Python."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from trainwright.artifact.store import Artifact, open_artifact
from trainwright.artifact.workspace import Workspace
from trainwright.core.errors import RecipeError, RecipeErrors, TrainwrightError
from trainwright.core.registry import load
from trainwright.hardware.catalogue.nodes import is_this_machine, names_here
from trainwright.hardware.catalogue.stacks import OURS
from trainwright.hardware.machine.record import FILE, Machine, read_machine
from trainwright.hardware.machine.shared import kept_machine
from trainwright.pipeline.facts import known_facts
from trainwright.pipeline.graph import STAGES, Step, upstream
from trainwright.pipeline.preflight import problems
from trainwright.pipeline.runner import address, left_here
from trainwright.pipeline.steps import named, steps
from trainwright.planner.counts.layouts import FixedLayout
from trainwright.planner.evidence.finished import Ledger, read_ledgers
from trainwright.planner.evidence.ledger import ledgers_of
from trainwright.planner.plan.machine import this_machine
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.workload import resolve
from trainwright.spec.convnet import counted, transformer
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.layout import LayoutSection
from trainwright.spec.sections.train import TrainExec
from trainwright.spec.workload import DatasetFacts, ParallelPlan


def training_of(
    recipe: Recipe, *, root: Path, step: str | None, option: str = "--step "
) -> tuple[Step, tuple[TrainwrightError, ...]]:
    """Returns the training that is planned, and what only this machine lacks for running it.

    Its recipe is the one that it is planned by, its inputs are where earlier runs left them.

    Args:
        recipe: with its list of steps.
        root: its workspace, which need not exist.
        step: which training; None: the only one.
        option: how the caller lets a user write the step's name, for errors.

    Raises:
        RecipeError: there is no such training.
        RecipeErrors: what is wrong with the recipe on any machine.
        DataError: an artefact that an earlier run left cannot be opened.
    """
    line = steps(recipe)
    known = problems(line, line, {}, load_torch=False)
    refusals = [problem for problem in known if isinstance(problem, RecipeError)]
    if refusals:
        raise RecipeErrors(refusals)
    training = named(recipe, stage="train", step=step, option=option)
    there = _left(training, line, root=root, roles=("base", "dataset"))
    paths = {role: artifact.path for role, artifact in there.items()}
    settled = STAGES["plan"].settled(training.recipe, there)
    return replace(training, recipe=settled, inputs={**training.inputs, **paths}), known


def _left(step: Step, line: Iterable[Step], *, root: Path, roles: Iterable[str] | None = None) -> dict[str, Artifact]:
    """Returns the inputs of a step, or those of these roles, that are there or that earlier runs left."""
    artifact_by_role: dict[str, Artifact] = {}
    for role, source in step.inputs.items():
        if roles is not None and role not in roles:
            continue
        if isinstance(source, Path):
            artifact_by_role[role] = open_artifact(source)
            continue
        maker = upstream(line, source)[-1]
        inputs = _left(maker, line, root=root)
        if inputs.keys() == maker.inputs.keys():
            artifact = left_here(maker.stage, maker.recipe, inputs, root=root)
            artifact_by_role |= {} if artifact is None else {role: artifact}
    return artifact_by_role


def machine_of(recipe: Recipe, *, root: Path) -> Machine:
    """Returns the record in this workspace, else facts with what was measured on this machine for another one, if any.

    Raises:
        DataError: the record is damaged.
    """
    artifact = Workspace(root).find("doctor", address(STAGES["doctor"], recipe, {}, root).fingerprint)
    if artifact is None:
        return kept_machine(root)
    artifact.verify()
    return read_machine(artifact.file(FILE))


def plan_here(training: Step, *, root: Path, ledger: Ledger | None = None) -> Plan:
    """Returns the plan that training on this machine would execute.

    Args:
        training: one training (``training_of``).
        root: its workspace, which need not exist.
        ledger: finished runs to learn from; None: those of the workspace and of the ones beside it.

    Raises:
        RecipeError: an impossible workload, or an unknown device to price.
        MachineError: CUDA is asked for and not there.
        DataError: a record, the dataset or a ledger is damaged, or neither dataset nor corpus tells an epoch's length.
    """
    known = read_ledgers(ledgers_of(root)) if ledger is None else ledger
    return _built(training.recipe, machine_of(training.recipe, root=root), known_facts(training, {}), known)


def _built(recipe: Recipe, machine: Machine, facts: DatasetFacts, ledger: Ledger) -> Plan:
    plan: Plan = load("trainwright.stages.plan:build_plan", kind="stage")(recipe, machine, facts, ledger)
    return plan


def question_about(training: Step, *, on: str, root: Path, **options: Any) -> Question:
    """Returns the question what a training is like on a cluster.

    What ``train.exec`` says is about this machine, and followed where the cluster is of such machines; its layout is
    followed on any cluster of as many devices as it has ranks.

    Args:
        training: one training (``training_of``).
        on: the cluster: ``8xh100-sxm``, ``4x1xhere``.
        root: the recipe's workspace.
        options: fields of the question, over the recipe's; with a ``layout``, empty too, the recipe's is not followed.

    Raises:
        RecipeError: an impossible workload, or an option that a question has not.
        MachineError: CUDA is asked for and not there.
        DataError: as ``plan_here``.
    """
    recipe, facts = training.recipe, known_facts(training, {})
    section, how = recipe.train, recipe.train.exec
    fields: dict[str, Any] = {
        "model": counted(recipe.model_spec(vocabulary=facts.vocabulary)),
        "model_name": recipe.name,
        "stack": OURS,
        "kernels": how.kernels,
        "precision": None if section.precision == "auto" else section.precision,
        "unmeasured": {kind: name for kind, name in recipe.unmeasured.items() if kind not in options},
    }
    if names_here(on):
        machine = machine_of(recipe, root=root)
        local = _built(recipe, machine, facts, Ledger())
        fields |= {"workload": local.workload, "precision": local.workload.precision}
        fields["here"] = this_machine(
            machine,
            wanted=how.device,
            threads=how.threads,
            checkpoint_every_s=how.checkpoint_every,
        )
        layout = FixedLayout(compile=True) if local.parallel.compile else FixedLayout()
        if how.micro_batch != "auto" and is_this_machine(on):
            layout["micro_batch"] = local.parallel.micro_batch_sequences
    else:
        fields["workload"] = resolve(recipe, facts, precision=fields["precision"] or "bf16")
        layout = FixedLayout()
    question = Question(on=on, **{**fields, **options})
    if "layout" not in options and _covers(how, question.cluster().devices):
        if not options.keys() & {"batch_tokens", "sequence_tokens"}:  # of which the planner's own check is
            _check(how, question)
        layout |= asked_layout(how)
    return replace(question, layout=layout | question.layout)


def _covers(how: TrainExec, devices: int) -> bool:
    """Returns whether a recipe's layout is one of equal ranks, as many as there are devices."""
    asked = how.layout.parallel() if isinstance(how.layout, LayoutSection) else ParallelPlan()
    return devices == asked.ranks > 1 and not asked.shares


def _check(how: TrainExec, question: Question) -> None:
    """Refuses a recipe's layout that cannot run on a cluster, by its key in the recipe."""
    assert isinstance(how.layout, LayoutSection)
    assert question.workload is not None
    sequences = 1 if how.micro_batch == "auto" else how.micro_batch
    asked = replace(how.layout.parallel(), micro_batch_sequences=sequences)
    problems = asked.problems(transformer(question.model), question.workload, question.cluster())
    if problems:
        raise RecipeError(
            "this layout cannot run: {reasons}",
            where="train.exec.layout",
            fix="plan another one: --layout auto",
            reasons="; ".join(problems),
        )


def asked_layout(how: TrainExec) -> FixedLayout:
    """Returns what a recipe fixes of its layout, its micro batch too."""
    layout = FixedLayout()
    if isinstance(how.layout, LayoutSection):
        asked, names = how.layout.parallel(), (name for name in LayoutSection.model_fields if name != "shares")
        layout |= cast("FixedLayout", {name: getattr(asked, name) for name in names})
    if how.micro_batch != "auto":
        layout["micro_batch"] = how.micro_batch
    return layout
