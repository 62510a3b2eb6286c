"""Arguments of ``plan`` that ask about a cluster, and the question that they come to."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from trainwright.cli.arguments import load_recipe, workspace_of
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser
from trainwright.core.errors import DataError, RecipeError
from trainwright.core.registry import did_you_mean
from trainwright.core.units import parse_count

if TYPE_CHECKING:
    from trainwright.planner.published.finished import Ledger
    from trainwright.planner.question import Question

OF_TRAINING = (
    "tokens", "batch", "sequence", "optimizer", "states", "moments", "fused_loss", "expert_imbalance", "mtp",
    "recompute", "method", "rank",
)  # fmt: skip
OF_CLUSTERS = ("precision", "stack", "layout", "scale_up", "scale_out", "rails", "cloud", "price_kind", "price")
OF_PLANS = ("explain", "sweep", "draw")
OF_SERVING = ("batch_size", "context")
"""Arguments by what they are about."""
NOTHING = "none"
"""``--calibrate none``: not even from finished runs."""
SUFFIXES = (".yaml", ".yml")


def add_question(parser: CommandParser) -> None:
    """Everything that ``question_of`` reads."""
    run = parser.add_argument_group("a run on a cluster")
    run.add_argument(
        "--model",
        metavar="MODEL",
        help="a name (llama3-70b), a Hugging Face config.json, a recipe, or layers=32,width=4096,...",
    )
    run.add_argument("--on", metavar="CLUSTER", help="nodes x devices x name: 64x8xh100-sxm, 8xa100-80gb, rtx-4090")
    run.add_argument("--tokens", metavar="N", help="tokens to train on: 15T (default: 20 for each parameter)")
    run.add_argument("--batch", metavar="TOKENS", help="tokens of a step: 4M (default: at most the critical batch)")
    run.add_argument("--sequence", metavar="N", help="tokens of a sequence (default: the model's, at most 8192)")
    run.add_argument("--precision", metavar="DTYPE", help="bf16, fp16, fp32, tf32, fp8 or nvfp4")
    run.add_argument("--optimizer", metavar="NAME", help="adamw, muon, adafactor or sgd")
    run.add_argument("--states", metavar="KIND", help="how trained weights are kept: fp32, mixed or pure")
    run.add_argument("--moments", metavar="DTYPE", help="of the optimizer: fp32, bf16 or int8 (default: as states)")
    run.add_argument("--fused-loss", action="store_true", help="logits are made in chunks and never kept whole")
    run.add_argument(
        "--expert-imbalance",
        type=float,
        metavar="X",
        help="load of the fullest rank of experts over the mean (default: what balancing leaves)",
    )
    run.add_argument(
        "--mtp",
        type=int,
        metavar="N",
        help="blocks that predict further tokens (default: as the model's configuration says)",
    )
    run.add_argument("--recompute", metavar="HOW", help="none, selective or full (default: the fastest that fits)")
    run.add_argument("--method", metavar="NAME", help="full, lora or qlora")
    run.add_argument("--rank", type=int, metavar="N", help="of adapters (default: 16)")
    run.add_argument("--stack", metavar="NAME", help="training software: torchtitan, megatron-core, ...")
    run.add_argument("--layout", metavar="LAYOUT",
                     help="auto, or what is fixed of it: dp_shard=64,tp=8; the rest is chosen")  # fmt: skip
    run.add_argument("--calibrate", metavar="FILE|none",
                     help="measured runs to learn from: JSON, CSV or JSON lines (default: finished runs)")  # fmt: skip
    machine = parser.add_argument_group("links and prices")
    machine.add_argument("--scale-up", metavar="LINK", help="another link inside nodes: pcie4, nvl72, 300GB/s")
    machine.add_argument("--scale-out", metavar="LINK", help="another network port: ib-ndr, 400Gb/s")
    machine.add_argument("--rails", type=int, metavar="N", help="network ports of a node")
    machine.add_argument("--cloud", metavar="NAMES", help="prices of these clouds alone: aws,gcp")
    machine.add_argument("--price-kind", metavar="KIND", help="on_demand, spot or reserved")
    machine.add_argument("--price", type=float, metavar="USD", help="dollars for a device and hour")


def question_of(args: argparse.Namespace) -> Question:
    """The question that the arguments ask; a recipe's values stand below the arguments'.

    Raises:
        RecipeError: something is missing or unknown (with near names), or no number.
        DataError: a model's file cannot be read.
    """
    from trainwright.hardware.models import read_model
    from trainwright.planner.question import Question

    if args.on is None:
        raise RecipeError("on which machines?", where="--on", expected="a cluster", fix="for example: --on 8xh100-sxm")
    if "+" in args.on:
        raise RecipeError(
            "a plan is for one kind of device", where="--on", seen=args.on,
            fix=f"whether to use both: trainwright recommend --have {args.on.replace(' ', '')} --model ...",
        )  # fmt: skip
    asked = given(args)
    recipe = _recipe_arguments(args)
    if recipe:
        return _experienced(args, Question(on=args.on, **{**recipe, **asked}))
    if args.model is None:
        raise RecipeError("which model?", where="--model", fix="for example: --model llama3-70b, or give a recipe")
    model = read_model(args.model, where="--model")
    return _experienced(args, Question(on=args.on, model=model, model_name=args.model, **asked))


def ledger_of(args: argparse.Namespace, *, workspace: Path) -> Ledger | None:
    """The finished runs to learn from: those that ``--calibrate`` names, else those of the workspace; None of none.

    Raises:
        DataError: the file that was named cannot be read, or has no run.
    """
    from trainwright.planner.published.ledger import ledgers_of

    if args.calibrate == NOTHING:
        return None
    paths = ledgers_of(workspace) if args.calibrate is None else (Path(args.calibrate),)
    if not paths:
        return None
    # Reading brings pydantic, which a plan without a ledger does not wait for.
    from trainwright.planner.published.finished import read_ledgers

    found = read_ledgers(paths)
    if args.calibrate is not None and not found.runs:
        raise DataError(
            "no finished run in this file", where=f"--calibrate {args.calibrate}",
            seen=found.broken[0] if found.broken else "nothing",
            expected="lines of a ledger.jsonl; for other runs say the machine: --on",
        )  # fmt: skip
    return found


def note_broken(ledger: Ledger | None, output: Output) -> None:
    """Say which lines of a ledger were skipped."""
    for line in () if ledger is None else ledger.broken:
        output.note(f"ledger, line skipped: {line}")


def _experienced(args: argparse.Namespace, question: Question) -> Question:
    """The question with the finished runs of its device and stack, unless ``--calibrate`` says what to learn from."""
    if args.calibrate is not None:
        return question
    ledger = ledger_of(args, workspace=workspace_of(args, name="any"))
    if ledger is None:
        return question
    from trainwright.planner.published.finished import said_of
    from trainwright.planner.published.own import finished_runs

    note_broken(ledger, Output.of(args))
    known, used = finished_runs(ledger, on=question.on, stack=question.stack)
    return replace(question, references=known, references_from=f"calibrated by {said_of(used)}") if known else question


def given(args: argparse.Namespace) -> dict[str, Any]:
    """Fields of the question that the arguments set."""
    from trainwright.planner.choose import parse_layout
    from trainwright.planner.published.report import known_runs
    from trainwright.spec import workload as words
    from trainwright.spec.device import PriceKind

    counts = {"tokens": "tokens", "batch": "batch_tokens", "sequence": "sequence_tokens"}
    found: dict[str, Any] = {
        field: count(getattr(args, name), where=f"--{name}") for name, field in counts.items() if getattr(args, name)
    }
    choices = {
        "precision": words.Precision, "optimizer": words.OptimizerName, "states": words.States,
        "moments": words.MomentDtype, "recompute": words.Recompute, "method": words.Method, "price_kind": PriceKind,
    }  # fmt: skip
    for name, literal in choices.items():
        value = getattr(args, name)
        if value is not None:
            found[name] = one_of(value, get_args(literal), where=f"--{name.replace('_', '-')}")
    plain = ("rank", "stack", "scale_up", "scale_out", "rails", "price", "expert_imbalance")
    found |= {name: getattr(args, name) for name in plain if getattr(args, name) is not None}
    if args.fused_loss:
        found["fused_loss"] = True
    if args.mtp is not None:
        found["further_layers"] = args.mtp
    if args.calibrate not in (None, NOTHING):
        found["references"] = tuple(known_runs(Path(args.calibrate)))
        software = {each.request.stack.name for each in found["references"]}
        if args.stack is None and len(software) == 1:
            found["stack"] = software.pop()
    if args.layout is not None:
        found["layout"] = parse_layout(args.layout)
    if args.cloud is not None:
        found["clouds"] = tuple(name.strip() for name in args.cloud.split(",") if name.strip())
    return found


def _recipe_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """Model and workload of the recipe that stands among the arguments or behind ``--model``, if one does."""
    if args.model is not None and Path(args.model).suffix in SUFFIXES:
        args.inputs = [args.model, *args.inputs]
    elif not args.inputs and args.preset is None:
        return {}
    elif args.model is not None:
        raise RecipeError("a recipe has its model", where="--model", seen=args.model, fix="leave one of them out")
    from trainwright.core.units import parse_duration
    from trainwright.planner.parameters import total_parameters

    recipe = load_recipe(args).value
    section = recipe.train
    model = recipe.model.spec(vocabulary=recipe.data.tokenizer.vocabulary)
    tokens = parse_duration(section.duration).tokens(
        batch_tokens=section.batch_tokens, parameters=total_parameters(model)
    )
    found: dict[str, Any] = {
        "model": model, "model_name": recipe.name, "tokens": tokens, "batch_tokens": section.batch_tokens,
        "sequence_tokens": section.sequence_tokens, "optimizer": section.optimizer.name,
        "recompute": section.recompute, "stack": "trainwright",
    }  # fmt: skip
    if section.precision != "auto":
        found["precision"] = section.precision
    return found


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
    try:
        found = parse_count(text)
    except RecipeError as error:
        raise RecipeError(error.what, where=where, seen=error.seen, expected=error.expected) from error
    if found < 1:
        raise RecipeError("must be at least 1", where=where, seen=text)
    return found


def one_of(value: str, known: tuple[str, ...], *, where: str) -> str:
    """``value``, where it is a known word; dashes and underscores are one.

    Raises:
        RecipeError: it is not; names a near one.
    """
    slug = value.replace("-", "_")
    if slug in known:
        return slug
    fix = did_you_mean(value, list(known))
    raise RecipeError("unknown value", where=where, seen=repr(value), expected=f"one of {', '.join(known)}", fix=fix)
