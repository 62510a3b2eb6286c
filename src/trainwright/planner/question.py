"""What a user asks of a cluster, in the user's words; and the scenario that it comes to, every default said.

``Question`` holds texts and numbers as they were given, so that one of them can be varied (``planner.sweep``);
``resolve`` makes of it what the prediction needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trainwright.core.errors import RecipeError
from trainwright.core.units import format_count
from trainwright.hardware.clouds import cloud
from trainwright.hardware.nodes import cluster
from trainwright.hardware.prices import price_list
from trainwright.hardware.stacks import DEFAULT, stack
from trainwright.planner.adapters import adaptable
from trainwright.planner.batches import divisible
from trainwright.planner.calibration import Reference
from trainwright.planner.parameters import total_parameters
from trainwright.planner.run import RunSettings
from trainwright.planner.scaling_laws import critical_batch_tokens
from trainwright.spec.convnet import ConvNetSpec
from trainwright.spec.device import ClusterSpec, DeviceSpec, Price, PriceKind
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import Assumption, Origin
from trainwright.spec.stack import Stack
from trainwright.spec.workload import (
    STAGE_WASTE,
    Adapter,
    Method,
    MomentDtype,
    OptimizerName,
    Precision,
    Recompute,
    States,
    Workload,
    stage_waste,
)

DEFAULT_SEQUENCE_TOKENS = 8192
RATE_NAMES: Mapping[str, str] = {"nvfp4": "fp4"}
"""Precisions whose rate stands under another name in a device's file."""
TOKENS_PER_PARAMETER = 20
ADAPTER_TOKENS = 10_000_000
LARGE_PARAMETERS = 1e11
BATCH_CEILING_TOKENS, LARGE_BATCH_CEILING_TOKENS = 1 << 22, 1 << 24
"""Of published runs: 4 M tokens for Llama 2 of all sizes (arXiv 2307.09288, section 2.2), 16 M for Llama 3 405B (arXiv
2407.21783, table 4)."""
IMAGES = 90 * 1_281_167
IMAGES_PER_DEVICE, MOST_IMAGES = 32, 8192
OPTIONS = {
    "sequence_tokens": "--sequence", "batch_tokens": "--batch", "steps": "--tokens",
    "expert_imbalance": "--expert-imbalance",
}  # fmt: skip
"""What sets the fields of a workload that its problems name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A run on a cluster, as asked; None: to be chosen.

    ``on`` is a cluster in one word (``64x8xh100-sxm``), ``layout`` what is fixed of the parallel layout by name
    (``{"tp": 8}``); ``price`` dollars per device and hour in place of the price lists'.
    """

    model: ModelSpec | ConvNetSpec
    on: str
    model_name: str = ""
    tokens: int | None = None
    batch_tokens: int | None = None
    sequence_tokens: int | None = None
    precision: Precision | None = None
    optimizer: OptimizerName = "adamw"
    states: States | None = None
    moments: MomentDtype | None = None
    recompute: Recompute | None = None
    method: Method = "full"
    rank: int = 16
    stack: str = DEFAULT
    layout: Mapping[str, int | str] = field(default_factory=dict)
    scale_up: str | None = None
    scale_out: str | None = None
    rails: int | None = None
    clouds: tuple[str, ...] | None = None
    price_kind: PriceKind = "on_demand"
    price: float | None = None
    fused_loss: bool = False
    expert_imbalance: float | None = None
    """Load of the fullest rank of experts over the mean."""
    further_layers: int | None = None
    """Blocks that predict further tokens, in place of the model's own."""
    references: tuple[Reference, ...] = ()
    """Measured runs that correct the prediction (``planner.calibration``)."""
    references_from: str = ""
    """Where they come from, in words; empty: they were given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """What is predicted: ``workload.steps`` steps, and ``assumptions`` about all that was not given."""

    model: ModelSpec | ConvNetSpec
    workload: Workload
    cluster: ClusterSpec
    stack: Stack
    layout: Mapping[str, int | str]
    recompute: Recompute | None
    price: Price | None
    settings: RunSettings
    assumptions: tuple[Assumption, ...]
    references: tuple[Reference, ...] = ()
    references_from: str = ""

    @property
    def transformer(self) -> ModelSpec:
        """The model, where only transformers will do.

        Raises:
            RecipeError: it is a convolutional network.
        """
        if isinstance(self.model, ConvNetSpec):
            raise RecipeError("this is for transformers, not for convolutional networks", seen=self.model.family)
        return self.model


def resolve(question: Question) -> Scenario:
    """Everything that was left open chosen, and written down.

    Raises:
        RecipeError: an unknown device, link, cloud or stack (with near names), or sizes that cannot be.
    """
    question = replace(question, model=_trained(question))
    machines = cluster(
        question.on, scale_up=question.scale_up, scale_out=question.scale_out, rails=question.rails, where="--on"
    )
    software = stack(question.stack, where="--stack")
    said: list[Assumption] = []
    workload = _workload(question, machines, software, said)
    question = _stretched(question, workload.sequence_tokens, said)
    problems = () if isinstance(question.model, ConvNetSpec) else workload.problems(question.model)
    if problems:
        text = "; ".join(problems)
        raise RecipeError(text, where=", ".join(option for name, option in OPTIONS.items() if name in text))
    price = _price(question, machines.device)
    spot = question.price_kind == "spot" and price is not None
    said += _stages(question)
    said += _machine_assumptions(machines, software, price, question.price_kind)
    provider = cloud(price.provider).slug if spot and price is not None and question.price is None else ""
    return Scenario(
        model=question.model, workload=workload, cluster=machines, stack=software, layout=question.layout,
        recompute=question.recompute, price=price, settings=RunSettings(spot_provider=provider if spot else None),
        assumptions=tuple(said), references=question.references,
        references_from=question.references_from,
    )  # fmt: skip


def _trained(question: Question) -> ModelSpec | ConvNetSpec:
    """The model with what only training has; adapters stand beside the model as it is deployed."""
    model, further = question.model, question.further_layers
    if isinstance(model, ConvNetSpec):
        if further:
            raise RecipeError("a convolutional network predicts no tokens", where="--mtp", seen=str(further))
        return model
    if further is not None and (further < 0 or (further and model.kind != "decoder")):
        raise RecipeError("blocks that predict further tokens", where="--mtp", seen=str(further),
                          expected="0 or more, in a decoder")  # fmt: skip
    if question.method != "full" and not further:
        return model.deployed()
    return model if further is None else replace(model, further_layers=further)


def _workload(question: Question, machines: ClusterSpec, software: Stack, said: list[Assumption]) -> Workload:
    model = question.model
    sequence = _sequence(question, said)
    tokens = _tokens(question, said)
    batch = _batch(question, machines, sequence, tokens, said)
    precision = _precision(question, machines.device, said)
    _positive("--rank", question.rank)
    adapter = None
    if question.method != "full" and isinstance(model, ConvNetSpec):
        raise RecipeError("adapters stand beside a transformer's matrices", where="--method", seen=question.method)
    if question.method != "full" and isinstance(model, ModelSpec):
        names = adaptable(model)
        adapter = Adapter(
            rank=question.rank, targets=names, frozen="nf4" if question.method == "qlora" else "bf16",
            method="lora",
        )  # fmt: skip
        said.append(_assumed("adapters", ", ".join(names), "", given=False, source="all matrices of a block"))
    return Workload(
        sequence_tokens=sequence, batch_tokens=batch, steps=max(1, -(-tokens // batch)), precision=precision,
        optimizer=question.optimizer, recompute=question.recompute or "none",
        states=question.states or software.states, moments=question.moments, adapter=adapter,
        fused_loss=question.fused_loss, expert_imbalance=question.expert_imbalance,
    )  # fmt: skip


def _sequence(question: Question, said: list[Assumption]) -> int:
    model = question.model
    if isinstance(model, ConvNetSpec):
        return 1
    if model.kind == "vision":
        said.append(_assumed("tokens of an image", float(model.context_tokens), "tokens", given=True, source="model"))
        return model.context_tokens
    if question.sequence_tokens is not None:
        return _positive("--sequence", question.sequence_tokens)
    found = min(model.context_tokens, DEFAULT_SEQUENCE_TOKENS)
    source = f"the model's context, at most {DEFAULT_SEQUENCE_TOKENS:,}"
    said.append(_assumed("sequence", float(found), "tokens", given=False, source=source))
    return found


def _stretched(question: Question, sequence: int, said: list[Assumption]) -> Question:
    """The question of a model with rotary positions at a sequence beyond its context: they go on without weights."""
    model = question.model
    if not isinstance(model, ModelSpec) or model.positions != "rope" or sequence <= model.context_tokens:
        return question
    source = (
        f"{sequence / model.context_tokens:.3g} times the {model.context_tokens:,} tokens that the model was made for"
    )
    said.append(_assumed("rotary positions", "go on", "", given=True, source=source))
    return replace(question, model=replace(model, context_tokens=sequence))


def _stages(question: Question) -> list[Assumption]:
    """What a pipeline loses whose stages were asked for and do not divide the layers."""
    pp = question.layout.get("pp")
    if isinstance(question.model, ConvNetSpec) or not isinstance(pp, int) or pp > question.model.blocks:
        return []
    layers, waste = question.model.blocks, stage_waste(question.model.blocks, pp)
    if waste <= STAGE_WASTE:
        return []
    near = [each for each in range(1, layers + 1) if stage_waste(layers, each) <= STAGE_WASTE]
    below, above = max(each for each in near if each < pp), min(each for each in near if each > pp)
    source = (
        f"{layers} layers on {pp} ranks, {-(-layers // pp)} on the slowest; near, with less waste: {below} or {above}"
    )
    return [Assumption(name="idle share of uneven stages", value=waste / (1 + waste), unit="", origin="given",
                       source=source)]  # fmt: skip


def _tokens(question: Question, said: list[Assumption]) -> int:
    if question.tokens is not None:
        return _positive("--tokens", question.tokens)
    if question.method != "full":
        found, source = ADAPTER_TOKENS, "some 50,000 instructions with their answers"
    elif isinstance(question.model, ConvNetSpec):
        found, source = IMAGES, "90 epochs of ImageNet-1k (Goyal et al., 2017, arXiv 1706.02677)"
    elif question.model.kind == "vision":
        found = IMAGES * question.model.context_tokens
        source = f"90 epochs of ImageNet-1k, {question.model.context_tokens} tokens an image"
    else:
        found = TOKENS_PER_PARAMETER * total_parameters(question.model)
        source = f"{TOKENS_PER_PARAMETER} for each parameter: compute-optimal (Hoffmann et al., 2022)"
    unit = "images" if isinstance(question.model, ConvNetSpec) else "tokens"
    said.append(_assumed(unit, float(found), "", given=False, source=source))
    return found


def _batch(question: Question, machines: ClusterSpec, sequence: int, tokens: int, said: list[Assumption]) -> int:
    if question.batch_tokens is not None:
        return _rounded(_positive("--batch", question.batch_tokens), sequence, machines.devices, said)
    if isinstance(question.model, ConvNetSpec):
        found = IMAGES_PER_DEVICE * min(machines.devices, MOST_IMAGES // IMAGES_PER_DEVICE)
        source = "32 a device, at most 8,192 (Goyal et al., 2017, arXiv 1706.02677)"
        said.append(_assumed("batch", float(found), "images", given=False, source=source))
        return found
    large = total_parameters(question.model) > LARGE_PARAMETERS
    ceiling = LARGE_BATCH_CEILING_TOKENS if large else BATCH_CEILING_TOKENS
    critical = float(critical_batch_tokens(float(tokens)))
    sequences = max(1, 1 << int(math.log2(max(1.0, min(critical, ceiling) / sequence))))
    # Whole sequences for each device, where there are enough of them.
    devices = machines.devices
    if sequences >= devices:
        sequences -= sequences % devices
    source = (
        f"at most the critical batch of a run of {format_count(tokens)}, {critical / 1e6:,.2g}M (Zhang et al., 2024), "
        f"and Llama's {format_count(ceiling)}"
    )
    said.append(_assumed("batch", float(sequences * sequence), "tokens", given=False, source=source))
    return sequences * sequence


def _rounded(batch: int, sequence: int, devices: int, said: list[Assumption]) -> int:
    """``4M`` tokens are no whole number of sequences; of those near it one that divides over many ranks is meant."""
    if batch % sequence == 0:
        return batch
    near = max(1, round(batch / sequence))
    over = divisible(near, unit=devices)
    found = (divisible(near) if over % devices else over) * sequence
    if abs(found - batch) > 0.1 * batch:
        raise RecipeError(
            "a batch has whole sequences", where="--batch", seen=f"{batch:,} tokens",
            expected=f"a multiple of the sequence's {sequence:,}, such as {found:,}",
        )  # fmt: skip
    source = f"near {batch:,}, in whole sequences of {sequence:,} that divide over many ranks"
    said.append(_assumed("batch", float(found), "tokens", given=True, source=source))
    return found


def _precision(question: Question, device: DeviceSpec, said: list[Assumption]) -> Precision:
    """The precision asked for, which the device must have a rate for; else the first of three that it has."""
    order: tuple[Precision, ...] = ("bf16", "fp16", "fp32") if question.precision is None else (question.precision,)
    known = [dtype for dtype in order if device.flops_per_s.get(RATE_NAMES.get(dtype, dtype))]
    if not known:
        rates = ", ".join(dtype for dtype, rate in device.flops_per_s.items() if rate)
        raise RecipeError(
            f"no {' or '.join(order)} rate of {device.name} is known", where="--precision",
            expected=f"one of {rates}" if rates else "a device with published rates",
        )  # fmt: skip
    if question.precision is None:
        source = "bf16 where the device has it, else fp16, else fp32"
        said.append(_assumed("precision", known[0], "", given=False, source=source))
    return known[0]


def _price(question: Question, device: DeviceSpec) -> Price | None:
    if question.price is not None:
        if not 0 < question.price < math.inf:
            raise RecipeError("a price is above zero", where="--price", seen=str(question.price))
        return Price(
            usd_per_device_hour=question.price, kind=question.price_kind, provider="", region="", as_of="",
            source="given",
        )  # fmt: skip
    for name in question.clouds or ():
        cloud(name, where="--cloud")
    return price_list().cheapest(device.name, question.price_kind, providers=question.clouds)


def _machine_assumptions(
    machines: ClusterSpec, software: Stack, price: Price | None, kind: PriceKind
) -> list[Assumption]:
    device, node = machines.device, machines.node
    said = [
        _catalogued("memory of a device", device.memory_bytes / 1e9, "GB", device.source),
        _catalogued("memory bandwidth", device.bytes_per_s / 1e9, "GB/s", device.source),
    ]
    if node.scale_up is not None and node.devices > 1:
        said.append(_link("link inside a node", node.scale_up.name, node.scale_up.bytes_per_s,
                          machines.origins.get("scale_up"), node.scale_up.source))  # fmt: skip
    if machines.scale_out is not None and machines.nodes > 1:
        said.append(_link("network, a device's share", machines.scale_out.name, machines.scale_out.bytes_per_s,
                          machines.origins.get("scale_out"), machines.scale_out.source))  # fmt: skip
    spread = f"measured over predicted time: a factor of {math.exp(software.time.spread):.2f} (one standard deviation)"
    said.append(Assumption(name="software", value=software.name, unit="", origin="catalog",
                           source=f"{software.title}; {spread}"))  # fmt: skip
    if price is None:
        source = f"no believable {kind.replace('_', '-')} price of {device.name} is in the lists"
        said.append(Assumption(name="price", value="unknown", unit="", origin="catalog", source=source))
    else:
        origin: Origin = "given" if price.source == "given" else "catalog"
        source = "" if origin == "given" else f"{price.provider} {price.region}, {price.source}@{price.as_of}"
        source = f"doubtful: {price.doubt}; {source}" if price.doubt else source
        said.append(
            Assumption(
                name=f"price ({price.kind.replace('_', '-')})", value=price.usd_per_device_hour,
                unit="$ per device and hour", origin=origin, source=source,
            )
        )  # fmt: skip
    return said


def _link(name: str, title: str, bytes_per_s: float, origin: str | None, source: str) -> Assumption:
    known: Origin = "given" if origin == "given" else "default" if origin == "default" else "catalog"
    return Assumption(
        name=name, value=bytes_per_s / 1e9, unit="GB/s each way", origin=known, source=f"{title}; {source}"
    )


def _catalogued(name: str, value: float, unit: str, source: str) -> Assumption:
    return Assumption(name=name, value=value, unit=unit, origin="catalog", source=source)


def _assumed(name: str, value: float | str, unit: str, *, given: bool, source: str) -> Assumption:
    return Assumption(name=name, value=value, unit=unit, origin="given" if given else "default", source=source)


def _positive(where: str, value: int) -> int:
    if value < 1:
        raise RecipeError("must be at least 1", where=where, seen=str(value))
    return value
