"""``plan --inference``: what serving a model takes and gives."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from trainwright.cli.output import Output
from trainwright.cli.plan.question import OF_PLANS, OF_TRAINING, count, refuse
from trainwright.core.errors import RecipeError, about

if TYPE_CHECKING:
    from trainwright.planner.cost.serving_memory import Serving
    from trainwright.spec.device import ClusterSpec
    from trainwright.spec.model import ModelSpec
    from trainwright.spec.stack import Stack

DEFAULT_CONTEXT = "2048"


def run(args: argparse.Namespace) -> int:
    """Estimate and print."""
    from trainwright.hardware.catalogue.models import read_model
    from trainwright.hardware.catalogue.nodes import cluster
    from trainwright.hardware.catalogue.stacks import DEFAULT, stack
    from trainwright.hardware.prices.price_list import price_of
    from trainwright.hardware.prices.unpriced import why_unpriced
    from trainwright.pipeline.question_fields import read_fields
    from trainwright.planner.cost.serving import estimate_inference
    from trainwright.render.plans.serving import show
    from trainwright.spec.convnet import transformer

    refuse(args, (*OF_TRAINING, *OF_PLANS), what="this is about training", fix="leave out --inference")
    if args.model is None or args.on is None:
        if args.model is not None:
            read_model(args.model, where="--model")  # one that is unknown is told before what else is missing
        raise RecipeError("which model, and on which machines?", fix="for example: --model llama3-8b --on h100-sxm")
    output, model = Output.of(args), read_model(args.model, where="--model")
    if not model.is_divisible:
        raise RecipeError("generation is for decoders", where="--model", seen=repr(args.model))
    model = transformer(model).deployed()
    links = read_fields({"scale_up": args.scale_up, "scale_out": args.scale_out, "rails": args.rails})
    with about("on"):
        machines = cluster(args.on, **links)
    offer = {"price_kind": args.price_kind or "on_demand", "clouds": args.cloud, "regions": args.region}
    asked = read_fields(offer | {"price": args.price})
    kind, where = asked["price_kind"], {name: asked.get(name) for name in ("clouds", "regions")}
    price = price_of(machines.device.name, kind, usd=asked.get("price"), machines=machines, **where)
    unpriced = "" if price is not None else why_unpriced(machines, kind, **where)
    serving = _serving(args, model, machines)
    software = stack(args.stack or DEFAULT, where="--stack")
    estimate = estimate_inference(model, serving, machines, price=price, stack=software)
    ways = () if estimate.fits else _ways(model, serving, machines, software)
    payload = {"inference": estimate, "serving": serving, "would_fit": ways}
    output.result(payload, lambda: show(args.model, estimate, serving, output, ways=ways, unpriced=unpriced))
    return 0 if estimate.fits else 1


def _ways(model: ModelSpec, serving: Serving, machines: ClusterSpec, software: Stack) -> tuple[str, ...]:
    """Returns changes that would make it fit, smallest first: fewer bits of a weight, more devices for a replica."""
    from trainwright.planner.cost.serving_memory import serving_memory
    from trainwright.planner.forecast.memory.table import usable_bytes

    limit = usable_bytes(machines.device)

    def fits(other: Serving) -> bool:
        return serving_memory(model, other, software).total_bytes <= limit

    ways = [f"--precision {name}" for name in ("int8", "int4") if fits(replace(serving, weights=name))]
    more = [tp for tp in (2**power for power in range(12)) if tp > serving.tp and model.heads % tp == 0]
    wide = next((tp for tp in more if fits(replace(serving, tp=tp))), None)
    return (*ways, *(() if wide is None else (f"{wide} devices for a replica",)))


def _serving(args: argparse.Namespace, model: ModelSpec, machines: ClusterSpec) -> Serving:
    """Returns the workload: half of the context is prompt; weights are shared by as few devices as hold them."""
    from trainwright.hardware.catalogue.stacks import DEFAULT, stack
    from trainwright.pipeline.question_fields import one_of
    from trainwright.planner.cost.serving_memory import Serving, WeightFormat, serving_memory
    from trainwright.planner.forecast.memory.table import usable_bytes
    from trainwright.planner.plan.layout import parse_layout

    tokens = count(args.context or DEFAULT_CONTEXT, where="--context")
    if tokens < 2:
        raise RecipeError("a prompt and an answer are two tokens at least", where="--context", seen=args.context)
    if tokens > (most := model.context_tokens) and model.kind == "decoder":
        seen, expected = f"{tokens:,} tokens", f"at most {most:,}"
        raise RecipeError("longer than the model's context", where="--context", seen=seen, expected=expected)
    with about("weights"):
        weights: Any = one_of(args.precision or "bf16", get_args(WeightFormat))
    layout = parse_layout(args.layout or "auto")
    if set(layout) - {"tp"}:
        raise RecipeError("serving is laid out by tp alone", where="--layout", seen=args.layout)
    batch = count(args.batch_size or "1", where="--batch-size")

    def of(tp: int) -> Serving:
        return Serving(prompt_tokens=tokens - tokens // 2, new_tokens=tokens // 2, batch=batch, tp=tp, weights=weights)

    if layout:
        return of(layout["tp"])
    software, limit = stack(args.stack or DEFAULT, where="--stack"), usable_bytes(machines.device)
    wide = [tp for tp in (2**power for power in range(12)) if tp <= machines.devices and model.heads % tp == 0]
    holding = [tp for tp in wide if serving_memory(model, of(tp), software).total_bytes <= limit]
    return of(min(holding, default=max(wide)))
