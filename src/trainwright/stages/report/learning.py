"""Sections about the model: how it learned, what it is worth, what it writes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from trainwright.core.units import format_bytes, format_seconds
from trainwright.stages.report import say, scale
from trainwright.stages.report.blocks import Block, Cell, Figure, Missing, Sample, Section, Table
from trainwright.stages.report.charts import Bar, Bars, Lines, Segment, Series
from trainwright.stages.report.run_record import RunRecord
from trainwright.stages.report.series import Curve, smooth, thin

TRAIN, VALIDATION, MODEL, PLAIN = 0, 1, 0, 7
"""Tones: blue, vermilion, blue, grey."""


def learning(run: RunRecord) -> Section:
    """Curves over the tokens seen."""
    lead = "Loss in nats per token, smoothed, with every reported value behind it; held-out text in its own colour."
    if not run.curves:
        return Section(
            key="learning", title="Learning", lead="", blocks=(_missing("Nothing was trained yet.", "train"),)
        )
    return Section(key="learning", title="Learning", lead=lead, blocks=tuple(_curves(run)))


def _curves(run: RunRecord) -> Iterator[Block]:
    done = run.training
    per_step = run.recipe.train.batch_tokens if done is None else done["tokens"] / done["steps"]
    found = run.curves

    def series(name: str, curve: Curve, tone: int, form: Any = "line") -> Series:
        shown = thin(curve)
        return Series(name=name, xs=[step * per_step for step in shown.steps], ys=shown.values, tone=tone, form=form)

    train, validation = found.get("train/loss", Curve()), found.get("validation/loss", Curve())
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
                    x_title="tokens",
                    y_title="nats per token",
                    series=lines,
                    log=log,
                    log_x=log,
                    height=320,
                ),
            )
            for view, log in (("linear", False), ("logarithmic", True))
        ]
        yield Figure(views=views, wide=True)
    for name, title, unit, form in (
        ("train/lr", "Learning rate", "peak of AdamW, per update", scale.short),
        ("train/grad_norm", "Gradient norm", "before clipping", scale.short),
        ("train/tokens_per_s", "Throughput", "tokens per second", scale.short),
        ("train/mfu", "Model FLOPs utilisation", "share of the measured matmul peak", say.percent),
    ):
        if found.get(name):
            line = series(title, found[name], TRAIN)
            zero = name != "train/grad_norm"
            chart = Lines(
                title=title, x_title="tokens", y_title=unit, series=[line], y_format=form, zero=zero, height=220
            )
            yield Figure(views=[("", chart)])


def quality(run: RunRecord) -> Section:
    """Bits per byte beside what needs no network."""
    if run.evaluation is None:
        return Section(
            key="quality", title="Quality", lead="", blocks=(_missing("Nothing was measured yet.", "evaluate"),)
        )
    lead = (
        "Bits needed to code one byte of held-out text: fewer is better, and no tokenizer can flatter. Compressors "
        "take each document by itself; n-grams have counted the training split."
    )
    splits: Mapping[str, Any] = run.evaluation["splits"]
    blocks: list[Block] = [Figure(views=[("", _against_baselines(name, split))]) for name, split in splits.items()]
    rows = [_measured_row(name, split) for name, split in splits.items()]
    columns = ["split", "bits per byte", "loss (nats/token)", "perplexity", "tokens", "documents", "text", "speed"]
    window = run.evaluation["sequence_tokens"]
    note = (
        f"Windows of {window:,} tokens that do not overlap; every token is predicted once, except the first of a "
        "split. Ends of documents are predicted too."
    )
    blocks.append(Table(title="Measured", columns=columns, rows=rows, right=range(1, 8), note=note, wide=True))
    blocks += _where_loss_comes_from(splits)
    return Section(key="quality", title="Quality", lead=lead, blocks=blocks)


def _measured_row(name: str, split: Mapping[str, Any]) -> list[Cell | str]:
    return [
        name,
        f"{split['bits_per_byte']:.4f}",
        f"{split['loss']:.4f}",
        _perplexity(split["perplexity"]),
        f"{split['tokens']:,}",
        f"{split['documents']:,}",
        format_bytes(split["text_bytes"]),
        say.value("tokens_per_s", split["tokens_per_s"]),
    ]


def _against_baselines(name: str, split: Mapping[str, Any]) -> Bars:
    bars = [("this model", split["bits_per_byte"], MODEL)]
    bars += [(entry["name"], entry["bits_per_byte"], PLAIN) for entry in split.get("baselines", ())]
    groups = [
        (label, [Bar(segments=[Segment(name=label, value=bits, tone=tone)], text=f"{bits:.3f}")])
        for label, bits, tone in sorted(bars, key=lambda item: item[1])
    ]
    return Bars(title=f"Bits per byte, {name} split", x_title="bits per byte", groups=groups)


def _where_loss_comes_from(splits: Mapping[str, Any]) -> Iterator[Block]:
    by_context = [
        Series(
            name=name,
            xs=[math.sqrt(row["from_tokens"] * row["to_tokens"]) for row in split["by_context"]],
            ys=[row["loss"] for row in split["by_context"]],
            tone=tone,
            form="dots",
        )
        for tone, (name, split) in enumerate(splits.items())
        if split.get("by_context")
    ]
    if by_context:
        chart = Lines(
            title="What context is worth", x_title="tokens seen before in the window", y_title="nats per token",
            series=by_context, log_x=True, height=220,
        )  # fmt: skip
        yield Figure(views=[("", chart)])
    rows = []
    for name, split in splits.items():
        for row in split.get("by_document_size", ()):
            low, high = format_bytes(row["from_bytes"]), row["to_bytes"]
            size = f"{low} and more" if high is None else f"{low} to {format_bytes(high)}"
            rows.append([name, size, f"{row['bits_per_byte']:.3f}", f"{row['documents']:,}"])
    if rows:
        yield Table(
            title="By size of document",
            columns=["split", "size", "bits per byte", "documents"],
            rows=rows,
            right=(2, 3),
        )


def samples(run: RunRecord) -> Section:
    """Completions, and what the served model answered."""
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
    return Section(key="samples", title="Samples", lead=lead, blocks=blocks)


def _answer(answer: Mapping[str, Any] | None) -> Iterator[Sample]:
    if answer is None or "request" not in answer:
        return
    first, speed = answer["time_to_first_token_s"], answer["tokens_per_s"]
    note = f"Asked over HTTP of the exported model: first token after {format_seconds(first)}, {speed:.3g} tokens/s."
    yield Sample(
        prompt=answer["request"]["body"]["prompt"], completion=answer["response"]["choices"][0]["text"], note=note
    )


def _finish(reason: str) -> str:
    return {"stop": "the end of the text", "length": "the token limit"}.get(reason, reason)


def _perplexity(value: float | None) -> str:
    return say.UNKNOWN if value is None else f"{value:.4g}"


def _missing(text: str, command: str) -> Missing:
    return Missing(text=text, command=f"trainwright {command} RECIPE")
