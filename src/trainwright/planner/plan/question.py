"""What a user asks of a cluster, and the model and the workload that are meant.

``Question`` holds fields as they were read, the rest open, so that one can be varied (``planner.plan.sweep``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trainwright.core.errors import RecipeError, about
from trainwright.core.units import at_least_one, format_count
from trainwright.hardware.catalogue.nodes import cluster, names_here, several
from trainwright.hardware.catalogue.stacks import DEFAULT
from trainwright.planner.cost.scaling_laws import critical_batch_tokens
from trainwright.planner.counts.adapters import adaptable
from trainwright.planner.counts.layouts import FixedLayout
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.counts.work import usable_precision
from trainwright.planner.rates.learnt import Reference
from trainwright.spec.convnet import AnyModel, transformer
from trainwright.spec.device import ClusterSpec, PriceKind
from trainwright.spec.plan import Assumption
from trainwright.spec.stack import Stack
from trainwright.spec.workload import (
    Adapter,
    Method,
    MomentDtype,
    OptimizerName,
    Precision,
    Recompute,
    States,
    Workload,
)

if TYPE_CHECKING:  # its measurements are read by pydantic, which a plan of another cluster does not wait for
    from trainwright.planner.plan.machine import Here

DEFAULT_SEQUENCE_TOKENS = 8192
TOKENS_PER_PARAMETER, ADAPTER_TOKENS = 20, 10_000_000
LARGE_PARAMETERS = 1e11
BATCH_CEILING_TOKENS, LARGE_BATCH_CEILING_TOKENS = 1 << 22, 1 << 24
"""Of published runs: 4 M tokens for Llama 2 of all sizes (arXiv 2307.09288, section 2.2), 16 M for Llama 3 405B (arXiv
2407.21783, table 4)."""
IMAGES = 90 * 1_281_167
IMAGES_PER_DEVICE, MOST_IMAGES = 32, 8192


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A run on a cluster, as asked; None: to be chosen.

    ``on`` is a cluster in one word (``64x8xh100-sxm``, ``4x1xhere``), ``layout`` what is fixed of the parallel layout
    by name (``{"tp": 8}``); ``price`` dollars per device and hour in place of the price lists'. ``workload`` is a
    recipe's: what the fields leave open of sizes, optimizer and recomputation is as it says (``filled``), its precision
    is asked for by ``precision`` alone.
    """

    model: AnyModel
    on: str
    workload: Workload | None = None
    model_name: str = ""
    tokens: int | None = None
    batch_tokens: int | None = None
    sequence_tokens: int | None = None
    precision: Precision | None = None
    optimizer: OptimizerName | None = None
    states: States | None = None
    moments: MomentDtype | None = None
    recompute: Recompute | None = None
    method: Method = "full"
    rank: int = 16
    stack: str = DEFAULT
    layout: FixedLayout = field(default_factory=FixedLayout)
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
    """Measured runs that correct the prediction (``planner.rates.learnt``)."""
    references_from: str = ""
    """Where they come from, in words; empty: they were given."""
    left_out: tuple[str, ...] = ()
    """Why other measured runs say nothing here."""
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    """As ``Recipe.unmeasured``."""
    here: Here | None = None
    """This machine, where ``on`` names it."""

    def cluster(self) -> ClusterSpec:
        """Returns what the question is about; raises RecipeError for what is unknown or lacks a link."""
        with about("on"):
            if not names_here(self.on):
                return cluster(self.on, scale_up=self.scale_up, scale_out=self.scale_out, rails=self.rails)
            if self.here is None:
                raise RecipeError("this machine was not looked at", seen=self.on, expected="a device of the catalogue")
            here = self.here.cluster
            return several(here, self.on, scale_up=self.scale_up, scale_out=self.scale_out, rails=self.rails)


def filled(question: Question) -> Question:
    """Returns the question with what its recipe's workload says where a field is left open."""
    asked = question.workload
    if asked is None:
        return question
    names = ("batch_tokens", "sequence_tokens", "optimizer", "recompute")
    known: dict[str, Any] = {"tokens": asked.total_tokens} | {name: getattr(asked, name) for name in names}
    return replace(question, **{name: value for name, value in known.items() if getattr(question, name) is None})


def trained(question: Question) -> AnyModel:
    """Returns the model with what only training has; adapters stand beside the model as it is deployed."""
    further = question.further_layers
    if not question.model.is_divisible and not further:
        return question.model
    with about("further_layers"):
        model = transformer(question.model)
    if further is not None and (further < 0 or (further and model.kind != "decoder")):
        what, expected = "blocks that predict further tokens", "0 or more, in a decoder"
        raise RecipeError(what, field="further_layers", seen=str(further), expected=expected)
    if question.method != "full" and not further:
        return model.deployed()
    return model if further is None else replace(model, further_layers=further)


def workload_of(question: Question, machines: ClusterSpec, software: Stack, assumptions: list[Assumption]) -> Workload:
    """Returns the steps that are meant; appends an assumption for each size that the question leaves open.

    Raises:
        RecipeError: a size that cannot be.
    """
    sequence, tokens = _sequence(question, assumptions), _tokens(question, assumptions)
    batch = _batch(question, machines, sequence, tokens, assumptions)
    precision = usable_precision(machines.device, question.precision)
    if question.precision is None:
        source = "bf16 where the device has it, else fp16, else fp32"
        assumptions.append(Assumption("precision", precision, "", "default", source, key="precision"))
    at_least_one(question.rank, field="rank")
    adapter = None
    if question.method != "full":
        with about("method"):
            names = adaptable(transformer(question.model))
        adapter = Adapter(rank=question.rank, targets=names, frozen="nf4" if question.method == "qlora" else "bf16")
        source = "all matrices of a block"
        assumptions.append(Assumption("adapters", ", ".join(names), "", "default", source, key="adapters"))
    steps = max(1, -(-tokens // batch))
    return Workload(
        sequence_tokens=sequence,
        batch_tokens=batch,
        steps=steps,
        precision=precision,
        optimizer=question.optimizer or "adamw",
        recompute=question.recompute or "none",
        states=question.states or software.states,
        moments=question.moments,
        adapter=adapter,
        fused_loss=question.fused_loss,
        expert_imbalance=question.expert_imbalance,
        **_of_recipe(question.workload, steps),
    )


def _of_recipe(asked: Workload | None, steps: int) -> dict[str, Any]:
    """Returns what only a recipe says of a workload; validations are as many steps apart as there."""
    if asked is None:
        return {}
    return {
        "document_masking": asked.document_masking,
        "validation_tokens": asked.validation_tokens,
        "validations": -(-steps * asked.validations // asked.steps),
    }


def _sequence(question: Question, assumptions: list[Assumption]) -> int:
    model = question.model
    if model.sees_images:
        if question.sequence_tokens not in (None, model.context_tokens):
            what, expected = "an image has as many as the model says", str(model.context_tokens)
            raise RecipeError(what, field="sequence_tokens", seen=str(question.sequence_tokens), expected=expected)
        if model.unit == "tokens":
            name, tokens = "tokens of an image", float(model.context_tokens)
            assumptions.append(Assumption(name, tokens, "tokens", "given", "model", key="image_tokens"))
        return model.context_tokens
    if question.sequence_tokens is not None:
        return at_least_one(question.sequence_tokens, field="sequence_tokens")
    tokens = min(model.context_tokens, DEFAULT_SEQUENCE_TOKENS)
    source = f"the model's context, at most {DEFAULT_SEQUENCE_TOKENS:,}"
    assumptions.append(Assumption("sequence", float(tokens), "tokens", "default", source, key="sequence"))
    return tokens


def stretched(question: Question, sequence: int, assumptions: list[Assumption]) -> Question:
    """Returns the question with a longer context where the sequence is longer and positions rotate."""
    if sequence <= question.model.context_tokens or (model := transformer(question.model)).positions != "rope":
        return question
    made_for = model.context_tokens
    source = f"{sequence / made_for:.3g} times the {made_for:,} tokens that the model was made for"
    assumptions.append(Assumption("rotary positions", "go on", "", "given", source, key="rotary_positions"))
    return replace(question, model=replace(model, context_tokens=sequence))


def _tokens(question: Question, assumptions: list[Assumption]) -> int:
    if question.tokens is not None:
        return at_least_one(question.tokens, field="tokens")
    if question.method != "full":
        tokens, source = ADAPTER_TOKENS, "some 50,000 instructions with their answers"
    elif question.model.sees_images:
        each = question.model.context_tokens
        tokens = IMAGES * each
        way = " (Goyal et al., 2017, arXiv 1706.02677)" if each == 1 else f", {each} tokens an image"
        source = f"90 epochs of ImageNet-1k{way}"
    else:
        tokens = TOKENS_PER_PARAMETER * total_parameters(question.model)
        source = f"{TOKENS_PER_PARAMETER} for each parameter: compute-optimal (Hoffmann et al., 2022)"
    assumptions.append(Assumption(question.model.unit, float(tokens), "", "default", source, key="length"))
    return tokens


def _batch(question: Question, machines: ClusterSpec, sequence: int, tokens: int, assumptions: list[Assumption]) -> int:
    if question.batch_tokens is not None:
        asked = at_least_one(question.batch_tokens, field="batch_tokens")
        return _rounded(asked, sequence, machines.devices, assumptions)
    if question.model.unit == "images":
        images = IMAGES_PER_DEVICE * min(machines.devices, MOST_IMAGES // IMAGES_PER_DEVICE)
        source = "32 a device, at most 8,192 (Goyal et al., 2017, arXiv 1706.02677)"
        assumptions.append(Assumption("batch", float(images), "images", "default", source, key="batch"))
        return images
    large = total_parameters(question.model) > LARGE_PARAMETERS
    ceiling = LARGE_BATCH_CEILING_TOKENS if large else BATCH_CEILING_TOKENS
    critical = float(critical_batch_tokens(float(tokens)))
    sequences = max(1, 1 << int(math.log2(max(1.0, min(critical, ceiling) / sequence))))
    # Whole sequences for each device, where there are enough of them.
    if sequences >= machines.devices:
        sequences -= sequences % machines.devices
    source = (
        f"at most the critical batch of a run of {format_count(tokens)}, {critical / 1e6:,.2g}M (Zhang et al., 2024), "
        f"and Llama's {format_count(ceiling)}"
    )
    assumptions.append(Assumption("batch", float(sequences * sequence), "tokens", "default", source, key="batch"))
    return sequences * sequence


def _rounded(batch: int, sequence: int, devices: int, assumptions: list[Assumption]) -> int:
    """Returns a whole number of sequences near a batch (``4M``) that divides over many ranks."""
    if batch % sequence == 0:
        return batch
    near = max(1, round(batch / sequence))
    over = divisible(near, unit=devices)
    rounded = (divisible(near) if over % devices else over) * sequence
    if abs(rounded - batch) > 0.1 * batch:
        expected = f"a multiple of the sequence's {sequence:,}, such as {rounded:,}"
        what, seen = "a batch has whole sequences", f"{batch:,} tokens"
        raise RecipeError(what, field="batch_tokens", seen=seen, expected=expected)
    source = f"near {batch:,}, in whole sequences of {sequence:,} that divide over many ranks"
    assumptions.append(Assumption("batch", float(rounded), "tokens", "given", source, key="batch"))
    return rounded


def divisible(sequences: int, *, unit: int = 1) -> int:
    """Returns the multiple of ``unit`` within 5 % of ``sequences`` that most powers of two divide; else themselves."""
    least, most = math.ceil(sequences * (1 - 0.05)), int(sequences * (1 + 0.05))
    for power in range(sequences.bit_length(), -1, -1):
        step = unit << power
        nearest = [each for each in (sequences // step * step, -(-sequences // step) * step) if least <= each <= most]
        if nearest:
            return min(nearest, key=lambda each: abs(each - sequences))
    return sequences
