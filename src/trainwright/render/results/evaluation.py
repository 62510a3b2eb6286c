"""The evaluation of a trained model: splits, baselines, completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.render.page import Page


def show(evaluation: Mapping[str, Any], page: Page) -> None:
    """Shows what any task measured: its metrics, the tables that it made, and the baselines in bits per byte."""
    splits = evaluation["splits"]
    _show_metrics(splits, page)
    for name, split in splits.items():
        for key, table in split["details"].items():
            _show_table(f"{name}: {key.replace('_', ' ')}", table, page)
    if has_baselines(splits):
        page.line()
        page.table(("bits/byte", *splits), baseline_rows(splits))
    for completion in evaluation["completions"]:
        page.line()
        page.heading(completion["prompt"])
        page.line(completion["text"])
        overlap = completion["overlap"]
        page.note(f"word for word in the training text: at most {overlap['size_bytes']} bytes in a row")


def _show_metrics(splits: Mapping[str, Mapping[str, Any]], page: Page) -> None:
    units = metric_units(splits)
    circumstances = record_names(splits)
    rows = [
        (
            name,
            *(_cell(split["metrics"][metric]["value"]) if metric in split["metrics"] else "" for metric in units),
            f"{split['count']:,} {split['unit']}s",
            *(_cell(split["record"].get(key)) for key in circumstances),
        )
        for name, split in splits.items()
    ]
    metrics = (f"{name} ({unit})" if unit else name for name, unit in units.items())
    page.table(
        ("split", *(name.replace("_", " ") for name in (*metrics, "measured on", *circumstances))),
        rows,
    )


def metric_units(splits: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Returns the unit of each metric that a split has, in the task's order."""
    return {name: metric["unit"] for split in splits.values() for name, metric in split["metrics"].items()}


def record_names(splits: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns what a task recorded beside its metrics, where that is one value and no list or object."""
    items = (item for split in splits.values() for item in split["record"].items())
    return list(dict.fromkeys(key for key, value in items if not isinstance(value, (list, dict))))


def row_columns(table: Any) -> list[str]:
    """Returns the keys of a list of objects, which are a table's columns; none where it is something else."""
    if not isinstance(table, list) or not all(isinstance(row, dict) for row in table):
        return []
    return list(dict.fromkeys(key for row in table for key in row))


def is_square(table: Any) -> bool:
    """Whether these are counts by true and by predicted label."""
    return isinstance(table, dict) and {"labels", "counts"} <= table.keys()


def is_curve(table: Any) -> bool:
    """Whether these are points and what to call them."""
    return isinstance(table, dict) and {"title", "x", "x_title", "y", "y_title", "rows"} <= table.keys()


def _show_table(title: str, table: Any, page: Page) -> None:
    """Shows a table, a square of counts; a curve is drawn on the report's page alone."""
    columns, rows = [key.replace("_", " ") for key in row_columns(table)], []
    if columns:
        rows = [[_cell(row.get(key)) for key in row_columns(table)] for row in table]
    elif is_square(table):
        columns = ["true \\ predicted", *table["labels"]]
        rows = [[label, *map(_cell, counts)] for label, counts in zip(table["labels"], table["counts"], strict=True)]
    if rows:
        page.line()
        page.table(columns, rows, title=title)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def has_baselines(splits: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether each split has the metric that compressors and n-grams are compared in, and was compared with them."""
    return all("baselines" in split and "bits_per_byte" in split["metrics"] for split in splits.values())


def baseline_rows(splits: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A row per way to code the text, the best one on the first split on top."""
    columns = [
        {"this model": split["metrics"]["bits_per_byte"]["value"]}
        | {entry["name"]: entry["bits_per_byte"] for entry in split["baselines"]}
        for split in splits.values()
    ]
    ranked = sorted(columns[0], key=lambda name: columns[0][name])
    return [(name, *(f"{column[name]:.4f}" if name in column else "" for column in columns)) for name in ranked]
