"""Sections about the model: how it learned, what it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainwright.core.units import format_seconds
from trainwright.stages.report import say, scale
from trainwright.stages.report.blocks import Block, Figure, Missing, PageSection, Sample
from trainwright.stages.report.charts import Lines, Series
from trainwright.stages.report.run_record import RunRecord
from trainwright.stages.report.series import Curve, smooth, thin

TRAIN, VALIDATION, MODEL, PLAIN = 0, 1, 0, 7
"""Tones: blue, vermilion, blue, grey."""

LANGUAGE_METRICS = {"validation/loss", "validation/bits_per_byte", "validation/perplexity"}
"""Metrics that the loss curve shows already: the loss itself, and functions of it."""

RATES = {
    "train/lr": "AdamW",
    "train/muon_lr": "Muon, the blocks' matrices",
    "train/embedding_lr": "AdamW, embeddings",
    "train/matrix_lr": "blocks' matrices",
}
"""Learning rates by metric; training logs those that its optimizer has."""
PARTS = {"train/cross_entropy": "cross-entropy", "train/kl": "divergence from the teacher"}
"""Parts of the training loss, smoothed."""


def learning(run: RunRecord) -> PageSection:
    """Curves over the tokens seen."""
    lead = "Loss, smoothed, with every reported value behind it; validation in its own colour."
    if not run.curves:
        return PageSection(
            key="learning", title="Learning", lead="", blocks=(_missing("Nothing was trained yet.", "train"),)
        )
    return PageSection(key="learning", title="Learning", lead=lead, blocks=(*_curves(run), *_parts(run)))


def _curves(run: RunRecord) -> Iterator[Block]:
    unit, metrics = run.recipe.counted[0], run.curves
    seen = _seen_by_step(run)

    def series(name: str, curve: Curve, tone: int, form: Any = "line") -> Series:
        shown = thin(curve)
        return Series(name=name, xs=[*map(seen, shown.steps)], ys=shown.values, tone=tone, form=form)

    train, validation = metrics.get("train/loss", Curve()), metrics.get("validation/loss", Curve())
    lines = []
    if train:
        lines += [series("each report", train, TRAIN, "faint"), series("training", smooth(train), TRAIN)]
    if validation:
        lines.append(series("validation", validation, VALIDATION, "dots"))
    if lines:
        views = [
            (
                view,
                Lines(
                    title="Loss",
                    x_title=unit,
                    y_title=(train or validation).unit.replace("/", " per "),
                    series=lines,
                    log=log,
                    log_x=log,
                    height=320,
                ),
            )
            for view, log in (("linear", False), ("logarithmic", True))
        ]
        yield Figure(views=views, wide=True)
    others = [name for name in metrics if name.startswith("validation/") and name not in LANGUAGE_METRICS]
    if others:
        measured = [
            series(say.title(name.removeprefix("validation/")), metrics[name], tone, "dots")
            for tone, name in enumerate(others)
        ]
        chart = Lines(title="Validation", x_title=unit, y_title="", series=measured, zero=True, height=220)
        yield Figure(views=[("", chart)])
    rates = [
        series(label, metrics[name], tone) for tone, (name, label) in enumerate(RATES.items()) if metrics.get(name)
    ]
    if rates:
        chart = Lines(title="Learning rate", x_title=unit, y_title="per update", series=rates, zero=True, height=220)
        yield Figure(views=[("", chart)])
    for name, title, measure, form in (
        ("train/grad_norm", "Gradient norm", "before clipping", scale.short),
        (f"train/{unit}_per_s", "Throughput", f"{unit} per second", scale.short),
        ("train/mfu", "Model FLOPs utilisation", "share of the measured matmul peak", say.percent),
    ):
        if metrics.get(name):
            line = series(title, metrics[name], TRAIN)
            zero = name != "train/grad_norm"
            chart = Lines(
                title=title, x_title=unit, y_title=measure, series=[line], y_format=form, zero=zero, height=220
            )
            yield Figure(views=[("", chart)])


def _seen_by_step(run: RunRecord) -> Callable[[int], float]:
    """Returns what says on how many tokens or images so many updates were trained."""
    done, (_, size), train = run.training, run.recipe.counted, run.recipe.train
    if train.batch_ramp:
        return lambda step: train.sizes.tokens(step) / size
    per_step = (train.batch_tokens if done is None else done["tokens"] / done["steps"]) / size
    return lambda step: step * per_step


def _parts(run: RunRecord) -> Iterator[Block]:
    """Yields what the training loss is made of, where a task reports that."""
    unit, seen = run.recipe.counted[0], _seen_by_step(run)
    curves = [(name, smooth(run.curves[key])) for key, name in PARTS.items() if run.curves.get(key)]
    lines = [
        Series(name=name, xs=[*map(seen, curve.steps)], ys=curve.values, tone=tone, form="line")
        for tone, (name, curve) in enumerate((name, thin(curve)) for name, curve in curves)
    ]
    if lines:
        chart = Lines(title="Parts of the loss", x_title=unit, y_title="nats per token", series=lines, height=220)
        yield Figure(views=[("", chart)])


def samples(run: RunRecord) -> PageSection | None:
    """Completions, and what the served model answered; None of a task whose models write no text."""
    if run.recipe.task.kind.makes != "text":
        return None
    blocks: list[Block] = []
    for entry in (run.evaluation or {}).get("completions", ()):
        overlap = entry.get("overlap") or {}
        note = (
            f"{entry['completion_tokens']} tokens after {entry['prompt_tokens']}, ended by {_finish(entry['finish'])}"
        )
        if overlap:
            note += f"; longest part that stands word for word in the training text: {overlap['size_bytes']} bytes"
            note += f" ({say.percent(overlap['share'])})"
        blocks.append(
            Sample(prompt=entry["prompt"], completion=entry["text"], note=note + ".", overlap=overlap.get("text", ""))
        )
    blocks += _answer(run.answer)
    lead = "What the model writes. The prompt is in bold; the longest part copied from the training text is underlined."
    if not blocks:
        lead = ""
        blocks = [_missing("No text was generated yet: give the recipe evaluate.prompts or serve.demo.", "evaluate")]
    return PageSection(key="samples", title="Samples", lead=lead, blocks=blocks)


def _answer(answer: Mapping[str, Any] | None) -> Iterator[Sample]:
    if answer is None or "request" not in answer:
        return
    first, speed = answer["time_to_first_token_s"], answer["tokens_per_s"]
    note = f"Asked over HTTP of the exported model: first token after {format_seconds(first)}, {speed:.3g} tokens/s."
    yield Sample(prompt=answer["prompt"], completion=answer["answer"], note=note)


def _finish(reason: str) -> str:
    return {"stop": "the end of the text", "length": "the token limit"}.get(reason, reason)


def _missing(text: str, command: str) -> Missing:
    return Missing(text=text, command=f"trainwright {command} RECIPE")
