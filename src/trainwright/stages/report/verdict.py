"""The answers on top of the page: did it fit, how long did it take, what is it worth, what would it cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainwright.core.money import format_usd
from trainwright.core.units import format_bytes, format_seconds
from trainwright.render import numbers
from trainwright.render.results.audit import AIMS, difference
from trainwright.stages.report import say
from trainwright.stages.report.blocks import Tile, Tone
from trainwright.stages.report.run_record import RunRecord

GZIP = "gzip -9"


def tiles(run: RunRecord) -> tuple[Tile, ...]:
    """Returns one tile per question that the artefacts can answer."""
    return tuple(tile for make in (_fits, _time, _quality, _audit, _cost) for tile in make(run))


def sentence(run: RunRecord) -> str:
    """Returns the run in one sentence."""
    training = run.training
    if training is None:
        return "This run has not been trained yet."
    unit, size = run.recipe.counted
    seen = f"{say.count(training['tokens'] // size)} {unit}"
    parts = [f"{say.count(training['parameters'])} parameters were trained on {seen}"]
    parts.append(f"in {format_seconds(sum(training['phases'].values()))}")
    execution = training.get("execution") or {}
    device = (
        run.machine.facts.cpu
        if run.machine is not None and execution.get("device") == "cpu"
        else execution.get("device")
    )
    if device:
        parts.append(f"on {device}")
    speed = training.get("tokens_per_s")
    if speed:
        parts.append(f"at {say.value(f'{unit}_per_s', speed / size)}")
    return " ".join(parts) + "." + _stopped_early(training)


def _stopped_early(training: Mapping[str, Any]) -> str:
    """Returns what a run made of watching its validations, or nothing where it did not."""
    watched = training.get("early_stopping")
    if watched is None:
        return ""
    done, planned, result = training["steps"], watched["planned_steps"], watched["result_step"]
    ended = f"ended early, after {done:,} of {planned:,} steps" if done < planned else f"made all its {done:,} steps"
    weights = "" if result == done else f", and the result has the weights of step {result:,}, the best"
    return f" It {ended}{weights}."


def _fits(run: RunRecord) -> Iterator[Tile]:
    if run.plan is None:
        return
    estimate = run.plan.estimate
    measured = (run.training or {}).get("memory")
    used = sum(measured.values()) if measured else estimate.memory.total_bytes
    origin = "measured" if measured else "predicted"
    yield Tile(
        question="Does it fit?",
        answer="yes" if estimate.fits else "no",
        detail=f"{format_bytes(used)} {origin} of {format_bytes(estimate.memory_available_bytes)}",
        tone="good" if estimate.fits else "bad",
    )


def _time(run: RunRecord) -> Iterator[Tile]:
    predicted = None if run.plan is None else run.plan.estimate.seconds
    measured = None if run.training is None else sum(run.training["phases"].values())
    if measured is None and predicted is None:
        return
    if measured is None and predicted is not None:
        spread = f"{format_seconds(predicted.low)} to {format_seconds(predicted.high)}"
        yield Tile(question="How long?", answer=format_seconds(predicted.mid), detail=f"predicted: {spread}")
    elif measured is not None:
        detail = "not predicted"
        if predicted is not None:
            detail = f"predicted {format_seconds(predicted.mid)} ({say.ratio(measured / predicted.mid)})"
        yield Tile(question="How long did training take?", answer=format_seconds(measured), detail=detail)


def _quality(run: RunRecord) -> Iterator[Tile]:
    splits = (run.evaluation or {}).get("splits") or {}
    name = next((name for name in ("test", "validation", "train") if name in splits), None)
    if name is None:
        measured = (run.training or {}).get("validation")
        if measured:
            yield _worth("validation", measured)
    elif splits[name]["metrics"].get("bits_per_byte", {}).get("value") is not None:
        yield _against_baselines(name, splits[name])
    else:
        yield _worth(name, splits[name])


def _worth(name: str, split: Mapping[str, Any]) -> Tile:
    """Returns the first of these metrics that the task has."""
    question = "What is it worth?"
    measured = {**split["record"], **{key: metric["value"] for key, metric in split["metrics"].items()}}
    if measured.get("bits_per_byte") is not None:
        return Tile(question=question, answer=f"{measured['bits_per_byte']:.3f}", detail=f"bits per byte, {name}")
    if measured.get("recall_at_1") is not None:
        chance = ("chance", 1 / measured["candidates"])
        return _share(question, "recall at 1", measured["recall_at_1"], name, chance)
    if measured.get("accuracy") is None:
        return Tile(question=question, answer=numbers.measured(measured.get("loss")), detail=f"loss, {name} split")
    plain = {"commonest_class_accuracy": "always the commonest class", "longer_chosen": "always the longer answer"}
    known = ((how, measured[key]) for key, how in plain.items() if measured.get(key) is not None)
    return _share(question, "accuracy", measured["accuracy"], name, next(known, None))


def _share(question: str, what: str, share: float, split: str, plain: tuple[str, float] | None) -> Tile:
    """Returns a share of what is right, beside what the plain way to answer reaches, where one is known."""
    detail = f"{what}, {split} split"
    if plain is None:
        return Tile(question=question, answer=say.percent(share), detail=detail)
    how, reached = plain
    detail += f"; {how} {say.percent(reached)}"
    return Tile(question=question, answer=say.percent(share), detail=detail, tone="good" if share > reached else "bad")


def _against_baselines(name: str, split: Mapping[str, Any]) -> Tile:
    bits = split["metrics"]["bits_per_byte"]["value"]
    baselines = {entry["name"]: entry["bits_per_byte"] for entry in split.get("baselines", ())}
    beaten = sum(bits < other for other in baselines.values())
    detail = f"bits per byte, {name} split"
    if GZIP in baselines:
        detail += f"; {GZIP} {baselines[GZIP]:.3f}"
    grams = [value for key, value in baselines.items() if key.endswith("-gram")]
    if grams:
        detail += f", best n-gram {min(grams):.3f}"
    tone: Tone = "" if not baselines else "good" if beaten == len(baselines) else "warn" if beaten else "bad"
    return Tile(question="What is it worth?", answer=f"{bits:.3f}", detail=detail, tone=tone)


def _audit(run: RunRecord) -> Iterator[Tile]:
    if run.audit is not None:
        time, memory = run.audit.seconds_ratio, run.audit.memory_ratio
        close = abs(time - 1) <= AIMS["s"] and abs(memory - 1) <= AIMS["bytes"]
        yield Tile(
            question="Was the plan right?",
            answer=f"{difference(time)} time",
            detail=f"and {difference(memory)} peak memory, measured against predicted",
            tone="good" if close else "warn",
        )


def _cost(run: RunRecord) -> Iterator[Tile]:
    if run.plan is None:
        return
    priced = [rental for rental in run.plan.rentals if rental.fits and rental.usd is not None]
    if priced:
        cheapest = min(priced, key=lambda rental: rental.usd or 0.0)
        detail = f"on a rented {cheapest.device}, in {format_seconds(cheapest.seconds)} (estimate)"
        yield Tile(question="What would it cost elsewhere?", answer=format_usd(cheapest.usd or 0.0), detail=detail)
