"""Formulas of one device's memory, by the classes of ``MemoryUse``; see ``planner.explain.registry``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from trainwright.planner.counts.layouts import Numbers
from trainwright.planner.explain.formula import Explanation, Term
from trainwright.planner.forecast.memory.activations import layer_bytes, micro_tokens
from trainwright.planner.forecast.memory.moments import (
    MOMENTS,
    backward_bytes,
    bucket_bytes,
    moments_of,
    pass_bytes,
    waiting_bytes,
)
from trainwright.planner.forecast.memory.offload import (
    BUFFER_PARAMETERS,
    STATE_BUFFERS,
    SUB_GROUP_PARAMETERS,
    WEIGHT_BUFFERS,
    offloaded,
)
from trainwright.planner.forecast.memory.stages import place_name
from trainwright.planner.forecast.memory.states import (
    Kept,
    MemoryCase,
    case_of,
    kept,
    shared,
    shared_from,
    state_bytes,
)
from trainwright.planner.forecast.memory.table import library_bytes, usable_bytes
from trainwright.planner.plan.cluster import Planned

_CLASSES = {
    "weights": "as they are kept",
    "gradients": "that are there at the peak",
    "optimizer": "moments, master weights",
    "activations": "kept for the backward pass",
    "logits": "and their copies",
    "communication": "buffers",
    "workspace": "temporaries, libraries",
    "reserved_unused": "by the allocator",
    "context": "of the driver",
}
_ARRAYS = {"nvme": "nvme_bytes"}
_INFINITY = "Rajbhandari et al., 2021, arXiv 2104.07857, section 3"


class _Place:
    """The one layout at its worst stage and moment."""

    def __init__(self, planned: Planned) -> None:
        self.planned, self.model = planned, planned.scenario.run.transformer
        self.table = planned.choice.forecast.memory
        self.case: MemoryCase = case_of(
            self.model, planned.plan.workload, planned.choice.forecast.layouts, planned.scenario.run.stack.memory
        )
        self.states: Kept = kept(self.case)
        self.stage = int(self.table.last_stage[0])
        self.moment = int(self.table.moment[0])
        """Its place in ``MOMENTS``."""

    def at(self, values: Numbers | float) -> float:
        """Returns the stage's number of [2, L] or [L]."""
        array = np.asarray(values, dtype=np.float64)
        return float(array[self.stage, 0] if array.ndim == 2 else array.reshape(-1)[0])

    def explained(self, name: str, about: str, formula: str, terms: Iterable[Term], **more: Any) -> Explanation:
        """Returns the formula of one class of the table, or of what is off the device; ``more``: source, details."""
        node, table = self.planned.plan.cluster.node, self.table
        value = float((table.node_bytes(node) if name == "host" else getattr(table, _ARRAYS.get(name, name)))[0])
        if name == "optimizer":
            value += self.resident
        return Explanation(f"memory.{name}", about, formula, tuple(terms), value, "bytes", **more)

    @property
    def resident(self) -> float:
        """Returns the bytes of paged moments on the device."""
        return float(self.table.resident_bytes(self.table.device_bytes, self.planned.plan.cluster.device)[0])

    @property
    def when(self) -> str:
        """Returns ``at the loss, on the first stage``."""
        name = MOMENTS[self.moment]
        moments = {"end": "at the end of the backward pass", "backward": "in the backward pass"}
        text = moments.get(name, f"at the {name}")
        piped = self.planned.plan.parallel.pp > 1
        return text + (f", on {place_name(self.planned.plan.parallel, self.stage)}" if piped else "")


def _state(name: str) -> Callable[[Planned], Explanation]:
    """Returns the explainer of weights, gradients or states: bytes of an element times a rank's elements."""

    def explained(planned: Planned) -> Explanation:
        place = _Place(planned)
        value = float(getattr(place.table, name)[0])
        pages = name == "optimizer" and planned.plan.workload.paged_moments
        if place.case.adapter is not None or planned.plan.parallel.offload != "none" or value == 0 or pages:
            return _kept_otherwise(place, name, value)
        each = getattr(state_bytes(place.case), {"weights": "weight", "gradients": "gradient"}.get(name, name))
        stage, layouts = int(place.at(shared_from(place.case)[name])), place.case.layouts
        count = place.at(shared(place.case, from_stage=stage))
        share = value / (each * count)
        ranks = f"{place.at(layouts.sharing):.0f} ranks"
        since = f"{'from' if place.at(layouts.zero_stage) >= stage else 'only from'} ZeRO-{stage} on"
        whole = f"of {place.at(place.case.stages.total):,.0f} on the rank's stage"
        terms = [
            Term("b", each, "bytes", _bytes_of(planned, name)),
            Term("n", count, "parameters", f"{whole}, shared by dp_shard x cp = {ranks} {since}"),
        ]
        formula = "b × n"
        if abs(share - 1) >= 1e-9:
            formula = "b × n × s"
            terms.append(Term("s", share, "", f"share of them that is there {place.when}"))
        source = "Rajbhandari et al., 2020, section 3"
        return place.explained(name, f"{name} of one rank, {place.when}", formula, terms, source=source)

    return explained


def _kept_otherwise(place: _Place, name: str, value: float) -> Explanation:
    whole = place.at(getattr(place.states, name))
    terms = (
        Term("k", whole, "bytes", f"{name} that stay on the device, frozen ones as kept"),
        Term("s", value / whole if whole else 0.0, "", f"share of them that is there {place.when}"),
    )
    if name == "optimizer" and place.planned.plan.workload.paged_moments:
        paged = Term("p", place.resident, "bytes", f"of {place.table.paged[0]:,.0f} of paged moments, what has room")
        return place.explained(name, "optimizer of one rank with paged moments", "k × s + p", (*terms, paged))
    return place.explained(name, f"{name} of one rank with adapters or offload", "k × s", terms)


def _bytes_of(planned: Planned, name: str) -> str:
    work = planned.plan.workload
    formats = f"{work.states} states in {work.precision}"
    if name == "optimizer":
        return f"of {work.optimizer} for one parameter with {formats}"
    return f"of one {'weight' if name == 'weights' else 'gradient'} with {formats}"


def _activations(planned: Planned) -> Explanation:
    place = _Place(planned)
    case, stages, moment = place.case, place.case.stages, MOMENTS[place.moment]
    about = f"what the forward pass keeps for the backward pass, {place.when}"
    if moment not in ("loss", "backward"):
        held = Term("r", float(place.table.activations[0]), "bytes", "what the first block still holds")
        return place.explained("activations", about, "r", [held])
    step = pass_bytes(case)
    work = planned.plan.workload
    full = work.recompute == "full"
    dense, mixed = waiting_bytes(case)
    each = "a layer's input: tokens x width x bytes" if full else "kept by one layer, all operations"
    if work.recompute != "none" and work.recompute_budget:
        each = f"kept by an average layer: {case.recomputed:.0%} of them are recomputed"
    inside = 0.0 if moment == "loss" else place.at(backward_bytes(case, step)[0])
    terms = [
        Term("p", place.at(stages.passes), "", "micro batches in flight on this stage"),
        Term("L", place.at(stages.dense_layers), "layers", "on this stage, without experts"),
        Term("a", place.at(dense), "bytes", each),
        Term("M", place.at(stages.moe_layers), "layers", "on this stage, with experts"),
        Term("m", place.at(mixed), "bytes", each),
        Term("o", place.at(step.beside), "bytes", "kept outside of the layers"),
        Term("g", place.at(step.gone), "bytes", "waits in host memory"),
        Term("i", inside, "bytes", "inside the block that goes backward"),
    ]
    formula = "p × (L × a + M × m + o) - g + i"
    # What is not there needs no symbol.
    for symbol, pattern in (("M", " + M × m"), ("o", " + o"), ("g", " - g"), ("i", " + i")):
        if next(term for term in terms if term.symbol == symbol).value == 0:
            formula = formula.replace(pattern, "")
            terms = [term for term in terms if term.symbol not in ({"M", "m"} if symbol == "M" else {symbol})]
    source = "Korthikanti et al., 2022, arXiv 2205.05198, and each stack's own kernels"
    details = _operations(place, full=full)
    return place.explained("activations", about, formula, terms, details=details, source=source)


def _operations(place: _Place, *, full: bool) -> tuple[Term, ...]:
    """Returns a layer's bytes by operation, where they are counted so."""
    case, tokens = place.case, Term("", place.at(micro_tokens(place.case)), "tokens", "of a micro batch on a rank")
    if full or case.memory.kernels == "own":
        return (tokens,)
    layer = layer_bytes(case, mixture=place.at(case.stages.dense_layers) == 0)
    parts = {name.replace("_", " "): case.memory.activations * place.at(part) for name, part in layer.items()}
    elements = tokens.value * place.model.width
    shares = {f"{name}, {part / elements:.3g} bytes x tokens x width": part for name, part in parts.items() if part}
    return (tokens, *(Term("", part, "bytes", f"of a layer: {text}") for text, part in shares.items()))


def _logits(planned: Planned) -> Explanation:
    place = _Place(planned)
    tokens, vocabulary, tp = place.at(micro_tokens(place.case)), place.model.vocabulary, planned.plan.parallel.tp
    each = float(place.table.logits[0]) * tp / (tokens * vocabulary) if vocabulary else 0.0
    terms = (
        Term("T", tokens, "tokens", "of a micro batch on a rank"),
        Term("V", float(vocabulary), "", "vocabulary"),
        Term("t", float(tp), "", "tensor-parallel ranks"),
        Term("c", each, "bytes", "of all copies of a logit, hidden states included"),
    )
    return place.explained("logits", f"logits and their gradients, {place.when}", "T × V × c / t", terms)


def _communication(planned: Planned) -> Explanation:
    place = _Place(planned)
    gathered = place.at(moments_of(place.case, place.states)[place.moment].communication)
    buckets = place.at(bucket_bytes(place.case, place.states))
    layers = "all layers" if place.case.gathers_once[0] else "layers one after the other"
    what = f"weights gathered {place.when}: embedding and head, and {layers}"
    terms = (Term("g", gathered, "bytes", what), Term("b", buckets, "bytes", "buffers in which gradients are reduced"))
    return place.explained("communication", "buffers of collectives", "g + b", terms)


def _workspace(planned: Planned) -> Explanation:
    place = _Place(planned)
    used = place.at(moments_of(place.case, place.states)[place.moment].workspace)
    library = library_bytes(place.model, planned.plan.cluster.device)
    terms = (
        Term("u", used, "bytes", f"temporaries {place.when}"),
        Term("w", place.case.memory.workspace_bytes, "bytes", "of the stack, fitted"),
        Term("l", library, "bytes", "of the library of matrix products"),
    )
    return place.explained("workspace", "temporaries and libraries", "u + w + l", terms)


def _host(planned: Planned) -> Explanation:
    place = _Place(planned)
    about = "what offload keeps in one node's memory"
    evicted = place.at(place.table.evicted_bytes(planned.plan.cluster.device))
    saved = place.at(pass_bytes(place.case).gone)
    further = [("a", saved, "activations of a rank"), ("p", evicted, "a rank's paged moments without room")]
    beside = [Term(symbol, size, "bytes", what) for symbol, size, what in further if size]
    added = "".join(f" + {each.symbol}" for each in beside)
    if not planned.choice.forecast.layouts.offloads_to_nvme[0]:
        terms = (*_moved(place), *beside)
        return place.explained("host", about, f"d × (w + g + s{added})", terms, source=_INFINITY)
    state = f"{STATE_BUFFERS} of {SUB_GROUP_PARAMETERS:.0e} fp32 elements for the state"
    weights = f"{WEIGHT_BUFFERS} of {BUFFER_PARAMETERS:.0e} for weights"
    pinned = place.at(offloaded(place.case).host)
    buffers = Term("b", pinned, "bytes", f"pinned buffers of a rank: up to {state}, {weights}")
    terms = (_devices(place), buffers, *beside)
    source = "DeepSpeed's defaults of offload_optimizer and offload_param"
    return place.explained("host", about, f"d × (b{added})", terms, source=source)


def _nvme(planned: Planned) -> Explanation:
    place = _Place(planned)
    details = (Term("", float(planned.plan.cluster.node.nvme_bytes or 0), "bytes", "of the node's drives"),)
    about = "what offload keeps on one node's NVMe drives"
    if not place.table.nvme_bytes[0]:
        return place.explained("nvme", about, "0", (), details=details)
    return place.explained("nvme", about, "d × (w + g + s)", _moved(place), details=details, source=_INFINITY)


def _devices(place: _Place) -> Term:
    return Term("d", float(place.planned.plan.cluster.node.devices), "", "devices of a node")


def _moved(place: _Place) -> tuple[Term, ...]:
    """Returns a node's devices, and what of each rank left the device."""
    moved = offloaded(place.case).moved
    return (
        _devices(place),
        Term("w", place.at(moved.weights), "bytes", "weights of a rank"),
        Term("g", place.at(moved.gradients), "bytes", "gradients of a rank"),
        Term("s", place.at(moved.optimizer), "bytes", "the optimizer's state of a rank"),
    )


def _total(planned: Planned) -> Explanation:
    table = planned.choice.forecast.memory
    terms = tuple(Term(name, float(getattr(table, name)[0]), "bytes", what) for name, what in _CLASSES.items())
    value, names = float(table.device_bytes[0]), list(_CLASSES)
    if table.paged[0]:
        room = float(table.resident_bytes(table.device_bytes, planned.plan.cluster.device)[0])
        terms, names, value = (
            (*terms, Term("paged", room, "bytes", "moments that have room")),
            [*names, "paged"],
            value + room,
        )
    details = (
        Term("", float(table.needed_bytes[0]), "bytes", "needed at least"),
        Term("", usable_bytes(planned.plan.cluster.device), "bytes", "of the device"),
    )
    about = "peak of one device as its driver shows it"
    return Explanation("memory.total", about, " + ".join(names), terms, value, "bytes", details=details)


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
