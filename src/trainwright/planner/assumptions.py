"""What a plan on a cluster rests on beside what the user said: numbers with their origin and source."""

from __future__ import annotations

from trainwright.hardware.energy import energy
from trainwright.hardware.nodes import DEFAULTS
from trainwright.hardware.runs import read_runs
from trainwright.planner.choose import Choice
from trainwright.planner.goodput import HOUR_S, SPOT_NODE_MTBF_S, SPOT_OTHER_MTBF_S
from trainwright.planner.predict.dispatch import fullest
from trainwright.planner.predict.forecast import Forecast
from trainwright.planner.predict.work import peak_flops_per_s
from trainwright.planner.question import Scenario
from trainwright.planner.run import RunCost
from trainwright.spec.convnet import ConvNetSpec
from trainwright.spec.plan import Assumption
from trainwright.spec.workload import Workload

RANK_HOST_BYTES = 4e9
"""Of one rank's process on its host, a default without a measurement: libraries, pinned buffers, loaders."""


def assumed(scenario: Scenario, workload: Workload, choice: Choice, run: RunCost) -> list[Assumption]:
    """Everything, in the order in which it is shown."""
    return [
        *_of_run(scenario, workload, run),
        *_of_mixtures(scenario, workload, choice),
        *_of_drives(choice.found),
    ]


def _of_run(scenario: Scenario, workload: Workload, run: RunCost) -> list[Assumption]:
    device, numbers, settings = scenario.cluster.device, read_runs(), scenario.settings
    peak = peak_flops_per_s(device, workload.precision)
    said = [
        Assumption(name=f"dense {workload.precision} peak", value=peak / 1e12, unit="TFLOP/s", origin="catalog",
                   source=device.source),
        Assumption(name="how trained weights are kept", value=workload.states, unit="", origin="default",
                   source=f"as software {scenario.stack.name!r} does"),
        Assumption(name="time between failures of a device", value=settings.device_mtbf_s / HOUR_S, unit="hours",
                   origin="default", source="419 interruptions in 54 days on 16,384 H100 (arXiv 2407.21783)"),
        Assumption(name="recovery from a failure", value=settings.recovery_s, unit="s", origin="default",
                   source="what Llama 3's effective training time leaves (arXiv 2407.21783)"),
        Assumption(name="overhead of long runs", value=numbers.overhead_on(device), unit="", origin="catalog",
                   source=numbers.source),
        Assumption(name="disk of a node", value=(scenario.cluster.node.disk_bytes_per_s or 0) / 1e9, unit="GB/s",
                   origin="catalog" if scenario.cluster.origins.get("disk_bytes_per_s") == "catalog" else "default",
                   source="checkpoints stop training while they are written"),
        Assumption(name="host memory of a rank", value=RANK_HOST_BYTES / 1e9, unit="GB", origin="default",
                   source="libraries, pinned buffers, the loader's workers"),
    ]  # fmt: skip
    if settings.spot_provider is not None:
        life_s = SPOT_NODE_MTBF_S.get(settings.spot_provider, SPOT_OTHER_MTBF_S)
        said.append(
            Assumption(
                name="a spot node until it is taken back", value=round(life_s / HOUR_S), unit="hours", origin="default",
                source="what AWS, Azure and GCP publish; a guess for others",
            )
        )  # fmt: skip
    drawn = energy(device, scenario.cluster.devices, float(run.seconds[0]))
    return [*said, *(drawn.assumptions if drawn else ())]


def _of_mixtures(scenario: Scenario, workload: Workload, choice: Choice) -> list[Assumption]:
    """How experts are reached, how full the fullest rank of them is, and what is trained for further tokens."""
    model, dispatch, said = scenario.model, scenario.stack.dispatch, []
    if isinstance(model, ConvNetSpec):
        return []
    if model.experts is not None and choice.parallel.ep > 1:
        given = workload.expert_imbalance is not None
        balance = {"loss": "an auxiliary loss", "bias": "a bias on each expert"}[model.experts.balance]
        source = f"of {choice.parallel.ep} ranks over the mean" + ("" if given else f", balanced by {balance}")
        load = float(fullest(model, workload, choice.found.layouts)[0])
        said.append(Assumption(name="load of the fullest rank of experts", value=round(load, 3), unit="",
                               origin="given" if given else "default", source=source))  # fmt: skip
        way = "one copy for each node, then for each rank" if dispatch.hierarchical else "one copy for each expert"
        said.append(Assumption(name="tokens to experts", value=way, unit="", origin="catalog",
                               source=dispatch.source or f"as software {scenario.stack.name!r} does"))  # fmt: skip
    if model.further_layers:
        said.append(Assumption(name="blocks that predict further tokens", value=model.further_layers, unit="",
                               origin="catalog", source="the model; --mtp 0 trains without them"))  # fmt: skip
    return said


def _of_drives(found: Forecast) -> list[Assumption]:
    """What a node's drives are taken to do, where states live on them."""
    node, origins = found.cluster.node, found.cluster.origins
    if not found.layouts.offloads_to_nvme[0]:
        return []
    read, write = node.nvme_read_bytes_per_s or 0.0, node.nvme_write_bytes_per_s or 0.0
    given = origins.get("nvme_bytes_per_s") == "catalog"
    return [
        Assumption(
            name="NVMe of a node", value=f"reads {read / 1e9:.3g} GB/s, writes {write / 1e9:.3g} GB/s", unit="",
            origin="catalog" if given else "default",
            source=node.source if given else DEFAULTS["nvme_bytes_per_s"].removeprefix("default: "),
        )
    ]  # fmt: skip
