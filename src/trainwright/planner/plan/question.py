"""What a user asks of a cluster, and the model and the workload that are meant.

``Question`` holds fields as they were read, the rest open, so that one can be varied (``planner.plan.sweep``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from trainwright.core.errors import RecipeError, about
from trainwright.core.frozen import dataclass
from trainwright.hardware.catalogue.nodes import cluster, names_here, several
from trainwright.hardware.catalogue.stacks import DEFAULT
from trainwright.planner.counts.adapters import USUAL_RANK
from trainwright.planner.counts.layouts import FixedLayout
from trainwright.planner.rates.learnt import Reference
from trainwright.spec.convnet import AnyModel, transformer
from trainwright.spec.device import ClusterSpec, PriceKind
from trainwright.spec.plan import Assumption
from trainwright.spec.stack import Stack
from trainwright.spec.workload import (
    DEFAULT_KERNELS,
    KernelChoice,
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

Task = Literal["classify"]
"""What a model is tuned for, beside writing on: telling classes apart, with a head of its own."""
CLASSES = 2
Packing = Literal["on", "off"]


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
    method: Method | None = None
    """How a trained model is tuned; None: it is trained from the start."""
    task: Task | None = None
    examples: int | None = None
    epochs: float | None = None
    example_tokens: int | None = None
    """Of the data set that is passed over, in place of ``tokens``; tokens of an example in the mean."""
    data_gib: float | None = None
    """Of the data set as it lies in storage; None: text and ids of its tokens."""
    packing: Packing | None = None
    """Whether examples fill sequences, or each is one, padded to the longest of its micro batch."""
    rank: int = USUAL_RANK
    targets: tuple[str, ...] | None = None
    """What adapters stand beside: ``attention``, ``all-linear``, ``experts``, or names of modules."""
    stack: str = DEFAULT
    layout: FixedLayout = field(default_factory=FixedLayout)
    scale_up: str | None = None
    scale_out: str | None = None
    rails: int | None = None
    clouds: tuple[str, ...] | None = None
    regions: tuple[str, ...] | None = None
    price_kind: PriceKind = "on_demand"
    price: float | Mapping[str, float] | None = None
    flops_per_s: float | None = None
    """A rate that each device is said to hold, to compare with."""
    fused_attention: bool | None = None
    fused_loss: bool | None = None
    update_in_backward: bool | None = None
    paged_moments: bool | None = None
    activation_offload: bool | None = None
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
    kernels: KernelChoice = DEFAULT_KERNELS
    """Of this project's trainer."""
    here: Here | None = None
    """This machine, where ``on`` names it."""

    @property
    def tunes(self) -> bool:
        """Returns whether a trained model is trained further."""
        return self.method is not None or self.task is not None

    @property
    def adapts(self) -> bool:
        """Returns whether adapters alone are trained."""
        return self.method not in (None, "full")

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


def check_precision(question: Question) -> None:
    """Raises where weights that are quantised would be multiplied in as few bits as they have.

    Raises:
        RecipeError: says in what they are multiplied.
    """
    if question.method == "qlora" and question.precision in ("fp8", "nvfp4"):
        what, expected = "weights in four bits are multiplied in 16 or 32", "bf16, fp16 or fp32"
        fix = "or method=lora, whose frozen weights are whole"
        raise RecipeError(what, field="precision", seen=question.precision, expected=expected, fix=fix)


def trained(question: Question) -> AnyModel:
    """Returns the model with what only training has; adapters stand beside the model as it is deployed."""
    further = question.further_layers
    if not question.model.is_divisible and not further:
        return question.model
    with about("further_layers"):
        model = transformer(question.model)
    if question.task == "classify" and model.makes_logits:
        pooler = model.kind == "encoder" or model.pooler
        classes = model.classes or CLASSES
        model = replace(model, classes=classes, language_head=False, tied=False, pooler=pooler, further_layers=0)
    if further is not None and (further < 0 or (further and model.kind != "decoder")):
        what, expected = "blocks that predict further tokens", "0 or more, in a decoder"
        raise RecipeError(what, field="further_layers", seen=str(further), expected=expected)
    if further is not None and further > model.layers:
        what, expected = "more blocks that predict further tokens than the model has", f"at most {model.layers}"
        raise RecipeError(what, field="further_layers", seen=str(further), expected=expected)
    if question.tunes and not further:
        return model.deployed()
    return model if further is None else replace(model, further_layers=further)


def stretched(question: Question, sequence: int, assumptions: list[Assumption]) -> Question:
    """Returns the question with a longer context where the sequence is longer and positions rotate."""
    if sequence <= question.model.context_tokens or (model := transformer(question.model)).positions != "rope":
        return question
    made_for = model.context_tokens
    source = f"{sequence / made_for:.3g} times the {made_for:,} tokens that the model was made for"
    assumptions.append(Assumption("rotary positions", "go on", "", "given", source, key="rotary_positions"))
    return replace(question, model=replace(model, context_tokens=sequence))


class ImpliedKernels(TypedDict):
    """What of a workload's kernels follows from its software."""

    fused_attention: bool
    fused_loss: bool


def implied_kernels(software: Stack, *, attention: bool | None, loss: bool | None) -> ImpliedKernels:
    """Returns what of a workload's kernels follows from its software, for plans and for published runs alike.

    ``attention`` is whether its scores stay out of memory, ``loss`` whether logits are made in chunks; None: nobody
    says so, and it is as the software has it.
    """
    return {
        "fused_attention": software.fused_attention if attention is None else attention,
        "fused_loss": bool(software.chunked_loss) if loss is None else loss,
    }


def meant_kernels(question: Question, software: Stack, note: Callable[[Assumption], None]) -> ImpliedKernels:
    """Returns the kernels that are meant; notes what nobody asked for, where it is not what most software does."""
    attention = _attention(question)
    kernels = implied_kernels(software, attention=attention, loss=_fused_loss(question, software))
    if kernels["fused_loss"] and question.fused_loss is None:
        as_in = "torchtune, TRL and Unsloth have" if software.chunked_loss is None else f"{software.name} has"
        note(Assumption("loss", "in chunks", "", "default", f"logits are never whole, as {as_in} it", key="fused_loss"))
    if attention is None and not kernels["fused_attention"] and question.model.is_divisible:
        source = f"its scores are written to memory, as software {software.name!r} does"
        note(Assumption("attention", "not fused", "", "default", source, key="fused_attention"))
    return kernels


def _attention(question: Question) -> bool | None:
    """Returns whether attention is fused, where that is said: not in a recipe that drops scores out."""
    if question.fused_attention is None and question.workload is not None and not question.workload.fused_attention:
        return False
    return question.fused_attention


def _fused_loss(question: Question, software: Stack) -> bool | None:
    """Returns whether logits are made in chunks, where that is said, and in tuning; never where there are none."""
    if question.fused_loss is not None:
        return question.fused_loss
    logits = question.model.is_divisible and transformer(question.model).makes_logits
    if question.workload is not None or not logits:
        return False
    return question.tunes if software.chunked_loss is None else None
