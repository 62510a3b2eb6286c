"""What to type after a plan: the change that makes it fit, the run, its recipe, or what else it could be run on."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli.arguments import read_recipe
from trainwright.cli.plan.question import SUFFIXES, command_line, option_words, with_batch_as_asked
from trainwright.core.errors import MachineError, RecipeError

if TYPE_CHECKING:
    from trainwright.planner.plan.cluster import Planned
    from trainwright.planner.plan.question import Question
    from trainwright.spec.plan import Plan

OF_METHODS = {"lora": "train.method.name=lora", "qlora": "train.method.name=lora train.method.frozen=nf4"}
"""Methods of plans as a recipe writes them."""
ADAPTER_KEYS = {"targets": "train.method.targets=[{}]", "rank": "train.method.rank={}"}
"""Sizes of adapters as a recipe writes them."""
PORT = 29400
"""Where hosts meet in a command that is offered, as in the documentation."""


def following(args: argparse.Namespace, question: Question, planned: Planned) -> str:
    """Returns the command to type after the plan of a run on a cluster; empty where there is none to offer."""
    from trainwright.pipeline.question_fields import OF_RUN, QUESTION

    plan = planned.plan
    if not plan.estimate.fits:
        fields = with_batch_as_asked(planned.changes[0].fields if planned.changes else {}, plan.model)
        if fields:
            return _changed(args, question, fields)
        return _priced(args) if args.model is None else command_line(args, "recommend", OF_RUN)
    if args.write_recipe is not None:
        return run_line(args, [str(args.write_recipe)], nodes=plan.cluster.nodes)
    recipe = question.workload is not None
    line = _run_as_planned(args, question, plan) if recipe else _recipe_line(args, plan)
    if line:
        return line
    if args.model is None:
        return _priced(args)
    # Of what other software trains this project has no command: where nobody said yet what is paid, that is next.
    if _is_bought(args):
        return f"{command_line(args, 'plan', QUESTION, {'on': args.on})} --json > plan.json"
    return f"{command_line(args, 'recommend', OF_RUN)}{_or_packed(plan)}"


def _priced(args: argparse.Namespace) -> str:
    """Returns the command that says what to train a recipe on; empty where it is more than one file."""
    alone = len(args.inputs) == 1 and args.preset is None and args.step is None
    return shlex.join(["trainwright", "recommend", "--model", args.inputs[0]]) if alone else ""


def _changed(args: argparse.Namespace, question: Question, fields: Mapping[str, object]) -> str:
    """Returns the command that plans the question with a change; a recipe's adapters are changed by its keys."""
    from trainwright.pipeline.question_fields import QUESTION

    keys, fields = _of_adapters(args, question, fields)
    args = argparse.Namespace(**{**vars(args), "inputs": [*vars(args).get("inputs", ()), *keys]})
    return f"{command_line(args, 'plan', QUESTION, {'on': args.on, **fields})}{_as_keys(question, fields)}"


def _of_adapters(
    args: argparse.Namespace, question: Question, fields: Mapping[str, object]
) -> tuple[list[str], Mapping[str, object]]:
    """Returns the keys by which a recipe's adapters are changed, and the fields that are no such keys."""
    if question.workload is None or args.method is not None:
        return [], fields
    keys = [key.format(fields[field]) for field, key in ADAPTER_KEYS.items() if field in fields]
    return keys, {field: value for field, value in fields.items() if field not in ADAPTER_KEYS}


def asked_by(args: argparse.Namespace, question: Question, planned: Planned) -> tuple[str, ...]:
    """Returns for each change the keys and options that ask for it beside those of the command; empty where none do."""
    model, asked = planned.plan.model, []
    for change in planned.changes:
        keys, fields = _of_adapters(args, question, with_batch_as_asked(change.fields, model))
        asked.append(shlex.join([*keys, *option_words(fields)]))
    return tuple(asked)


def _as_keys(question: Question, fields: Mapping[str, object]) -> str:
    """Returns the method of a change as the keys of a recipe, as a comment; empty where none is planned."""
    keys = OF_METHODS.get(str(fields.get("method")), "") if question.workload is not None else ""
    return keys and f"  # in the recipe: {keys}"


def _or_packed(plan: Plan) -> str:
    """Returns the option of those whose software packs, as a comment; empty where nothing was assumed of it."""
    from trainwright.core.units import format_factor
    from trainwright.planner.explain.swing import FIRST, largest

    packed = (each for each in largest(plan, 2 * FIRST) if each.assumption.key == "usual_packing")
    factor = next((each.factor for each in packed), 1.0)
    return "" if factor == 1.0 else f"  # --packing on, where your software packs: time x {format_factor(factor)}"


def offered(args: argparse.Namespace, question: Question, planned: Planned) -> str:
    """Returns the change that makes an uncertain plan sure or a sure one faster, and its command; empty without one."""
    from trainwright.core.units import format_factor
    from trainwright.planner.plan.layout import otherwise

    plan = planned.plan
    if not plan.estimate.fits or not planned.changes:
        return ""
    change = planned.changes[0]
    divided = otherwise(plan.parallel, change.best.parallel, named=change.name)
    what = f"{change.name}{' and ' * bool(divided)}{divided}, {format_factor(change.slowdown)} x the device-time"
    does = "surely fits with" if plan.estimate.fit == "uncertain" else "faster with"
    return f"{does} {what}: {_changed(args, question, with_batch_as_asked(change.fields, plan.model))}"


def run_line(args: argparse.Namespace, inputs: Sequence[str], *, nodes: int = 1) -> str:
    """Returns the command that trains a recipe, in the workspace that is asked for; empty without a recipe.

    On several hosts it is the first one's, with a comment about the others.
    """
    if not inputs and args.preset is None:
        return ""
    line = _of_recipe(args, "run", inputs)
    if nodes == 1:
        return line
    meeting = f"--nodes {nodes} --node-rank 0 --rendezvous HOST:{PORT}"
    return f"{line} {meeting}  # on the first of {nodes} hosts, HOST; on each other its --node-rank"


def _of_recipe(args: argparse.Namespace, command: str, inputs: Sequence[str]) -> str:
    """Returns a command about a recipe with the preset, the workspace and the step that are asked for."""
    words = ["trainwright", command, *inputs]
    for option in ("preset", "workspace", *(("step",) if command == "plan" else ())):
        value = vars(args).get(option)
        words += [] if value is None else [f"--{option}", str(value)]
    return shlex.join(words)


def changed_line(args: argparse.Namespace, plan: Plan) -> str:
    """Returns the command that plans a recipe with the smallest change after which it fits here; empty without one."""
    keys = next((each.overrides for each in plan.rejected), ())
    return _of_recipe(args, "plan", [*args.inputs, *keys]) if keys else ""


def write_recipe(args: argparse.Namespace, question: Question, plan: Plan) -> None:
    """Writes the recipe that trains what was planned of a model.

    Raises:
        RecipeError: a recipe is there already, or none says what was planned.
    """
    from trainwright.pipeline.recipes.writing import write_new

    path: Path = args.write_recipe
    if path.suffix not in (*SUFFIXES, ".json"):
        expected = ".yaml or .json"
        raise RecipeError("a recipe has another ending", where="--write-recipe", seen=str(path), expected=expected)
    if question.workload is not None:
        raise RecipeError("what is planned is a recipe already", where="--write-recipe", fix="leave it out")
    text = _recipe_text(args, plan)
    if text is None:
        raise RecipeError(
            "no recipe says what was planned",
            where="--write-recipe",
            expected="a decoder without experts, all of whose shape is in its sizes, trained from the start in fp32 "
            "states, without padding",
        )
    try:
        write_new(path, text)
    except FileExistsError as error:
        fix = "name another one, or remove it"
        raise RecipeError("this file is there already", where="--write-recipe", seen=str(path), fix=fix) from error
    except OSError as error:
        raise MachineError("cannot write the recipe", where=path, seen=error.strerror or str(error)) from error


def _recipe_text(args: argparse.Namespace, plan: Plan) -> str | None:
    from trainwright.render.planned_recipe import CORPUS, recipe_of
    from trainwright.render.recipe import yaml_lines

    if args.method is not None or args.task is not None:
        return None
    tree = recipe_of(plan, name=_name(args))
    if tree is None:
        return None
    if args.write_recipe.suffix == ".json":  # which has no comments
        return f"{json.dumps(tree, indent=2, ensure_ascii=False)}\n"
    head = f"# As planned for {plan.cluster.name}. Name your data in place of {CORPUS}: trainwright config explain data"
    return "\n".join((head, *(line for line, _ in yaml_lines(tree)), ""))


def _name(args: argparse.Namespace) -> str:
    """Returns a name for the run of a model: that of the catalogue, or of its file."""
    text = str(args.model)
    if "=" in text:
        return "model"
    file = Path(text)
    # A dot of a catalogue's name, as in tinyllama-1.1b, begins no suffix.
    name = file.stem if file.suffix in (".json", *SUFFIXES) else file.name
    return name if name != "config" else "model"


def _recipe_line(args: argparse.Namespace, plan: Plan) -> str:
    """Returns the command that writes a recipe of the plan, where one says it."""
    from trainwright.pipeline.question_fields import QUESTION
    from trainwright.render.trained_here import is_trained_here

    if args.method is not None or args.task is not None or not is_trained_here(plan):
        return ""
    line = command_line(args, "plan", QUESTION, {"on": args.on})
    return f"{line} --write-recipe {shlex.quote(f'{_name(args)}.yaml')}"


def _run_as_planned(args: argparse.Namespace, question: Question, plan: Plan) -> str:
    """Returns the command that trains a recipe as it was planned, where the trainer does all of it."""
    from trainwright.render.planned_recipe import overrides_of

    given = args.model is not None and Path(args.model).suffix in SUFFIXES
    inputs = [args.model, *args.inputs] if given else list(args.inputs)
    recipe = read_recipe(inputs, preset=args.preset, command="run").value
    if question.workload is None or args.method is not None or args.task is not None:
        return ""
    overrides = overrides_of(plan, recipe, question.workload, precision=args.precision is not None)
    return "" if overrides is None else run_line(args, [*inputs, *overrides], nodes=plan.cluster.nodes)


def _is_bought(args: argparse.Namespace) -> bool:
    """Returns whether it was said where the devices come from, so that nobody asks again what to train on."""
    return any(vars(args).get(name) is not None for name in ("price", "cloud", "price_kind", "region"))
