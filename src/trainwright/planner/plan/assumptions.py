"""What a plan on a cluster, or a recommendation, rests on beside what the user gives: numbers with their sources."""

from __future__ import annotations

import math

from trainwright.core.units import format_seconds
from trainwright.hardware.catalogue.energy import energy
from trainwright.hardware.catalogue.nodes import DEFAULTS
from trainwright.hardware.catalogue.runs import read_runs
from trainwright.hardware.prices.clouds import AT_ONCE, CONTRACT_S, SPOT_AT_ONCE, Billing
from trainwright.planner.cost.assumptions import of_failures, of_measured, of_spot_nodes, of_trainer
from trainwright.planner.cost.goodput import SPOT_NODE_MTBF_S
from trainwright.planner.cost.keeping import Kept, kept_of
from trainwright.planner.cost.keeping import assumed as of_kept
from trainwright.planner.cost.run_cost import RunCost
from trainwright.planner.counts.adapters import BITSANDBYTES_FROZEN
from trainwright.planner.counts.ranks import fullest
from trainwright.planner.counts.work import peak_flops_per_s
from trainwright.planner.forecast.forecast import Forecast
from trainwright.planner.forecast.switches import moved_assumptions
from trainwright.planner.plan.layout import Choice, mesh
from trainwright.planner.plan.scenario import Scenario
from trainwright.planner.plan.sizes import AS_ASKED
from trainwright.planner.plan.usual import MESH, USUAL
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.planner.search.ranking import PAID_LONGER
from trainwright.spec.plan import Assumption, Origin
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Workload

RANK_HOST_BYTES, RANK_HOLDS = 4e9, "libraries, pinned buffers, the loader's workers"
"""Of one rank's process on its host, a default without a measurement, and what it holds there."""
COMPARES = "other adapters may choose another: fix `zero_stage` in `layout` to compare their memory"
RUN_KEYS = frozenset(("batch_ramp", "sequence", "length", "lengths", "batch", "adapters", "image_tokens", "software"))
"""Keys of assumptions about the run itself, wherever it is made."""


def assumed(scenario: Scenario, workload: Workload, choice: Choice, run: RunCost) -> list[Assumption]:
    """Returns all assumptions, in the order in which they are shown."""
    said = {each.key for each in scenario.assumptions}
    return [
        *(each for each in of_trainer(scenario.run) if each.key not in said),
        *_of_run(scenario, workload, run),
        *_of_mixtures(scenario, workload, choice),
        *_of_frozen_experts(scenario.run, workload),
        *_of_sharing(scenario, workload, choice),
        *_of_drives(choice.forecast),
        *moved_assumptions(choice.forecast, by_habit=scenario.may_offload),
        *_of_billing(scenario, run),
        *(() if scenario.price is None else of_kept(_kept(scenario), scenario.price)),
    ]


def _kept(scenario: Scenario) -> Kept:
    return kept_of(scenario.run, data_bytes=scenario.data_bytes, passes=scenario.passes)


def _of_billing(scenario: Scenario, run: RunCost) -> list[Assumption]:
    """Returns for how long the devices are paid, where that is much longer than the run, and whether they can be had.

    Nothing is known of the contract behind a price that is given: it is paid to the second.
    """
    billing, price, devices = scenario.settings.billing, scenario.price, scenario.run.cluster.devices
    if billing is None or price is None:
        return []
    notes, billed_s, seconds = [], float(run.billed_s[0]), float(run.seconds[0])
    kind = price.kind.replace("_", "-")
    if billed_s > PAID_LONGER * seconds:
        paid, source = f"{format_seconds(billed_s)} of {format_seconds(seconds)}", _billed_because(billing, devices)
        source = f"{source} ({price.provider} {kind}); a price that is given is paid to the second"
        notes.append(Assumption("the devices are paid for", paid, "", "default", source, key="billing"))
    if devices > billing.most_devices:
        value = f"{billing.most_devices:,.0f} of {devices:,}"
        source = f"{price.provider} {kind}: no more at this price, nor by a contract; a guess where its page is silent"
        notes.append(Assumption("devices to be had at once", value, "", "default", source, key="availability"))
    elif devices > billing.at_once and not notes:
        value, least = f"{billing.at_once:,.0f} of {devices:,}", format_seconds(CONTRACT_S)
        source = f"{price.provider} {kind}: more by a contract alone, {least} at least, its price unknown; a guess"
        notes.append(Assumption("devices to be had at once", value, "", "default", source, key="availability"))
    return notes


def _billed_because(billing: Billing, devices: int) -> str:
    if devices > billing.at_once and billing.contracts and billing.minimum_s < CONTRACT_S:
        contract = f"a contract of {format_seconds(CONTRACT_S)} at least, a guess"
        return f"more than {billing.at_once:,.0f} devices are {contract}"
    if billing.minimum_s >= CONTRACT_S:
        return f"a reserved price is paid for its whole term, {format_seconds(billing.minimum_s)} at least"
    step, least = format_seconds(billing.granularity_s), format_seconds(billing.minimum_s)
    return f"paid in steps of {step}, {least} at least"


def recommended(scenario: Scenario) -> list[Assumption]:
    """Returns what a recommendation rests on: the run's defaults, and the ways to buy."""
    at_once = f"{AT_ONCE} on demand, {SPOT_AT_ONCE} on spot"
    more = f"no list says it; more on demand are a contract of {CONTRACT_S / 86400:.0f} days; see catalog/clouds"
    cheapest = "the cheapest checked one of each cloud and kind: trainwright catalog shows their age"
    return [
        *(each for each in scenario.assumptions if _of_any_cluster(each)),
        of_failures(),
        *(of_spot_nodes(name, of=f" of {name}", key=f"spot_{name}") for name in (*SPOT_NODE_MTBF_S, "others")),
        Assumption("devices to be had at once", at_once, "", "default", more, key="availability"),
        Assumption("prices", "per device and hour", "", "catalog", cheapest, key="prices"),
        *of_kept(_kept(scenario)),
        *((_OF_PIPELINES,) if scenario.run.model.is_divisible else ()),
    ]


_OF_PIPELINES = Assumption(
    "idle share of pipelines",
    "in closed form",
    "",
    "default",
    "all stages equal; a plan plays its pipeline out, and may take some percent more or less",
    key="pipeline",
)


def _of_any_cluster(entry: Assumption) -> bool:
    if entry.source == AS_ASKED:
        return False
    return entry.key in RUN_KEYS or entry.key.endswith("_unknown") or entry.key.startswith(USUAL)


def _of_run(scenario: Scenario, workload: Workload, run: RunCost) -> list[Assumption]:
    cluster, numbers, settings = scenario.run.cluster, read_runs(), scenario.settings
    lost_s, total_s = float(run.parts.overhead_s[0]), float(run.parts.total_s[0])
    overhead = lost_s / (total_s - lost_s) if math.isfinite(total_s) else math.inf
    device, notes = cluster.device, []
    if scenario.source == CATALOGUE:  # rates of this machine are assumptions of its own
        name, peak = f"dense {workload.precision} peak", peak_flops_per_s(device, workload.precision) / 1e12
        source = device.sources.get(workload.precision, device.source)
        notes.append(Assumption(name, peak, "TFLOP/s", "catalog", source, key="peak"))
        notes.append(of_measured(scenario.run))
    disk: Origin = "catalog" if cluster.origins.get("disk_bytes_per_s") == "catalog" else "default"
    disk_rate, stops = (cluster.node.disk_bytes_per_s or 0) / 1e9, "checkpoints stop training while they are written"
    recovery = "what Llama 3's effective training time leaves (arXiv 2407.21783)"
    notes += [
        of_failures(settings.device_mtbf_s),
        Assumption("recovery from a failure", settings.recovery_s, "s", "default", recovery, key="recovery"),
        Assumption("overhead of long runs", overhead, "of the rest", "catalog", numbers.source, key="overhead"),
        Assumption("disk of a node", disk_rate, "GB/s", disk, stops, key="disk"),
        Assumption("host memory of a rank", RANK_HOST_BYTES / 1e9, "GB", "default", RANK_HOLDS, key="rank_host_memory"),
    ]
    if settings.spot_provider is not None:
        notes.append(of_spot_nodes(settings.spot_provider))
    drawn = energy(device, cluster.devices, float(run.seconds[0]))
    return [*notes, *(drawn.assumptions if drawn else ())]


def _of_mixtures(scenario: Scenario, workload: Workload, choice: Choice) -> list[Assumption]:
    """Returns the way to the experts, the load of their fullest rank, and the blocks for further tokens."""
    if not scenario.run.model.is_divisible:
        return []
    model, dispatch, notes = scenario.run.transformer, scenario.run.stack.dispatch, []
    if model.experts is not None and choice.parallel.ep > 1:
        stated = workload.expert_imbalance is not None
        balance = {"loss": "an auxiliary loss", "bias": "a bias on each expert"}[model.experts.balance]
        source = f"of {choice.parallel.ep} ranks over the mean" + ("" if stated else f", balanced by {balance}")
        load = float(fullest(model, workload, choice.forecast.layouts)[0])
        origin: Origin = "given" if stated else "default"
        name = "load of the fullest rank of experts"
        notes.append(Assumption(name, round(load, 3), "", origin, source, key="experts"))
        way = "one copy for each node, then for each rank" if dispatch.hierarchical else "one copy for each expert"
        source = dispatch.source or f"as software {scenario.run.stack.name!r} does"
        notes.append(Assumption("tokens to experts", way, "", "catalog", source, key="dispatch"))
    if model.further_layers:
        name, source = "blocks that predict further tokens", "the model's own; 0 trains without them"
        notes.append(Assumption(name, model.further_layers, "", "catalog", source, key="further_layers"))
    return notes


def _of_frozen_experts(run: RunSpec, workload: Workload) -> tuple[Assumption, ...]:
    """Returns that experts beside quantised weights are not quantised, where the software leaves them as they are."""
    adapter, memory = workload.adapter, run.stack.memory
    if adapter is None or not run.model.is_divisible or run.transformer.experts is None:
        return ()
    if adapter.frozen not in BITSANDBYTES_FROZEN or memory.quantised_experts:
        return ()
    source = "transformers keeps those of a layer in one parameter, which bitsandbytes leaves as it is (its issue 1849)"
    source += "; `stack` unsloth quantises it"
    return (Assumption("frozen experts", "16 bits", "", "catalog", source, key="frozen_experts"),)


def _of_sharing(scenario: Scenario, workload: Workload, choice: Choice) -> list[Assumption]:
    """Returns what ranks share of a model with adapters, where that is chosen, and why it is not another stage.

    Fewer adapters may leave room for a faster stage that holds more: memory of two plans compares at one stage alone.
    """
    shared, stage = choice.parallel.sharing, choice.parallel.zero_stage
    free = not scenario.layout.keys() & set(MESH) and "usual_zero_stage" not in scenario.usual
    if workload.adapter is None or not free or choice.parallel.dp_replicate * shared == 1 or not choice.rejected:
        return []
    chosen = mesh(choice.parallel, choice.recompute).partition(";")[0]
    others = (f"{each.name}: {each.reason}" for each in choice.rejected if each.name.partition(";")[0] != chosen)
    value = f"ZeRO-{stage}, {shared} ranks" if stage else "nothing"
    source = "; ".join(
        filter(None, ("the fastest that fits, and of those as fast what holds least", next(others, ""), COMPARES))
    )
    return [Assumption("what ranks share", value, "", "default", source, key="sharing")]


def _of_drives(forecast: Forecast) -> list[Assumption]:
    """Returns the rates of a node's drives, where states live on them."""
    node, origins = forecast.run.cluster.node, forecast.run.cluster.origins
    if not forecast.layouts.offloads_to_nvme[0]:
        return []
    read, write = node.nvme_read_bytes_per_s or 0.0, node.nvme_write_bytes_per_s or 0.0
    rates = f"reads {read / 1e9:.3g} GB/s, writes {write / 1e9:.3g} GB/s"
    known: Origin = "catalog" if origins.get("nvme_bytes_per_s") == "catalog" else "default"
    source = node.source if known == "catalog" else DEFAULTS["nvme_bytes_per_s"].removeprefix("default: ")
    return [Assumption("NVMe of a node", rates, "", known, source, key="nvme")]
