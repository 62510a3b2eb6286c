"""What ``import trainwright`` offers: load a recipe, plan, sweep, explain, recommend, run.

Each function does what the command of its name does and returns the nouns that the command prints.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from reprlib import repr as shown
from typing import Any

from trainwright.artifact import store
from trainwright.artifact.store import Artifact
from trainwright.core.config.load import load
from trainwright.core.environment import wait_briefly
from trainwright.core.errors import RecipeError
from trainwright.core.paths import local_path
from trainwright.hardware.catalogue.models import read_model
from trainwright.hardware.catalogue.nodes import is_this_machine, names_here
from trainwright.hardware.machine.shared import kept_machine
from trainwright.pipeline.base.keys import keys_of_base
from trainwright.pipeline.calibration import NOTHING, ledger_of, with_runs
from trainwright.pipeline.planning import plan_here, question_about, training_of
from trainwright.pipeline.presets import preset_file
from trainwright.pipeline.question_fields import OF_RUN, SEARCH, read_fields, text
from trainwright.pipeline.several.together import run_together
from trainwright.planner.evidence.finished import Ledger
from trainwright.planner.evidence.references import experienced
from trainwright.planner.explain.formula import Explanation
from trainwright.planner.explain.registry import explain as explained
from trainwright.planner.plan.cluster import Planned, planned
from trainwright.planner.plan.machine import this_machine
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.rankable import defaults_on, ranked_ways
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.plan.sweep import Sweep, parse_sweep
from trainwright.planner.plan.sweep import sweep as sweep_of
from trainwright.planner.plan.ways import with_ways
from trainwright.planner.search.ranking import Goals, Recommendation
from trainwright.render.notebook import in_notebook, show_page
from trainwright.render.watching import watching
from trainwright.spec.convnet import ConvNetSpec
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe


def load_recipe(
    *files: str | Path,
    preset: str | None = None,
    overrides: str | Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Recipe:
    """Returns the recipe of YAML or JSON files, later ones over earlier ones.

    Args:
        files: paths; ``~`` is the home directory.
        preset: ready-made settings below the files, by name; None: none.
        overrides: ``train.optimizer.lr=1e-3``, one or several, over the files.
        environ: variables ``TRAINWRIGHT_TRAIN__DURATION``, between files and overrides; none are read by default.

    Raises:
        RecipeError: an unknown preset, or an argument of another kind.
        RecipeErrors: everything that is wrong, one line each.
        DataError: the model that ``model.init_from`` names cannot be read, and the recipe does not say its shape.
    """
    if preset is not None:
        _refuse_others(preset, str, field="preset", expected="a name")
    below = None if preset is None else preset_file(preset)
    paths = [local_path(str(path)) for path in files]
    several = [overrides] if isinstance(overrides, str) else overrides
    _refuse_others(several, (list, tuple), field="overrides", expected="key=value")
    for each in several:
        _refuse_others(each, str, field="overrides", expected="key=value")
    return load(Recipe, files=paths, preset=below, overrides=several, environ=environ or {}, beneath=keys_of_base).value


def plan(
    what: Recipe | ModelSpec | ConvNetSpec | str,
    *,
    on: str | None = None,
    tokens: int | str | None = None,
    step: str | None = None,
    workspace: str | Path | None = None,
    calibrate: str | Path | None = None,
    **options: Any,
) -> Plan:
    """Returns whether a run fits, how long it takes and what it costs.

    Args:
        what: a recipe, a model, or a model's name (``llama3-70b``), its ``config.json`` or its numbers.
        on: a cluster (``64x8xh100-sxm``, or ``4x1xhere`` of machines like this one); None: this machine, for a recipe.
        tokens: how many to train on (``"15T"``); None: the recipe's, or 20 for each parameter.
        step: which training of a recipe with a list of steps; None: the only one.
        workspace: whose machine record, dataset and finished runs are looked at; None: ``runs/<name of the recipe>``.
        calibrate: a file of measured runs to learn from, of this machine a ledger; ``"none"``: not even from finished
            runs; None: from the workspace's.
        options: further fields of a question (``pipeline/question_fields.py``), as numbers or as the command takes
            them: ``sequence_tokens="8k"``, ``layout={"tp": 8}``, ...

    Raises:
        RecipeError: an unknown model, device, step or option, several steps that train, or a run that cannot be.
        RecipeErrors: everything that is wrong with a recipe on any machine.
        DataError: a model's file cannot be read, or a corpus whose epochs are asked for.
    """
    fields = _fields(options | {"tokens": tokens}, on=on, step=step, calibrate=calibrate)
    if isinstance(what, Recipe) and (on is None or (is_this_machine(on) and not fields)):
        return _plan_here(what, on=on, step=step, workspace=workspace, calibrate=calibrate, fields=fields)
    if on is None:
        raise TypeError("plan() needs on=..., a cluster, for a model")
    return with_ways(_on_cluster(what, on=on, step=step, workspace=workspace, calibrate=calibrate, fields=fields)).plan


def sweep(
    what: Recipe | ModelSpec | ConvNetSpec | str,
    values: str,
    *,
    on: str,
    tokens: int | str | None = None,
    step: str | None = None,
    workspace: str | Path | None = None,
    calibrate: str | Path | None = None,
    **options: Any,
) -> Sweep:
    """Returns a plan for each value of one thing: how layout, time and cost follow it.

    Args:
        what: as ``plan`` takes it.
        values: what is varied, as ``plan --sweep`` takes it: ``"nodes=1,2,4,...,64"``, ``"scale_out=100Gb/s,400Gb/s"``.
        on: the cluster.
        tokens: as ``plan`` takes it, as all that follow.
        step: which training of a recipe.
        workspace: whose finished runs are learnt from.
        calibrate: measured runs.
        options: further fields of a question.

    Raises:
        RecipeError: as ``plan``; or nothing of that name can be varied.
        DataError: as ``plan``.
    """
    read_fields({"sweep": values}, {"sweep": text})
    fields = _fields(options | {"tokens": tokens}, on=on, step=step, calibrate=calibrate)
    question = _question_on(what, on=on, step=step, workspace=workspace, calibrate=calibrate, fields=fields)
    return sweep_of(question, *parse_sweep(values))


def explain(
    what: Recipe | ModelSpec | ConvNetSpec | str,
    name: str,
    *,
    on: str,
    tokens: int | str | None = None,
    step: str | None = None,
    workspace: str | Path | None = None,
    calibrate: str | Path | None = None,
    **options: Any,
) -> Explanation:
    """Returns the formula behind a number of a plan, with the numbers that were put in.

    Args:
        what: as ``plan`` takes it.
        name: of the number, as ``plan --explain`` takes it: ``"memory.activations"``, ``"time.forward"``.
        on: the cluster.
        tokens: as ``plan`` takes it, as all that follow.
        step: which training of a recipe.
        workspace: whose finished runs are learnt from.
        calibrate: measured runs.
        options: further fields of a question.

    Raises:
        RecipeError: as ``plan``; or nothing of that name is explained.
        DataError: as ``plan``.
    """
    read_fields({"explain": name}, {"explain": text})
    fields = _fields(options | {"tokens": tokens}, on=on, step=step, calibrate=calibrate)
    return explained(_on_cluster(what, on=on, step=step, workspace=workspace, calibrate=calibrate, fields=fields), name)


def _fields(
    options: Mapping[str, Any], *, on: str | None, step: str | None, calibrate: str | Path | None
) -> dict[str, Any]:
    """Returns the fields of a question, with the measured runs that a file holds of another machine."""
    fields = read_fields(options)
    read_fields({"on": on, "step": step}, {"on": text, "step": text})
    if calibrate is None:
        return fields
    _refuse_others(calibrate, (str, Path), field="calibrate", expected="a file of measured runs, or none")
    if "references" in fields:
        raise RecipeError("two answers to one question", field="calibrate", seen="`references` too", expected="one")
    of_another = on is not None and not names_here(on)
    return with_runs(fields, local_path(str(calibrate))) if of_another and calibrate != NOTHING else fields


def _plan_here(
    recipe: Recipe,
    *,
    on: str | None,
    step: str | None,
    workspace: str | Path | None,
    calibrate: str | Path | None,
    fields: Mapping[str, Any],
) -> Plan:
    if fields:
        raise TypeError("a recipe is planned as it stands, on this machine; name it, on='here', to change the question")
    root = _root(workspace, recipe.name)
    training, _ = training_of(recipe, root=root, step=step, option="step=")
    known = None if calibrate is None else ledger_of(_named(calibrate), workspace=root) or Ledger()
    return plan_here(training, root=root, ledger=known)


def _on_cluster(what: Recipe | ModelSpec | ConvNetSpec | str, **asked: Any) -> Planned:
    return planned(scenario_of(_question_on(what, **asked)))


def _question_on(
    what: Recipe | ModelSpec | ConvNetSpec | str,
    *,
    on: str,
    step: str | None,
    workspace: str | Path | None,
    calibrate: str | Path | None,
    fields: Mapping[str, Any],
) -> Question:
    """Returns the question with the finished runs of the workspace, where no others are named."""
    question = _asked(what, on=on, step=step, workspace=workspace, fields=fields)
    if "references" in fields or (calibrate is not None and question.here is None):
        return question
    root = _root(workspace, what.name if isinstance(what, Recipe) else "any")
    known = ledger_of(None if calibrate is None else _named(calibrate), workspace=root)
    return question if known is None else experienced(question, known)


def _named(calibrate: str | Path) -> str | Path:
    return calibrate if calibrate == NOTHING else local_path(str(calibrate))


def recommend(
    model: Recipe | ModelSpec | ConvNetSpec | str,
    *,
    tokens: int | str | None = None,
    step: str | None = None,
    workspace: str | Path | None = None,
    budget_usd: float | str | None = None,
    deadline_s: float | str | None = None,
    have: str | None = None,
    have_usd_per_device_hour: float | str | None = None,
    clouds: str | Sequence[str] | None = None,
    devices: str | Sequence[str] | None = None,
    price_kinds: str | Sequence[str] | None = None,
    most_devices: int | str | None = None,
    price: str | Mapping[str, float] | None = None,
    **options: Any,
) -> Recommendation:
    """Returns the ways to train a model, ranked by time and dollars.

    Args:
        model: a recipe, a model, or a model's name, its ``config.json`` or its numbers.
        tokens: how many to train on (``"1T"``); None: the recipe's, or 20 for each parameter.
        step: which training of a recipe with a list of steps; None: the only one.
        workspace: whose dataset tells how long a recipe's epochs are; None: ``runs/<name of the recipe>``.
        budget_usd: what the run may cost (``"50k$"``).
        deadline_s: how long it may take: seconds, or a text with its unit (``"30d"``).
        have: clusters that are there already: ``8xa100-80gb+8xh100-sxm``.
        have_usd_per_device_hour: what an hour of a device of those costs; None: nothing.
        clouds: only prices of these (``"aws,gcp"``, or a list).
        devices: only these, as ``clouds``.
        price_kinds: only these of ``on_demand``, ``spot`` and ``reserved``, as ``clouds``.
        most_devices: of one run; None: 16,384, and one node where adapters are trained.
        price: dollars for an hour by device (``"h100-sxm=2.10"``, or a mapping), in place of the price lists'.
        options: further fields (``OF_RUN`` and ``SEARCH`` of ``pipeline/question_fields.py``), as ``plan`` takes them.

    Raises:
        RecipeError: an unknown model, device, cloud, step or option, several steps that train, or a run that cannot be.
        RecipeErrors: everything that is wrong with a recipe on any machine.
        DataError: as ``plan``.
    """
    bounds = read_fields(
        {
            "budget_usd": budget_usd,
            "deadline_s": deadline_s,
            "have": have,
            "have_usd_per_device_hour": have_usd_per_device_hour,
            "clouds": clouds,
            "devices": devices,
            "price_kinds": price_kinds,
            "most_devices": most_devices,
            "price": price,
            **{name: options.pop(name) for name in SEARCH if name in options},
        },
        SEARCH,
    )
    goals = Goals(budget_usd=bounds.pop("budget_usd", None), deadline_s=bounds.pop("deadline_s", None))
    fields, pool = read_fields(options | {"tokens": tokens}, OF_RUN), bounds.pop("have", ())
    on, fields = defaults_on(pool, fields), {"layout": {}, **fields}  # of many clusters none is a recipe's own
    question = _asked(model, on=on, step=step, workspace=workspace, fields=fields)
    return ranked_ways(question, pool, goals=goals, **bounds)[1]


def _asked(
    what: Recipe | ModelSpec | ConvNetSpec | str,
    *,
    on: str,
    step: str | None,
    workspace: str | Path | None,
    fields: Mapping[str, Any],
) -> Question:
    """Returns the question about a training of a recipe, or about a model."""
    read_fields({"step": step}, {"step": text})
    if isinstance(what, Recipe):
        root = _root(workspace, what.name)
        training, _ = training_of(what, root=root, step=step, option="step=")
        return question_about(training, on=on, root=root, **fields)
    if step is not None:
        raise TypeError("step= names a step of a recipe, and a model has none")
    return _question(what, on=on, **fields)


def run(
    recipe: Recipe, *, workspace: str | Path | None = None, upto: str | None = None, progress: bool = True
) -> dict[str, Artifact]:
    """Makes every artefact of a recipe that is not there yet, and returns all by name.

    Worker processes import the caller's file: call it under ``if __name__ == "__main__":``; a notebook need not.

    Args:
        recipe: what to make.
        workspace: where artefacts are kept; None: ``runs/<name of the recipe>``.
        upto: the last stage, such as ``"evaluate"``; None: all of them.
        progress: whether to show how far it is: on standard error, in a notebook below the cell, where the losses
            are drawn too and the page of the report is shown at the end.

    Raises:
        RecipeError: this is no recipe.
        TrainwrightError: a stage failed; what was finished before is kept.
    """
    _refuse_others(recipe, Recipe, field="recipe", expected="a Recipe, read by load_recipe(FILE)")
    root = _root(workspace, recipe.name)
    wait_briefly(os.environ)
    with watching(wanted=progress) as listeners:
        made = run_together(recipe, root=root, upto=upto, listeners=listeners)
    if progress and in_notebook():
        for page in (each.file("report.html") for each in made.values() if each.manifest.kind == "page"):
            show_page(page)
    return made


def open_artifact(path: str | Path) -> Artifact:
    """Returns one artefact of a workspace.

    Raises:
        DataError: there is no manifest, it is damaged, or it is of another format.
    """
    return store.open_artifact(local_path(str(path)))


def _root(workspace: str | Path | None, name: str) -> Path:
    if workspace is None:
        return Path("runs") / name
    _refuse_others(workspace, (str, Path), field="workspace", expected="a path")
    return local_path(str(workspace))


def _refuse_others(value: object, kinds: type | tuple[type, ...], *, field: str, expected: str) -> None:
    if not isinstance(value, kinds):
        raise RecipeError("not of the right kind", field=field, seen=shown(value), expected=expected)


def _question(model: ModelSpec | ConvNetSpec | str, *, on: str, **options: Any) -> Question:
    _refuse_others(model, (str, ModelSpec, ConvNetSpec), field="model", expected="a name or a ModelSpec")
    name = model if isinstance(model, str) else ""
    here = this_machine(kept_machine(Path.cwd())) if names_here(on) else None
    shape = read_model(model) if isinstance(model, str) else model
    return Question(model=shape, model_name=name, on=on, here=here, **options)
