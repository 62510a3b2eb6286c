"""Which assumptions an answer rests on most: by how much it moves where each is off by what is usual for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from trainwright.core.frozen import dataclass
from trainwright.hardware.catalogue.stacks import stack
from trainwright.planner.counts.between import base_bytes
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.forecast.forecast import step_s
from trainwright.planner.plan.sizes import AS_ASKED
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.spec.convnet import transformer
from trainwright.spec.plan import INTERVAL, Assumption, Plan
from trainwright.spec.run import PlacedRun, RunSpec
from trainwright.spec.stack import Stack
from trainwright.spec.workload import Workload

FIRST = 3
"""How many are named before all of them are asked for."""
TIGHT = 0.7
"""Share of the device's memory above which what memory rests on matters too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Swing:
    """``factor`` by which ``of`` (time, cost, memory) moves; infinite where it is not known at all.

    It is below 1 where the answer can only become less.
    """

    assumption: Assumption
    factor: float
    of: str

    @property
    def size(self) -> float:
        """Returns how far it moves, up or down."""
        return max(self.factor, 1 / self.factor)


def largest(plan: Plan, count: int = FIRST) -> tuple[Swing, ...]:
    """Returns the assumptions that move a plan most, the largest first; none by its cost where it does not fit."""
    swings = [_swing(plan, each) for each in plan.estimate.assumptions]
    moving = [each for each in swings if each.size > 1.005 and (plan.estimate.fits or each.of != "cost")]
    return tuple(sorted(moving, key=lambda each: -each.size)[:count])


def _swing(plan: Plan, assumption: Assumption) -> Swing:
    rule = _RULES.get(assumption.key)
    of, factor = ("time", 1.0) if rule is None or assumption.source == AS_ASKED else rule(plan, assumption)
    return Swing(assumption=assumption, factor=factor, of=of)


def _of_software(plan: Plan, assumption: Assumption) -> tuple[str, float]:
    """One standard deviation of measured over predicted time, from the printed range of nine runs in ten."""
    seconds = plan.estimate.seconds
    return "time", math.exp(math.log(seconds.high / seconds.mid) / INTERVAL)


def _of_overhead(plan: Plan, assumption: Assumption) -> tuple[str, float]:
    """A run without it."""
    return "time", 1.0 + float(assumption.value)


def _of_length(plan: Plan, assumption: Assumption) -> tuple[str, float]:
    """Half or twice the tokens, where nobody said how many."""
    return "time", 2.0 if assumption.origin == "default" else 1.0


def _of_validation(plan: Plan, assumption: Assumption) -> tuple[str, float]:
    """Validations of twice the tokens, where how many a split has is an estimate, or not known before its data are."""
    phases = plan.estimate.run_phases
    return "time", 1.0 + phases.evaluate / phases.total_s if assumption.origin == "default" else 1.0


def _of_packing(plan: Plan, assumption: Assumption) -> tuple[str, float]:
    """The same layout with full sequences, token for token: no padding, and longer products."""
    software = _software(plan)
    if plan.workload.example_tokens is None or software is None:
        return "time", 1.0
    filled = replace(plan.workload, example_tokens=None, example_spread=0.0)
    padded_s, packed_s = (_s_per_token(plan, each, software) for each in (plan.workload, filled))
    return "time", packed_s / padded_s


def _software(plan: Plan) -> Stack | None:
    name = next((each.value for each in plan.estimate.assumptions if each.key == "software"), None)
    return stack(name) if isinstance(name, str) else None


def _s_per_token(plan: Plan, workload: Workload, software: Stack) -> float:
    run = RunSpec(model=plan.model, workload=workload, cluster=plan.cluster, stack=software, tunes=True)
    layouts = Layouts.one(PlacedRun(run=run, parallel=plan.parallel))
    return float(step_s(run, layouts, CATALOGUE)[0]) / workload.step_tokens


def _of_price(plan: Plan, assumption: Assumption) -> tuple[str, float]:
    """Unknown, or a third more: what lists differ by for one device (docs/en/hardware.md)."""
    return "cost", math.inf if assumption.value == "unknown" else 4 / 3 if assumption.origin == "catalog" else 1.0


def _of_billing(plan: Plan, assumption: Assumption) -> tuple[str, float]:
    """Dollars over those of the same devices for the run alone."""
    usd, needs = plan.estimate.usd, plan.estimate.needs
    hourly = next((each.value for each in plan.estimate.assumptions if each.key == "price"), None)
    if usd is None or needs is None or not isinstance(hourly, float):
        return "cost", 1.0
    return "cost", usd.mid / (needs.device_hours * hourly)


def _of_availability(plan: Plan, assumption: Assumption) -> tuple[str, float]:
    """Nobody knows at what price more devices are had than there are at once."""
    return "cost", math.inf


def _of_states(plan: Plan, assumption: Assumption) -> tuple[str, float]:
    """Trained weights, gradients and optimizer in half the bytes, where memory is tight."""
    memory = plan.estimate.memory
    if plan.workload.adapter is not None:
        return "memory", _tight(plan, (memory.gradients + memory.optimizer) / 2)
    return "memory", _tight(plan, (memory.weights + memory.gradients + memory.optimizer) / 2)


def _of_sequence(plan: Plan, assumption: Assumption) -> tuple[str, float]:
    """Sequences half as long, where memory is tight."""
    memory = plan.estimate.memory
    return "memory", _tight(plan, (memory.activations + memory.logits) / 2)


def _of_frozen_experts(plan: Plan, assumption: Assumption) -> tuple[str, float]:
    """Experts in as few bits as the other frozen weights, where memory is tight."""
    adapter, software, model = plan.workload.adapter, _software(plan), transformer(plan.model)
    if adapter is None or software is None:
        return "memory", 1.0
    memory = software.memory
    kept = base_bytes(model, adapter, memory)
    less = base_bytes(model, adapter, replace(memory, quantised_experts=True))
    return "memory", _tight(plan, plan.estimate.memory.weights * (1 - less / kept))


def _tight(plan: Plan, saved_bytes: float) -> float:
    total, there = plan.estimate.memory.total_bytes, plan.estimate.memory_available_bytes
    return max(total - saved_bytes, 1.0) / total if total > TIGHT * there else 1.0


_RULES: Mapping[str, Callable[[Plan, Assumption], tuple[str, float]]] = {
    "software": _of_software,
    "time_range": _of_software,
    "overhead": _of_overhead,
    "length": _of_length,
    "validation": _of_validation,
    "usual_packing": _of_packing,
    "price": _of_price,
    "billing": _of_billing,
    "availability": _of_availability,
    "states": _of_states,
    "sequence": _of_sequence,
    "frozen_experts": _of_frozen_experts,
}
"""By an assumption's key; what is measured or looked up moves little."""
