"""Arguments of ``plan`` that ask about a cluster, and the question that they come to."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.cli.arguments import located, read_recipe, workspace_of
from trainwright.cli.options import OPTIONS
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser
from trainwright.core.errors import RecipeError
from trainwright.pipeline.calibration import NOTHING, ledger_of, with_runs

if TYPE_CHECKING:
    from trainwright.pipeline.question_fields import Readers
    from trainwright.planner.evidence.finished import Ledger
    from trainwright.planner.plan.machine import Here
    from trainwright.planner.plan.question import Question
    from trainwright.spec.convnet import AnyModel

OF_TRAINING = (
    "tokens",
    "batch",
    "sequence",
    "optimizer",
    "states",
    "moments",
    "fused_loss",
    "update_in_backward",
    "paged_moments",
    "activation_offload",
    "expert_imbalance",
    "mtp",
    "recompute",
    "method",
    "task",
    "examples",
    "epochs",
    "example_tokens",
    "data_gib",
    "packing",
    "rank",
    "targets",
)
OF_CLUSTERS = (
    "precision",
    "stack",
    "layout",
    "scale_up",
    "scale_out",
    "rails",
    "cloud",
    "region",
    "price_kind",
    "price",
    "rate",
)
OF_PLANS = ("explain", "sweep", "draw", "write_recipe")
OF_SERVING = ("batch_size", "context")
"""Arguments by what they are about."""
SUFFIXES = (".yaml", ".yml")


def add_question(parser: CommandParser) -> None:
    """Everything that ``question_of`` reads."""
    run = parser.add_argument_group("a run on a cluster")
    run.add_argument(
        "--model",
        metavar="MODEL",
        help="a name (llama3-70b), a Hugging Face config.json, a recipe, or layers=32,width=4096,...",
    )
    run.add_argument(
        "--on",
        metavar="CLUSTER",
        help="nodes x devices x name: 64x8xh100-sxm, 8xa100-80gb, rtx-4090; here: this device, 4x1xhere",
    )
    add_run(run)
    run.add_argument(
        "--calibrate",
        metavar="FILE|none",
        help="measured runs to learn from: JSON, CSV or JSON lines (default: finished runs)",
    )
    machine = parser.add_argument_group("links and prices")
    machine.add_argument("--scale-up", metavar="LINK", help="another link inside nodes: pcie4, nvl72, 300GB/s")
    machine.add_argument("--scale-out", metavar="LINK", help="another network port: ib-ndr, 400Gb/s")
    machine.add_argument("--rails", metavar="N", help="network ports of a node")
    machine.add_argument("--cloud", metavar="NAMES", help="prices of these clouds alone: aws,gcp")
    machine.add_argument("--region", metavar="NAMES", help="prices in these regions alone: eu,us-east-1")
    machine.add_argument("--price-kind", metavar="KIND", help="on_demand, spot or reserved")
    machine.add_argument("--price", metavar="USD", help="dollars for a device and hour: 2.50, or h100-sxm=2.10,l4=0.7")


def add_run(run: argparse._ArgumentGroup) -> None:
    """Adds the options of a run wherever it is: one for each field of ``OF_RUN`` (``pipeline/question_fields.py``)."""
    run.add_argument("--tokens", metavar="N", help="tokens to train on: 15T (default: 20 a parameter, or --examples)")
    run.add_argument("--batch", metavar="N", help="tokens of a step: 4M; of vision, images (default: at most critical)")
    run.add_argument("--sequence", metavar="N", help="tokens of a sequence (default: at most 8192; in tuning 2048)")
    run.add_argument("--precision", metavar="DTYPE", help="bf16, fp16, fp32, tf32, fp8 or nvfp4")
    run.add_argument("--optimizer", metavar="NAME", help="adamw, muon, adafactor, sgd (with momentum) or plain-sgd")
    run.add_argument("--states", metavar="KIND", help="how trained weights are kept: fp32, mixed or pure")
    run.add_argument("--moments", metavar="DTYPE", help="of the optimizer: fp32, bf16 or int8 (default: as states)")
    run.add_argument(
        "--fused-loss",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="logits are made in chunks and never kept whole (default: in tuning)",
    )
    run.add_argument(
        "--update-in-backward",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="update each tensor as its gradient comes (steps of one micro batch; default: the stack's)",
    )
    run.add_argument(
        "--paged-moments",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="moments leave the device where it is full (bitsandbytes' paged AdamW; --moments int8: its 8-bit one)",
    )
    run.add_argument(
        "--activation-offload",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="what layers save for the backward pass waits in host memory (default: the stack's)",
    )
    run.add_argument(
        "--expert-imbalance",
        metavar="X",
        help="load of the fullest rank of experts over the mean (default: what balancing leaves)",
    )
    run.add_argument(
        "--mtp", metavar="N", help="blocks that predict further tokens (default: as the model's configuration says)"
    )
    run.add_argument(
        "--recompute", metavar="HOW", help="none, selective or full (default: the stack's, else the fastest)"
    )
    run.add_argument("--layout", metavar="LAYOUT", help="auto, or what is fixed: tp=8,compile=true; the rest is chosen")
    run.add_argument("--method", metavar="NAME", help="tune a trained model: full, lora or qlora (default: train anew)")
    run.add_argument("--task", metavar="NAME", help="classify: tune it to tell classes apart")
    run.add_argument("--examples", metavar="N", help="of the data set, in place of --tokens: 67k")
    run.add_argument("--epochs", metavar="N", help="how often examples are seen (default: 3 in tuning, 90 of images)")
    run.add_argument("--example-tokens", metavar="N", help="of an example in the mean (default: 200 in tuning)")
    run.add_argument("--data-gib", metavar="N", help="of the data set in storage (default: text and ids of its tokens)")
    run.add_argument("--packing", metavar="on|off", help="off: examples are padded, not packed (default: the stack's)")
    run.add_argument("--rank", metavar="N", help="of adapters (default: 16)")
    run.add_argument(
        "--targets", metavar="NAMES", help="attention, experts, all-linear (default) or modules: q_proj,v_proj"
    )
    run.add_argument("--stack", metavar="NAME", help="training software: torchtitan, megatron-core, ...")
    run.add_argument("--rate", metavar="FLOP/S", help="28TFLOP/s: how long it takes if each device holds that, too")


def question_of(args: argparse.Namespace) -> Question:
    """Returns the question that the arguments ask; a recipe's values stand below the arguments'.

    Raises:
        RecipeError: something is missing or unknown (with near names), or no number.
        DataError: a model's file cannot be read.
    """
    if args.on is None:
        from trainwright.hardware.catalogue.models import read_model

        if args.model is not None and Path(args.model).suffix not in SUFFIXES:
            read_model(args.model, where="--model")  # one that is unknown is told before what else is missing
        raise RecipeError("on which machines?", where="--on", expected="a cluster", fix="for example: --on 8xh100-sxm")
    if "+" in args.on and len(parts := _pool_parts(args.on)) > 1:
        raise RecipeError(
            "a plan is for one kind of device",
            where="--on",
            seen=args.on,
            fix=f"whether to use both: trainwright recommend --have {shlex.quote('+'.join(parts))} --model ...",
        )
    return _experienced(args, asked_about(args, question_fields(args), on=args.on, inputs=args.inputs))


def _pool_parts(on: str) -> list[str]:
    from trainwright.planner.search.offers import pool_parts

    return pool_parts(on)


def here_of(on: str) -> Here | None:
    """Returns this machine where the cluster is of such machines; its facts are not gathered for another."""
    from trainwright.hardware.catalogue.nodes import names_here

    if not names_here(on, where="--on"):
        return None
    from trainwright.hardware.machine.shared import kept_machine
    from trainwright.planner.plan.machine import this_machine

    return this_machine(kept_machine(Path.cwd()))


def note_broken(ledger: Ledger | None, output: Output) -> None:
    """Say which lines of a ledger were skipped."""
    for line in () if ledger is None else ledger.broken:
        output.note(f"ledger, line skipped: {line}")


def _experienced(args: argparse.Namespace, question: Question) -> Question:
    """Returns the question with the finished runs of its device and stack, unless ``--calibrate`` says otherwise."""
    if args.calibrate is not None and question.here is None:
        return question
    ledger = ledger_of(args.calibrate, workspace=workspace_of(args, name="any"))
    if ledger is None:
        return question
    from trainwright.planner.evidence.references import experienced

    note_broken(ledger, Output.of(args))
    return experienced(question, ledger)


def read_options(args: argparse.Namespace, readers: Readers) -> dict[str, Any]:
    """Returns the fields that a command's options set; each of ``readers`` has its option.

    Raises:
        RecipeError: a value that cannot be read, or is unknown.
    """
    from trainwright.pipeline.question_fields import read_fields

    attributes = {field: OPTIONS[field].removeprefix("--").replace("-", "_") for field in readers}
    return read_fields({field: getattr(args, name) for field, name in attributes.items()}, readers)


def question_fields(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the fields of a question about one cluster that a command's options set.

    Raises:
        RecipeError: a value that cannot be read, or is unknown.
    """
    from trainwright.hardware.catalogue.nodes import names_here
    from trainwright.pipeline.question_fields import QUESTION

    # ``--calibrate`` names a file of references.
    fields = read_options(args, {field: read for field, read in QUESTION.items() if field != "references"})
    of_this_machine = args.on is not None and names_here(args.on, where="--on")
    named = args.calibrate is not None and args.calibrate != NOTHING
    return with_runs(fields, Path(args.calibrate)) if named and not of_this_machine else fields


def asked_about(
    args: argparse.Namespace, fields: Mapping[str, Any], *, on: str, inputs: Sequence[str] = ()
) -> Question:
    """Returns the question about the recipe among ``inputs`` or behind ``--model``, else about the model alone.

    A batch is of tokens, of a model that sees images of images.

    Args:
        args: what the command line says.
        fields: of the question, over the recipe's.
        on: the cluster.
        inputs: recipe files and overrides, where the command takes them.

    Raises:
        RecipeError: no model, an unknown one (with near names), or one beside a recipe.
        DataError: a model's file cannot be read.
    """
    question = _asked_about(args, fields, on=on, inputs=inputs)
    if question.batch_tokens is None:
        return question
    return replace(question, batch_tokens=question.batch_tokens * question.model.batch_unit_tokens)


def with_batch_as_asked(fields: Mapping[str, Any], model: AnyModel) -> dict[str, Any]:
    """Returns a question's fields as options say them: a batch of images of a model that sees them."""
    batch = fields.get("batch_tokens")
    return {**fields} if batch is None else {**fields, "batch_tokens": int(batch) // model.batch_unit_tokens}


def _asked_about(args: argparse.Namespace, fields: Mapping[str, Any], *, on: str, inputs: Sequence[str]) -> Question:
    from trainwright.hardware.catalogue.models import read_model
    from trainwright.planner.plan.question import Question

    model, preset = args.model, vars(args).get("preset")
    if model is not None and Path(model).suffix in SUFFIXES:
        return _about_recipe(args, fields, on=on, inputs=(model, *inputs), preset=preset)
    if inputs or preset is not None:
        if model is not None:
            for name in inputs:
                if "=" not in name and Path(name).suffix not in SUFFIXES and not Path(name).exists():
                    fix = "a value with a space in it stands in quotes; no recipe is needed beside --model"
                    raise RecipeError("no such recipe", seen=repr(name), fix=fix)
            raise RecipeError("a recipe has its model", where="--model", seen=model, fix="leave one of them out")
        return _about_recipe(args, fields, on=on, inputs=inputs, preset=preset)
    if model is None:
        raise RecipeError("which model?", where="--model", fix="for example: --model llama3-70b, or give a recipe")
    refuse(args, ("step",), what="a step is of a recipe, and a model has none", fix="name a recipe: --model FILE.yaml")
    shape = read_model(model, where="--model")
    return Question(on=on, here=here_of(on), model=shape, model_name=model, **fields)


def _about_recipe(
    args: argparse.Namespace, fields: Mapping[str, Any], *, on: str, inputs: Sequence[str], preset: str | None
) -> Question:
    from trainwright.pipeline.planning import question_about, training_of

    loaded = read_recipe(inputs, preset=preset, command=args.command)
    recipe = loaded.value
    root = workspace_of(args, name=recipe.name)
    with located(loaded):
        training, _ = training_of(recipe, root=root, step=args.step)
        return question_about(training, on=on, root=root, **fields)


def command_line(
    args: argparse.Namespace, command: str, readers: Readers, changed: Mapping[str, object] | None = None
) -> str:
    """Returns the command that asks the same of ``command``, with other values of some fields of a question."""
    changed = changed or {}
    words = ["trainwright", command, *vars(args).get("inputs", ())]
    for option in ("model", "preset", "step", "workspace"):
        value = vars(args).get(option)
        words += [] if value is None else [f"--{option}", str(value)]
    asked = {each: vars(args).get(OPTIONS[each].removeprefix("--").replace("-", "_")) for each in readers}
    return shlex.join([*words, *option_words({**asked, **changed})])


def option_words(fields: Mapping[str, object]) -> list[str]:
    """Returns the options that set fields of a question, as a command line has them; None sets nothing."""
    words: list[str] = []
    for option, value in ((OPTIONS[field], value) for field, value in fields.items() if value is not None):
        flag = option if value is not False else option.replace("--", "--no-")
        words += [flag] if isinstance(value, bool) else [option, str(value)]
    return words


def refuse(args: argparse.Namespace, names: Iterable[str], *, what: str, fix: str) -> None:
    """Refuse arguments that the answer asked for has no use for.

    Raises:
        RecipeError: names the first of them that was given.
    """
    for name in names:
        value = getattr(args, name)
        if value is not None and value is not False:
            raise RecipeError(what, where=f"--{name.replace('_', '-')}", fix=fix)


def count(text: str, *, where: str) -> int:
    """``15T`` as a number; says which argument is wrong.

    Raises:
        RecipeError: no number, or below one.
    """
    from trainwright.pipeline.question_fields import count as at_least_one

    try:
        return at_least_one(text)
    except RecipeError as error:
        raise error.at(where) from error
