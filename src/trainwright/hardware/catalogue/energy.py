"""Electric energy and heat of a run: rated power of its devices, what the hosts add, and what the building adds."""

from __future__ import annotations

from trainwright.core.frozen import dataclass
from trainwright.spec.device import DeviceSpec
from trainwright.spec.plan import Assumption

HOST_POWER_SHARE = 0.5
"""Watts of host, network cards, switches and fans for each watt of rated device power. arXiv:2412.08602 (recall)
measured at most 8.4 kW on a node of eight H100 (5.6 kW of devices) while it trained; its nameplate says 10.2 kW."""
PUE = 1.15
"""Power of the building over power of the machines: AWS, all regions, 2023 (recall). Google printed 1.10; the Uptime
Institute's survey of all kinds of data centres had 1.58 in the mean."""
BTU_PER_HOUR_PER_W = 3.412142
"""1 W is 3.412142 BTU (IT) per hour."""

YEARS, HOURS_A_YEAR = 4.0, 8766.0
"""Over how long bought machines are paid off: most large clouds write servers off in four to six years (recall)."""
USD_PER_KWH = 0.1
"""Power for an industrial customer: 0.08 $ in the United States, 0.15 to 0.25 $ in Europe in 2024 (EIA and Eurostat,
recall)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Energy:
    """Power and energy of a run. The machines turn all of their power into heat, which cooling has to carry away."""

    machine_power_w: float
    machine_kwh: float
    building_kwh: float
    heat_btu_per_hour: float
    assumptions: tuple[Assumption, ...]


def energy(
    device: DeviceSpec, devices: int, seconds: float, *, host_share: float = HOST_POWER_SHARE, pue: float = PUE
) -> Energy | None:
    """Energy of ``devices`` devices that train for ``seconds`` at their rated power; None where that is unknown.

    Args:
        device: its ``tdp_w`` is taken as drawn all the time, which is an upper bound.
        devices: how many.
        seconds: how long.
        host_share: watts of the host for each watt of a device.
        pue: power of the building over power of the machines.
    """
    if device.tdp_w is None:
        return None
    power_w = devices * device.tdp_w * (1 + host_share)
    machine_kwh = power_w * seconds / 3.6e6
    return Energy(
        machine_power_w=power_w,
        machine_kwh=machine_kwh,
        building_kwh=machine_kwh * pue,
        heat_btu_per_hour=power_w * BTU_PER_HOUR_PER_W,
        assumptions=(
            Assumption(
                name="device power",
                value=float(device.tdp_w),
                unit="W",
                origin="catalog",
                source=device.source,
                key="device_power",
            ),
            Assumption(
                name="host power per device power",
                value=host_share,
                unit="",
                origin="default",
                source="arXiv:2412.08602 (recall): 8.4 kW measured on a node of eight H100",
                key="host_power",
            ),
            Assumption(
                name="PUE",
                value=pue,
                unit="",
                origin="default",
                source="AWS, all regions, 2023 (recall)",
                key="building_power",
            ),
        ),
    )


def owned_usd_per_hour(
    device: DeviceSpec, *, bought_usd: float, years: float = YEARS, usd_per_kwh: float = USD_PER_KWH
) -> float:
    """Returns what an hour of a device costs that was bought: its price over its years, and the power it draws.

    It is in use all the time; where its power is not known, that costs nothing.
    """
    drawn = energy(device, 1, 3600.0)
    return bought_usd / (years * HOURS_A_YEAR) + (0.0 if drawn is None else drawn.building_kwh * usd_per_kwh)
