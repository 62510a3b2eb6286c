"""What a question comes to: the run that is predicted, every default listed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from trainwright.core.errors import RecipeError, about
from trainwright.core.frozen import dataclass
from trainwright.core.units import GIB
from trainwright.hardware.catalogue.devices import normalised
from trainwright.hardware.catalogue.nodes import names_here
from trainwright.hardware.catalogue.printed_names import instance_cloud
from trainwright.hardware.catalogue.runs import RunNumbers
from trainwright.hardware.catalogue.stacks import stack
from trainwright.hardware.catalogue.support import check, trains_alone
from trainwright.hardware.prices.clouds import billing_of, cloud
from trainwright.hardware.prices.price_list import price_of
from trainwright.hardware.prices.unpriced import why_unpriced
from trainwright.planner.cost.assumptions import of_device, of_price
from trainwright.planner.cost.run_cost import RunSettings
from trainwright.planner.counts.kernels import RateSource
from trainwright.planner.counts.layouts import FixedLayout
from trainwright.planner.counts.parallel.stages import STAGE_WASTE, stage_waste
from trainwright.planner.forecast.switches import check_switches
from trainwright.planner.plan.question import Question, check_precision, filled, stretched, trained
from trainwright.planner.plan.sizes import AS_ASKED, passes_of, workload_of
from trainwright.planner.plan.usual import as_usual
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.planner.rates.learnt import Priors, Reference, machine_priors
from trainwright.planner.search.joined import between
from trainwright.planner.search.layouts import Refuses, refuses_of
from trainwright.spec.device import ClusterSpec, LinkSpec, Price
from trainwright.spec.plan import Assumption, Origin, of_unmeasured
from trainwright.spec.run import RunSpec
from trainwright.spec.stack import Stack
from trainwright.spec.workload import MASKED_KERNELS, TIMED_UPDATES, KernelChoice, ParallelPlan, Recompute, Workload

if TYPE_CHECKING:  # its measurements are read by pydantic, which a plan of another cluster does not wait for
    from trainwright.planner.plan.machine import Here

NAMED = ("sequence_tokens", "batch_tokens", "steps", "expert_imbalance")
"""Fields of a workload that its problems name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """What is predicted: a run of ``workload.steps`` steps, and ``assumptions`` about all that was not given."""

    run: RunSpec
    layout: FixedLayout
    """What is fixed of it."""
    recompute: Recompute | None
    price: Price | None
    settings: RunSettings
    assumptions: tuple[Assumption, ...]
    references: tuple[Reference, ...] = ()
    references_from: str = ""
    left_out: tuple[str, ...] = ()
    """Why other measured runs say nothing here."""
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    """As ``Recipe.unmeasured``."""
    priors: Priors | None = None
    """Of one's own machine, whose runs are learnt from; None: of published runs."""
    source: RateSource = CATALOGUE
    """Says how fast a device of the cluster is."""
    numbers: RunNumbers | None = None
    """What a run takes beyond its steps; None: what published runs do on clusters."""
    flops_per_s: float | None = None
    """A rate that each device is said to hold, to compare with."""
    data_bytes: float | None = None
    """Of the data set as it lies in storage; None: of the run's tokens, each seen ``passes`` times."""
    passes: float = 1.0
    tunes: bool = False
    """A trained model is trained further: of layouts about as fast, that with most memory to spare is taken."""
    usual: FixedLayout = field(default_factory=FixedLayout)
    """What its software does of the layout by itself, of parts that nobody fixes."""
    may_offload: bool = False
    """Activations are offloaded by the software's habit alone: where no bus leads to host memory, they stay."""
    refuses: Refuses | None = None
    """Says why what trains does not execute a layout; None: software that is not asked."""
    alone: Scenario | None = None
    """The same on one device, where its software does more by itself than on several; None: it does not."""
    on_this_machine: bool = False
    """On this one machine nobody asks what a run needs of a node, or how sure its verdict is."""

    def on_devices(self, machines: ClusterSpec) -> Scenario:
        """Returns the scenario of so many devices of such a kind."""
        if self.alone is not None and trains_alone(machines, machines.devices):
            return self.alone
        return self


def _unmeasured(question: Question) -> Mapping[str, str]:
    """Returns what nobody has measured, an optimizer that this machine's doctor does not time among it."""
    rule = question.optimizer
    here = names_here(question.on) and rule is not None and rule not in TIMED_UPDATES
    return {"optimizer": str(rule), **question.unmeasured} if here else question.unmeasured


def scenario_of(question: Question, *, placed: bool = True) -> Scenario:
    """Returns the question's run with all that was left open chosen, and written down.

    Where it is not ``placed``, the cluster is one of many that are tried.

    Raises:
        RecipeError: an unknown device, link, cloud or stack (with near names), software that does not run it, or sizes
            that cannot be.
    """
    check_precision(question)
    asked, question = question, replace(filled(question), model=trained(question))
    machines = question.cluster()
    here = question.here if names_here(question.on) else None
    with about("stack"):
        software = _kept_as_asked(stack(question.stack), question)
    assumptions = [*of_unmeasured(_unmeasured(question), question.optimizer), *of_kernels(question.kernels)]
    said = question.activation_offload
    question, usual = as_usual(question, software, machines, assumptions.append, placed=placed)
    workload = workload_of(question, machines, software, assumptions, placed=placed)
    assumptions = [_of_one_cluster(each, question) if placed else each for each in assumptions]
    question = stretched(question, workload.sequence_tokens, assumptions)
    _refuse_problems(workload, question)
    price = _price(question, machines)
    spot = question.price_kind == "spot"
    assumptions += _stages(question)
    run = _run_of(question, workload, machines, software)
    check(run, question.layout, devices=placed, packs=question.packing == "on" and question.tunes)
    check_switches(run, usual | question.layout, devices=placed)
    assumptions += [*_machine_assumptions(run, here, _provider(question, price)), _of_price(question, machines, price)]
    assumptions += [_states(run)] if question.states is None and here is None else []
    assumptions += _as_asked(asked, workload)
    assumptions += () if here is None else here.assumptions(run, compiled=software.memory.kernels == "compiled")
    provider = cloud(price.provider).slug if spot and price is not None and price.provider else ""
    # One machine fails and waits as one's own does; published runs say how several do.
    alone = here if machines.devices == 1 else None
    compiled = question.layout.get("compile", False)
    rented = RunSettings(spot_provider=provider if spot else None, billing=billing_of(price))
    return Scenario(
        run=run,
        layout=question.layout,
        usual=usual,
        may_offload=workload.activation_offload and said is None,
        tunes=question.tunes or workload.adapter is not None,
        data_bytes=None if question.data_gib is None else question.data_gib * GIB,
        passes=passes_of(question),
        flops_per_s=question.flops_per_s,
        source=CATALOGUE if here is None else here.source,
        refuses=_executed(run),
        recompute=question.recompute,
        price=price,
        settings=rented if alone is None else alone.settings,
        numbers=None if alone is None else alone.numbers(question.model.blocks, compiled=compiled),
        on_this_machine=alone is not None,
        assumptions=tuple(assumptions),
        references=question.references,
        references_from=question.references_from,
        left_out=question.left_out,
        unmeasured=question.unmeasured,
        priors=None if here is None else machine_priors(here.source.spread(run)),
    )


def _executed(run: RunSpec) -> Refuses | None:
    """Returns what says why this project's trainer does not execute a layout; None where other software trains.

    Raises:
        RecipeError: it executes none.
    """
    refuses = refuses_of(run)
    whole = ParallelPlan(micro_batch_sequences=run.workload.batch_sequences)
    if refuses is not None and (told := refuses(whole, "none")):
        raise RecipeError("this trainer does not train it so: {reasons}", field="stack", reasons="; ".join(told))
    return refuses


def _kept_as_asked(software: Stack, question: Question) -> Stack:
    """Returns software whose adapters are in 16 bits, too, where ``states`` asks for all of it in them."""
    if question.states != "pure" or not question.adapts or software.states == "pure":
        return software
    return replace(software, memory=replace(software.memory, adapter_bytes=2.0))


def _run_of(question: Question, workload: Workload, machines: ClusterSpec, software: Stack) -> RunSpec:
    return RunSpec(
        model=question.model,
        workload=workload,
        cluster=machines,
        stack=software,
        kernels=question.kernels,
        tunes=question.tunes,
    )


def of_kernels(kernels: KernelChoice) -> tuple[Assumption, ...]:
    """Returns what is counted in place of kernels that were never run on hardware."""
    source, found = "never run on hardware: make gpu", []
    if kernels.attention in MASKED_KERNELS:
        name = f"speed of attention={kernels.attention}"
        found.append(Assumption(name, "as sdpa", "", "default", source, key="attention_kernel"))
    if kernels.cuda_graphs:
        name = "speed and memory with CUDA graphs"
        found.append(Assumption(name, "as without", "", "default", source, key="cuda_graphs"))
    return tuple(found)


def _refuse_problems(workload: Workload, question: Question) -> None:
    """Raises RecipeError where the workload is none."""
    problems = workload.problems(question.model)
    if problems:
        text = "; ".join(problems)
        raise RecipeError(text, field=", ".join(name for name in NAMED if name in text))


def _states(run: RunSpec) -> Assumption:
    kept = f"as software {run.stack.name!r} does"
    return Assumption("how trained weights are kept", run.workload.states, "", "default", kept, key="states")


def _as_asked(question: Question, workload: Workload) -> list[Assumption]:
    """Returns what was asked for of the run's length and states; a batch says itself where it is rounded."""
    if question.workload is not None:
        return []
    model, unit = question.model, question.model.batch_unit
    entries = (
        (question.tokens, _asked("length", (question.tokens or 0) / model.batch_unit_tokens, "", name=unit)),
        (question.sequence_tokens, _asked("sequence", float(workload.sequence_tokens), "tokens")),
        (question.states, _asked("states", workload.states, "", name="how trained weights are kept")),
    )
    return [entry for said, entry in entries if said is not None]


def _asked(key: str, value: float | str, unit: str, *, name: str = "") -> Assumption:
    return Assumption(name or key, value, unit, "given", AS_ASKED, key=key)


def _of_one_cluster(entry: Assumption, question: Question) -> Assumption:
    """Returns an assumption, a default batch with what a search takes in its place."""
    if entry.key != "batch" or question.batch_tokens is not None or question.tunes:
        return entry
    return replace(entry, source=f"{entry.source}; recommend tries larger ones too")


def _clouds(question: Question) -> tuple[str, ...] | None:
    """Returns the clouds that are asked for, or of an instance type the one that rents it; None: all."""
    own = instance_cloud(normalised(question.on))
    return question.clouds or (None if own is None else (own,))


def _price(question: Question, machines: ClusterSpec) -> Price | None:
    return price_of(
        *(machines.device.name, question.price_kind),
        usd=question.price,
        clouds=_clouds(question),
        regions=question.regions,
        machines=machines,
    )


def _of_price(question: Question, machines: ClusterSpec, price: Price | None) -> Assumption:
    if price is not None:
        return of_price(price)
    why = why_unpriced(machines, question.price_kind, clouds=_clouds(question), regions=question.regions)
    return Assumption("price", "unknown", "", "catalog", why, key="price")


def _stages(question: Question) -> list[Assumption]:
    """Returns the loss of a pipeline whose stages were asked for and do not divide the layers."""
    pp = question.layout.get("pp")
    if pp is None or pp > question.model.blocks:
        return []
    layers, waste = question.model.blocks, stage_waste(question.model.blocks, pp)
    if waste <= STAGE_WASTE:
        return []
    near = [each for each in range(1, layers + 1) if stage_waste(layers, each) <= STAGE_WASTE]
    below, above = max(each for each in near if each < pp), min(each for each in near if each > pp)
    slowest = -(-layers // pp)
    source = f"{layers} layers on {pp} ranks, {slowest} on the slowest; near, with less waste: {below} or {above}"
    return [Assumption("idle share of uneven stages", waste / (1 + waste), "", "given", source, key="uneven_stages")]


def _provider(question: Question, price: Price | None) -> str:
    """Returns who rents the machines: of the price, else the only cloud that is meant; empty: nobody knows."""
    if price is not None:
        return price.provider
    clouds = _clouds(question) or ()
    return cloud(clouds[0]).title if len(clouds) == 1 else ""


def _machine_assumptions(run: RunSpec, here: Here | None, provider: str) -> list[Assumption]:
    machines, software = run.cluster, run.stack
    device, node = machines.device, machines.node
    assumptions = of_device(device) if here is None else []
    beyond = machines.is_one_domain and machines.nodes > 1
    if node.scale_up is not None and (node.devices > 1 or beyond):
        name = "link between all devices" if beyond else "link inside a node"
        assumptions.append(_link(name, node.scale_up, machines.origins, key="scale_up"))
    if machines.scale_out is not None and machines.nodes > 1 and not beyond:
        assumptions.append(_link("network, a device's share", machines.scale_out, machines.origins, key="scale_out"))
        if provider and machines.origins.get("scale_out") != "given":
            assumptions.append(between(provider, machines))
    one = math.exp((CATALOGUE if here is None else here.source).spread(run))
    spread = f"measured over predicted time: a factor of {one:.2f} (one standard deviation)"
    title = f"{software.title}; {spread}"
    assumptions.append(Assumption("software", software.name, "", "catalog", title, key="software"))
    return assumptions


def _link(name: str, link: LinkSpec, origins: Mapping[str, str], *, key: str) -> Assumption:
    stated = origins.get(key)
    origin: Origin = "given" if stated == "given" else "default" if stated == "default" else "catalog"
    return Assumption(name, link.bytes_per_s / 1e9, "GB/s each way", origin, f"{link.name}; {link.source}", key=key)
