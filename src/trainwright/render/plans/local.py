"""A plan for this machine: verdict, memory, time, rented devices, rejected layouts, and what it rests on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from trainwright.core.money import format_hourly, format_usd
from trainwright.core.units import format_bytes, format_count, format_seconds
from trainwright.hardware.catalogue.energy import energy as energy_of
from trainwright.render.numbers import energy, share
from trainwright.render.page import Page, without_empty
from trainwright.render.plans.first_screen import memory_bar, show_first

if TYPE_CHECKING:
    from trainwright.spec.plan import Plan, Rental


def show(plan: Plan, page: Page, *, following: str = "") -> None:
    """Shows the first screen, with every table where all is wanted."""
    estimate, work = plan.estimate, plan.workload
    page.heading(verdict(plan))
    unit, size = plan.model.batch_unit, plan.model.batch_unit_tokens
    parameters, seen = format_count(sum(plan.parameters.values())), format_count(work.total_tokens // size)
    page.line(
        f"{parameters} parameters, {seen} {unit} in "
        f"{work.steps:,} step{'s' * (work.steps != 1)} on {plan.cluster.device.name}; {work.precision}, micro batch "
        f"{plan.parallel.micro_batch_sequences}, {'compiled' if plan.parallel.compile else 'not compiled'}"
    )
    mfu, low, high = share(estimate.mfu), format_seconds(estimate.seconds.low), format_seconds(estimate.seconds.high)
    page.line(
        f"{estimate.tokens_per_s / size:,.0f} {unit}/s, MFU {mfu}, between {low} and {high}; "
        f"mostly {estimate.bottleneck}"
    )
    drawn = energy_of(plan.cluster.device, plan.cluster.devices, estimate.seconds.mid)
    if drawn is not None:
        page.line(f"energy {energy(drawn.building_kwh)}, building included")
    page.line(f"memory {memory_bar(plan)}")
    if plan.rentals:
        page.line()
        columns = ("the same run on", "time", "cost", "price per hour", "note")
        page.table(*without_empty(columns, [rental_row(rental, whole=page.verbose) for rental in plan.rentals]))
    if page.verbose:
        _show_tables(plan, page)
    elif plan.rejected and not estimate.fits:
        _show_others(plan, page)
    show_first(page, plan, following=following)


def _show_tables(plan: Plan, page: Page) -> None:
    """Shows memory by class, time by phase, and the layouts that were not chosen."""
    estimate = plan.estimate
    page.line()
    page.table(("memory at the peak", "size"), parts(estimate.memory.as_dict(), format_bytes))
    page.line()
    steps, whole = estimate.phases.as_dict(), estimate.run_phases.as_dict()
    rows = [(name, format_seconds(steps[name]), format_seconds(whole[name])) for name in whole if whole[name] > 0]
    total = ("total", format_seconds(estimate.phases.total_s), format_seconds(estimate.run_phases.total_s))
    page.table(("time", "a step", "the run"), [*rows, total])
    if plan.rejected:
        _show_others(plan, page)


def _show_others(plan: Plan, page: Page) -> None:
    """Shows what was not chosen and why, or what a plan that does not fit could be changed to, with its time."""
    page.line()
    title = ("not chosen", "because") if plan.estimate.fits else ("would make it fit", "at")
    page.table(title, [(other.name, other.reason) for other in plan.rejected])


def verdict(plan: Plan) -> str:
    """Returns one line: ``fits: 0.9 GiB of 22.4 GiB; 4 min 50 s``."""
    estimate = plan.estimate
    memory = f"{format_bytes(estimate.memory.total_bytes)} of {format_bytes(estimate.memory_available_bytes)}"
    if estimate.fits:
        return f"fits: {memory}; {format_seconds(estimate.seconds.mid)}"
    return (
        f"does not fit: needs {memory}; smallest change that fits: {plan.rejected[0].name}: {plan.rejected[0].reason}"
    )


def parts(whole: Mapping[str, float], text: Callable[[float], str]) -> list[tuple[str, str]]:
    """Parts of a whole that are not empty, and their sum."""
    rows = [(name.replace("_", " "), text(value)) for name, value in whole.items() if value > 0]
    return [*rows, ("total", text(sum(whole.values())))]


def rental_row(rental: Rental, *, whole: bool = True) -> tuple[str, ...]:
    """Returns a rented device's row; what is unknown says so. ``whole``: with the price list that the price is of."""
    if not rental.fits:
        return rental.device, "", "", "", f"does not fit: {rental.reason}"
    time = f"{format_seconds(rental.seconds_low)} to {format_seconds(rental.seconds_high)}"
    if rental.usd is None or rental.usd_per_device_hour is None:
        return rental.device, time, "unknown", "unknown", rental.reason
    ratio = rental.usd / rental.seconds if rental.seconds else 0.0
    cost = f"{format_usd(ratio * rental.seconds_low)} to {format_usd(ratio * rental.seconds_high)}"
    note = "; ".join(filter(None, (rental.reason, f"{rental.source}@{rental.as_of}" if whole else "")))
    price = f"{format_hourly(rental.usd_per_device_hour)} {rental.provider} {rental.price_kind.replace('_', '-')}"
    return rental.device, time, cost, price, note
