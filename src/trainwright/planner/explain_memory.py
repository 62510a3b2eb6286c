"""Formulas of one device's memory, by the classes of ``MemoryUse``; see ``planner.explain``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from trainwright.planner.cluster_plan import Planned
from trainwright.planner.explanation import Explanation, Term
from trainwright.planner.predict.activations import block_bytes, layer_bytes, micro_tokens
from trainwright.planner.predict.layouts import Numbers
from trainwright.planner.predict.memory import library_bytes, usable_bytes
from trainwright.planner.predict.moments import MOMENTS, bucket_bytes, input_bytes, moments_of, pass_bytes
from trainwright.planner.predict.offload import (
    BUFFER_PARAMETERS,
    STATE_BUFFERS,
    SUB_GROUP_PARAMETERS,
    WEIGHT_BUFFERS,
    Offloaded,
    offloaded,
)
from trainwright.planner.predict.states import Case, Kept, case_of, kept, shared, state_bytes

SHARED_FROM = {"weights": 3, "gradients": 2, "optimizer": 1}
"""The stage of ZeRO from which ranks share each (Rajbhandari et al., 2020)."""


class _Place:
    """The one layout at its worst stage and moment."""

    def __init__(self, planned: Planned) -> None:
        self.planned, self.model = planned, planned.scenario.transformer
        self.table = planned.choice.found.memory
        self.case: Case = case_of(
            self.model, planned.plan.workload, planned.choice.found.layouts, planned.scenario.stack.memory
        )
        self.states: Kept = kept(self.case)
        self.stage = int(self.table.last_stage[0])
        self.moment = MOMENTS[int(self.table.moment[0])]

    def at(self, values: Numbers | float) -> float:
        """Of [2, L] or [L] the stage's number."""
        array = np.asarray(values, dtype=np.float64)
        return float(array[self.stage, 0] if array.ndim == 2 else array.reshape(-1)[0])

    @property
    def when(self) -> str:
        """``at the loss on the first stage``."""
        piped = self.planned.plan.parallel.pp > 1
        moment = {"end": "at the end of the backward pass", "backward": "in the backward pass"}.get(
            self.moment, f"at the {self.moment}"
        )
        return moment + (f", on the {'last' if self.stage else 'first'} stage" if piped else "")


def _explanation(
    planned: Planned, name: str, about: str, formula: str, terms: list[Term], *, source: str = "",
    details: tuple[Term, ...] = (),
) -> Explanation:  # fmt: skip
    value = float(getattr(planned.choice.found.memory, name)[0])
    return Explanation(
        name=f"memory.{name}",
        about=about,
        formula=formula,
        terms=tuple(terms),
        value=value,
        unit="bytes",
        source=source,
        details=details,
    )


def _state(name: str) -> Callable[[Planned], Explanation]:
    """Weights, gradients or the optimizer's state: bytes of an element times the elements that a rank keeps."""

    def explained(planned: Planned) -> Explanation:
        place = _Place(planned)
        value = float(getattr(place.table, name)[0])
        about = f"{name} of one rank, {place.when}"
        if place.case.adapter is not None or planned.plan.parallel.offload != "none" or value == 0:
            return _kept_otherwise(planned, place, name, value)
        each = getattr(state_bytes(place.case), {"weights": "weight", "gradients": "gradient"}.get(name, name))
        stage = SHARED_FROM[name]
        count = place.at(shared(place.case, from_stage=stage))
        share = value / (each * count)
        layouts = place.case.layouts
        terms = [
            Term(symbol="b", value=each, unit="bytes", meaning=_bytes_of(planned, name)),
            Term(symbol="n", value=count, unit="parameters", meaning=f"of {place.at(place.case.stages.total):,.0f} on "
                 f"the rank's stage, shared by dp_shard x cp = {place.at(layouts.dp_shard * layouts.cp):.0f} ranks "
                 f"{'from' if place.at(layouts.zero_stage) >= stage else 'only from'} ZeRO-{stage} on"),
        ]  # fmt: skip
        if abs(share - 1) < 1e-9:
            return _explanation(planned, name, about, "b × n", terms, source="Rajbhandari et al., 2020, section 3")
        terms.append(Term(symbol="s", value=share, unit="", meaning=f"share of them that is there {place.when}"))
        return _explanation(planned, name, about, "b × n × s", terms, source="Rajbhandari et al., 2020, section 3")

    return explained


def _kept_otherwise(planned: Planned, place: _Place, name: str, value: float) -> Explanation:
    whole = place.at(getattr(place.states, name))
    terms = [
        Term(symbol="k", value=whole, unit="bytes", meaning=f"{name} that stay on the device, frozen ones as kept")
    ]
    there = value / whole if whole else 0.0
    terms.append(Term(symbol="s", value=there, unit="", meaning=f"share of them that is there {place.when}"))
    return _explanation(planned, name, f"{name} of one rank with adapters or offload", "k × s", terms)


def _bytes_of(planned: Planned, name: str) -> str:
    work = planned.plan.workload
    held = f"{work.states} states in {work.precision}"
    if name == "optimizer":
        return f"of {work.optimizer} for one parameter with {held}"
    return f"of one {'weight' if name == 'weights' else 'gradient'} with {held}"


def _activations(planned: Planned) -> Explanation:
    place = _Place(planned)
    case, stages = place.case, place.case.stages
    value = float(place.table.activations[0])
    about = f"what the forward pass keeps for the backward pass, {place.when}"
    if place.moment not in ("loss", "backward"):
        terms = [Term(symbol="r", value=value, unit="bytes", meaning="what the first block still holds")]
        return _explanation(planned, "activations", about, "r", terms)
    step = pass_bytes(case)
    full = planned.plan.workload.recompute == "full"
    dense, mixed = (
        (input_bytes(case),) * 2 if full else (block_bytes(case, mixture=False), block_bytes(case, mixture=True))
    )
    each = "a layer's input: tokens x width x bytes" if full else "kept by one layer, all operations"
    terms = [
        Term(symbol="p", value=place.at(stages.passes), unit="", meaning="micro batches in flight on this stage"),
        Term(symbol="L", value=place.at(stages.dense_layers), unit="layers", meaning="on this stage, without experts"),
        Term(symbol="a", value=place.at(dense), unit="bytes", meaning=each),
        Term(symbol="M", value=place.at(stages.moe_layers), unit="layers", meaning="on this stage, with experts"),
        Term(symbol="m", value=place.at(mixed), unit="bytes", meaning=each),
        Term(symbol="o", value=place.at(step.beside), unit="bytes", meaning="kept outside of the layers"),
    ]  # fmt: skip
    inside = 0.0 if place.moment == "loss" else place.at(step.inside + step.kept_again)
    terms.append(Term(symbol="i", value=inside, unit="bytes", meaning="inside the block that goes backward"))
    formula = "p × (L × a + M × m + o) + i"
    # What is not there needs no symbol.
    for symbol, pattern in (("M", " + M × m"), ("o", " + o"), ("i", " + i")):
        if next(term for term in terms if term.symbol == symbol).value == 0:
            formula = formula.replace(pattern, "")
            terms = [term for term in terms if term.symbol not in ({"M", "m"} if symbol == "M" else {symbol})]
    return _explanation(
        planned, "activations", about, formula, terms, details=_operations(place, full=full),
        source="Korthikanti et al., 2022, arXiv 2205.05198, and each stack's own kernels",
    )  # fmt: skip


def _operations(place: _Place, *, full: bool) -> tuple[Term, ...]:
    """A layer's bytes by operation, where they are counted so."""
    tokens = Term(
        symbol="", value=place.at(micro_tokens(place.case)), unit="tokens", meaning="of a micro batch on a rank"
    )
    if full or place.case.memory.kernels == "own":
        return (tokens,)
    mixture = place.at(place.case.stages.dense_layers) == 0
    factor = place.case.memory.activations
    parts = {name: factor * place.at(part) for name, part in layer_bytes(place.case, mixture=mixture).items()}
    elements = tokens.value * place.model.width
    return (tokens, *(
        Term(symbol="", value=part, unit="bytes",
             meaning=f"of a layer: {name.replace('_', ' ')}, {part / elements:.3g} bytes x tokens x width")
        for name, part in parts.items() if part
    ))  # fmt: skip


def _logits(planned: Planned) -> Explanation:
    place = _Place(planned)
    value = float(place.table.logits[0])
    about = f"logits and their gradients, {place.when}"
    tokens, vocabulary = place.at(micro_tokens(place.case)), place.model.vocabulary
    terms = [
        Term(symbol="T", value=tokens, unit="tokens", meaning="of a micro batch on a rank"),
        Term(symbol="V", value=float(vocabulary), unit="", meaning="vocabulary"),
        Term(symbol="t", value=float(planned.plan.parallel.tp), unit="", meaning="tensor-parallel ranks"),
    ]
    each = value * planned.plan.parallel.tp / (tokens * vocabulary) if vocabulary else 0.0
    terms.append(Term(symbol="c", value=each, unit="bytes", meaning="of all copies of a logit, hidden states included"))
    return _explanation(planned, "logits", about, "T × V × c / t", terms)


def _communication(planned: Planned) -> Explanation:
    place = _Place(planned)
    moment = moments_of(place.case, place.states)[int(place.table.moment[0])]
    terms = [
        Term(symbol="g", value=place.at(moment.communication), unit="bytes",
             meaning=f"weights gathered {place.when}: embedding and head, and layers one after the other"),
        Term(symbol="b", value=place.at(bucket_bytes(place.case, place.states)), unit="bytes",
             meaning="buffers in which gradients are reduced"),
    ]  # fmt: skip
    return _explanation(planned, "communication", "buffers of collectives", "g + b", terms)


def _workspace(planned: Planned) -> Explanation:
    place = _Place(planned)
    moment = moments_of(place.case, place.states)[int(place.table.moment[0])]
    terms = [
        Term(symbol="u", value=place.at(moment.workspace), unit="bytes", meaning=f"temporaries {place.when}"),
        Term(symbol="w", value=place.case.memory.workspace_bytes, unit="bytes", meaning="of the stack, fitted"),
        Term(symbol="l", value=library_bytes(place.model, planned.plan.cluster.device), unit="bytes",
             meaning="of the library of matrix products"),
    ]  # fmt: skip
    return _explanation(planned, "workspace", "temporaries and libraries", "u + w + l", terms)


def _host(planned: Planned) -> Explanation:
    place = _Place(planned)
    gone, devices = offloaded(place.case), planned.plan.cluster.node.devices
    value = float(place.table.host_bytes[0])
    ranks = Term(symbol="d", value=float(devices), unit="", meaning="devices of a node")
    about = "what offload keeps in one node's memory"
    if not planned.choice.found.layouts.offloads_to_nvme[0]:
        return Explanation(name="memory.host", about=about, formula="d × (w + g + s)", value=value, unit="bytes",
                           terms=(ranks, *_moved(place, gone)), source=_INFINITY)  # fmt: skip
    pinned = Term(symbol="p", value=place.at(gone.host), unit="bytes", meaning=f"pinned buffers of a rank: up to "
                  f"{STATE_BUFFERS} of {SUB_GROUP_PARAMETERS:.0e} fp32 elements for the state, {WEIGHT_BUFFERS} of "
                  f"{BUFFER_PARAMETERS:.0e} for weights")  # fmt: skip
    return Explanation(name="memory.host", about=about, formula="d × p", terms=(ranks, pinned), value=value,
                       unit="bytes", source="DeepSpeed's defaults of offload_optimizer and offload_param")  # fmt: skip


def _nvme(planned: Planned) -> Explanation:
    place, node = _Place(planned), planned.plan.cluster.node
    value = float(place.table.nvme_bytes[0])
    there = Term(symbol="", value=float(node.nvme_bytes or 0), unit="bytes", meaning="of the node's drives")
    about = "what offload keeps on one node's NVMe drives"
    if not value:
        return Explanation(name="memory.nvme", about=about, formula="0", terms=(), value=value, unit="bytes",
                           details=(there,))  # fmt: skip
    ranks = Term(symbol="d", value=float(node.devices), unit="", meaning="devices of a node")
    return Explanation(
        name="memory.nvme", about=about, formula="d × (w + g + s)", value=value, unit="bytes", details=(there,),
        terms=(ranks, *_moved(place, offloaded(place.case))), source=_INFINITY,
    )  # fmt: skip


def _moved(place: _Place, gone: Offloaded) -> tuple[Term, ...]:
    parts = (("w", gone.moved.weights, "weights"), ("g", gone.moved.gradients, "gradients"),
             ("s", gone.moved.optimizer, "the optimizer's state"))  # fmt: skip
    return tuple(Term(symbol=symbol, value=place.at(value), unit="bytes", meaning=f"{name} of a rank")
                 for symbol, value, name in parts)  # fmt: skip


_INFINITY = "Rajbhandari et al., 2021, arXiv 2104.07857, section 3"


def _total(planned: Planned) -> Explanation:
    table = planned.choice.found.memory
    names = ("weights", "gradients", "optimizer", "activations", "logits", "communication", "workspace",
             "reserved_unused", "context")  # fmt: skip
    terms = tuple(
        Term(symbol=name, value=float(getattr(table, name)[0]), unit="bytes", meaning=_CLASSES[name]) for name in names
    )
    limit = Term(symbol="", value=usable_bytes(planned.plan.cluster.device), unit="bytes", meaning="of the device")
    needed = Term(symbol="", value=float(table.needed_bytes[0]), unit="bytes", meaning="needed at least")
    return Explanation(
        name="memory.total", about="peak of one device as its driver shows it", formula=" + ".join(names),
        terms=terms, value=float(table.device_bytes[0]), unit="bytes", details=(needed, limit),
    )  # fmt: skip


_CLASSES = {
    "weights": "as they are kept", "gradients": "that are there at the peak", "optimizer": "moments, master weights",
    "activations": "kept for the backward pass", "logits": "and their copies", "communication": "buffers",
    "workspace": "temporaries, libraries", "reserved_unused": "by the allocator", "context": "of the driver",
}  # fmt: skip

MEMORY: Mapping[str, Callable[[Planned], Explanation]] = {
    "memory.total": _total,
    "memory.weights": _state("weights"),
    "memory.gradients": _state("gradients"),
    "memory.optimizer": _state("optimizer"),
    "memory.activations": _activations,
    "memory.logits": _logits,
    "memory.communication": _communication,
    "memory.workspace": _workspace,
    "memory.host": _host,
    "memory.nvme": _nvme,
}
