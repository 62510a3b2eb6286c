"""The section about what the model is worth: what its task measured, in whatever words it measured it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainwright.render import numbers
from trainwright.render.results.evaluation import (
    BENCHMARK_COLUMNS,
    benchmark_rows,
    curve_points,
    has_baselines,
    has_scores,
    is_curve,
    is_square,
    metric_units,
    question_rows,
    record_names,
    row_columns,
    scores,
    with_unit,
)
from trainwright.stages.report import say
from trainwright.stages.report.blocks import Block, Cell, Figure, Missing, PageSection, Table
from trainwright.stages.report.charts import Bar, Bars, Lines, Segment, Series
from trainwright.stages.report.run_record import RunRecord

MODEL, PLAIN = 0, 7
"""Tones: blue, grey."""

COMPARED = (
    "Bits needed to code one byte of text that was not trained on: fewer is better, and no tokenizer can flatter. "
    "Compressors take each document by itself; n-grams have counted the training split."
)
EMPTY = "A cell is empty where there is no such number."


def quality(run: RunRecord) -> PageSection:
    """Returns what the task measured: bits per byte beside what needs no network, or a task's metrics."""
    if run.evaluation is None:
        missing = Missing(text="Nothing was measured yet.", command="trainwright evaluate RECIPE")
        return PageSection(key="quality", title="Quality", lead="", blocks=(missing,))
    return measured(run.evaluation)


def measured(evaluation: Mapping[str, Any]) -> PageSection:
    """Returns the section of an evaluation: what any task measured, and the tables and curves that it made."""
    splits: Mapping[str, Any] = evaluation["splits"]
    lead, blocks = "What the task measured.", [*_metrics(splits)]
    if has_baselines(splits):
        lead = COMPARED
    for name, split in splits.items():
        accuracy = split["metrics"].get("accuracy", {}).get("value")
        if accuracy is not None and split["record"].get("commonest_class_accuracy") is not None:
            blocks.append(Figure(views=[("", _against_the_commonest_class(name, split))]))
        if has_scores({name: split}):
            blocks.append(Figure(views=[("", _against_words(name, split))]))
    if evaluation.get("baselines_skipped"):
        lead += f" Not compared: {evaluation['baselines_skipped']}."
    blocks += [*_curves(splits), *_tables(splits), *_questions(evaluation.get("questions"))]
    if benchmarks := evaluation.get("benchmarks"):
        title = f"Benchmarks of {benchmarks['harness']}"
        blocks.append(Table(title=title, columns=BENCHMARK_COLUMNS, rows=benchmark_rows(benchmarks), right=(2, 3, 4)))
    return PageSection(key="quality", title="Quality", lead=lead, blocks=blocks)


def _metrics(splits: Mapping[str, Any]) -> Iterator[Block]:
    """Yields each metric of each split; beside baselines in bits per byte, where the task measures those."""
    for name, split in splits.items():
        if has_baselines({name: split}):
            yield Figure(views=[("", _against_baselines(name, split))])
    units, circumstances = metric_units(splits), record_names(splits)
    titles = (with_unit(say.title(name), unit) for name, unit in units.items())
    columns = ["split", *titles, "measured on", *map(say.title, circumstances), "speed"]
    rows: list[list[Cell | str]] = [
        [
            name,
            *(numbers.measured(split["metrics"][key]["value"]) if key in split["metrics"] else "" for key in units),
            f"{split['count']:,} {split['unit']}s",
            *(_cell(key, split["record"].get(key)) for key in circumstances),
            f"{say.count(split['count'] / split['seconds'])} {split['unit']}s/s",
        ]
        for name, split in splits.items()
    ]
    yield Table(title="Measured", columns=columns, rows=rows, right=range(1, len(columns)), wide=True)


def _against_baselines(name: str, split: Mapping[str, Any]) -> Bars:
    bars = [("this model", split["metrics"]["bits_per_byte"]["value"], MODEL)]
    bars += [(entry["name"], entry["bits_per_byte"], PLAIN) for entry in split["baselines"]]
    groups = [
        (label, [Bar(segments=[Segment(name=label, value=bits, tone=tone)], text=f"{bits:.3f}")])
        for label, bits, tone in sorted(bars, key=lambda item: item[1])
    ]
    return Bars(title=f"Bits per byte, {name} split", x_title="bits per byte", groups=groups)


def _curves(splits: Mapping[str, Any]) -> Iterator[Figure]:
    """Yields each curve once, with a line for each split."""
    for key in dict.fromkeys(key for split in splits.values() for key in split["details"]):
        curves = {name: split["details"].get(key) for name, split in splits.items()}
        points = {name: curve_points(curve) for name, curve in curves.items() if is_curve(curve)}
        if not any(points.values()):
            continue
        first = curves[next(iter(points))]
        apart = first.get("diagonal") is True
        series = [
            Series(
                name=name,
                xs=[x for x, _ in pairs],
                ys=[y for _, y in pairs],
                tone=tone,
                form="points" if apart else "dots",
            )
            for tone, (name, pairs) in enumerate(points.items())
        ]
        told = {part: first[part] for part in ("title", "x_title", "y_title")}
        above_zero = not apart and all(x > 0 for pairs in points.values() for x, _ in pairs)
        if apart:
            ends = [extreme(x for pairs in points.values() for x, _ in pairs) for extreme in (min, max)]
            series.append(Series(name="without error", xs=ends, ys=ends, tone=PLAIN, form="dashed"))
        yield Figure(views=[("", Lines(**told, series=series, log_x=above_zero, height=220))])


def _tables(splits: Mapping[str, Any]) -> Iterator[Table]:
    for name, split in splits.items():
        for key, table in split["details"].items():
            columns = row_columns(table)
            title = f"{say.title(key).capitalize()}, {name} split"
            if columns:
                rows = [[_cell(column, row.get(column)) for column in columns] for row in table]
                right, note = range(1, len(columns)), EMPTY if any("" in row for row in rows) else ""
                yield Table(title=title, columns=[*map(say.title, columns)], rows=rows, right=right, note=note)
            elif is_square(table):
                yield _square(title, table["labels"], table["counts"])


def _questions(questions: Mapping[str, Any] | None) -> Iterator[Block]:
    """Yields how many questions were answered right, and the answers furthest from it."""
    if not questions:
        return
    groups = [
        (label, [Bar(segments=[Segment(name=label, value=share, tone=MODEL)], text=say.percent(share))])
        for label, share in question_rows(questions)
    ]
    title = f"Answers to {questions['count']:,} questions"
    yield Figure(views=[("", Bars(title=title, x_title="share of the questions", groups=groups, format=say.percent))])
    if questions["furthest"]:
        columns = row_columns(questions["furthest"])
        rows = [[_cell(column, row[column]) for column in columns] for row in questions["furthest"]]
        yield Table(title="Furthest from right", columns=[*map(say.title, columns)], rows=rows, wide=True)


def _cell(name: str, value: Any) -> str:
    return "" if value is None else say.value(name, value)


def _against_the_commonest_class(name: str, split: Mapping[str, Any]) -> Bars:
    bars = (
        ("this model", split["metrics"]["accuracy"]["value"], MODEL),
        ("the commonest class", split["record"]["commonest_class_accuracy"], PLAIN),
    )
    groups = [
        (label, [Bar(segments=[Segment(name=label, value=share, tone=tone)], text=say.percent(share))])
        for label, share, tone in bars
    ]
    return Bars(
        title=f"Accuracy, {name} split", x_title=f"share of {split['unit']}s", groups=groups, format=say.percent
    )


def _against_words(name: str, split: Mapping[str, Any]) -> Bars:
    bars = ((label, score, PLAIN if number else MODEL) for number, (label, score) in enumerate(scores(split).items()))
    groups = [
        (label, [Bar(segments=[Segment(name=label, value=score, tone=tone)], text=f"{score:.3f}")])
        for label, score, tone in bars
    ]
    return Bars(title=f"Macro F1, {name} split", x_title="macro F1", groups=groups)


def _square(title: str, labels: Sequence[str], counts: Sequence[Sequence[int]]) -> Table:
    rows: list[list[Cell | str]] = []
    for true, label in enumerate(labels):
        cells = [
            Cell(text=f"{count:,}", tone="good" if true == predicted else "")
            for predicted, count in enumerate(counts[true])
        ]
        rows.append([label, *cells])
    return Table(
        title=title,
        columns=["true \\ predicted", *labels],
        rows=rows,
        right=range(1, len(labels) + 1),
        wide=len(labels) > 4,
    )
