"""The section about what the model is worth, for a language model and for any other task."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainwright.core.units import format_bytes
from trainwright.stages.report import say
from trainwright.stages.report.blocks import Block, Cell, Figure, Missing, Section, Table
from trainwright.stages.report.charts import Bar, Bars, Lines, Segment, Series
from trainwright.stages.report.run_record import RunRecord

MODEL, PLAIN = 0, 7
"""Tones: blue, grey."""


def quality(run: RunRecord) -> Section:
    """Returns what the task measured: bits per byte beside what needs no network, or a task's metrics."""
    if run.evaluation is None:
        missing = Missing(text="Nothing was measured yet.", command="trainwright evaluate RECIPE")
        return Section(key="quality", title="Quality", lead="", blocks=(missing,))
    return measured(run.evaluation)


def measured(evaluation: Mapping[str, Any]) -> Section:
    """Returns the section of an evaluation; of a plug-in's task it shows what every task measures."""
    splits: Mapping[str, Any] = evaluation["splits"]
    if evaluation["task"] == "next-token":
        return _language(splits, window_tokens=evaluation["sequence_tokens"])
    blocks = [*_metrics(splits)]
    if evaluation["task"] == "classify":
        blocks += _classified(splits)
    return Section(key="quality", title="Quality", lead="What the task measured.", blocks=blocks)


def _language(splits: Mapping[str, Any], *, window_tokens: int) -> Section:
    lead = (
        "Bits needed to code one byte of text that was not trained on: fewer is better, and no tokenizer can flatter. "
        "Compressors take each document by itself; n-grams have counted the training split."
    )
    blocks: list[Block] = [Figure(views=[("", _against_baselines(name, split))]) for name, split in splits.items()]
    rows = [_measured_row(name, split) for name, split in splits.items()]
    columns = ["split", "bits per byte", "loss (nats/token)", "perplexity", "tokens", "documents", "text", "speed"]
    note = (
        f"Windows of {window_tokens:,} tokens that do not overlap; every token is predicted once, except the first of "
        "a split. Ends of documents are predicted too."
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
            title="What context is worth",
            x_title="tokens seen before in the window",
            y_title="nats per token",
            series=by_context,
            log_x=True,
            height=220,
        )
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


def _perplexity(value: float | None) -> str:
    return say.UNKNOWN if value is None else f"{value:.4g}"


def _metrics(splits: Mapping[str, Any]) -> Iterator[Block]:
    """Yields each metric of each split; beside baselines in bits per byte, where the task measures those."""
    units = {name: unit for split in splits.values() for name, unit in split["metrics"].items()}
    columns = ["split", *(f"{say.title(name)} ({unit})" if unit else say.title(name) for name, unit in units.items())]
    rows: list[list[Cell | str]] = [
        [
            split_name,
            *(f"{split[name]:.4f}" if name in split["metrics"] else "" for name in units),
            f"{split['count']:,} {split['unit']}s",
        ]
        for split_name, split in splits.items()
    ]
    yield Table(
        title="Measured", columns=[*columns, "measured on"], rows=rows, right=range(1, len(columns) + 1), wide=True
    )
    for split_name, split in splits.items():
        if "baselines" in split and "bits_per_byte" in split["metrics"]:
            yield Figure(views=[("", _against_baselines(split_name, split))])


def _classified(splits: Mapping[str, Any]) -> Iterator[Block]:
    """Yields accuracy beside the commonest class's, and the classes one by one."""
    for name, split in splits.items():
        yield Figure(views=[("", _against_the_commonest_class(name, split))])
        yield _by_label(name, split["by_label"])
        yield _confusion(name, [row["label"] for row in split["by_label"]], split["confusion"])


def _against_the_commonest_class(name: str, split: Mapping[str, Any]) -> Bars:
    bars = (("this model", split["accuracy"], MODEL), ("the commonest class", split["commonest_class_accuracy"], PLAIN))
    groups = [
        (label, [Bar(segments=[Segment(name=label, value=share, tone=tone)], text=say.percent(share))])
        for label, share, tone in bars
    ]
    return Bars(title=f"Accuracy, {name} split", x_title="share of documents", groups=groups, format=say.percent)


def _by_label(name: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    def share(value: float | None) -> str:
        return "" if value is None else f"{value:.3f}"

    return Table(
        title=f"By label, {name} split",
        columns=["label", "documents", "precision", "recall", "F1"],
        rows=[
            [row["label"], f"{row['documents']:,}", share(row["precision"]), share(row["recall"]), share(row["f1"])]
            for row in rows
        ],
        right=range(1, 5),
        note="A share is empty where no document of the label occurs or is predicted.",
    )


def _confusion(name: str, labels: Sequence[str], counts: Sequence[Sequence[int]]) -> Table:
    rows: list[list[Cell | str]] = []
    for true, label in enumerate(labels):
        cells = [
            Cell(text=f"{count:,}", tone="good" if true == predicted else "")
            for predicted, count in enumerate(counts[true])
        ]
        rows.append([label, *cells])
    return Table(
        title=f"True and predicted label, {name} split",
        columns=["true \\ predicted", *labels],
        rows=rows,
        right=range(1, len(labels) + 1),
        wide=len(labels) > 4,
    )
