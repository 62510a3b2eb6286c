"""The evaluation of a trained model: splits, baselines, completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.render.numbers import measured
from trainwright.render.page import Page


def show(evaluation: Mapping[str, Any], page: Page) -> None:
    """Shows what any task measured: its metrics, the tables that it made, and what they are compared with."""
    splits = evaluation["splits"]
    _show_metrics(splits, page)
    if has_baselines(splits):
        page.line()
        page.table(("bits/byte", *splits), baseline_rows(splits))
    elif has_scores(splits):
        page.line()
        page.table(("macro F1", *splits), score_rows(splits))
    if evaluation.get("baselines_skipped"):
        page.note(evaluation["baselines_skipped"])
    for name, split in splits.items():
        for key, table in split["details"].items():
            _show_table(f"{name}: {words(key)}", table, page)
    _show_questions(evaluation.get("questions"), page)
    _show_benchmarks(evaluation.get("benchmarks"), page)
    for completion in evaluation["completions"]:
        page.line()
        page.heading(completion["prompt"])
        page.line(completion["text"])
        overlap = completion["overlap"]
        page.note(f"word for word in the training text: at most {overlap['size_bytes']} bytes in a row")


def _show_questions(questions: Mapping[str, Any] | None, page: Page) -> None:
    """Shows how many questions were answered right, and the answers furthest from it."""
    if not questions:
        return
    page.line()
    rows = [(label, f"{share:.4f}") for label, share in question_rows(questions)]
    page.table((f"{questions['count']:,} questions", "share"), rows)
    if questions["too_long"]:
        page.note(f"{questions['too_long']:,} leave no room for an answer in the context, and count as not answered")
    furthest = [{key: _in_one_line(value) for key, value in row.items()} for row in questions["furthest"]]
    _show_table("furthest from right", furthest, page)


def _show_benchmarks(benchmarks: Mapping[str, Any] | None, page: Page) -> None:
    """Shows what the tasks of the harness measured."""
    if benchmarks:
        page.line()
        page.table(BENCHMARK_COLUMNS, benchmark_rows(benchmarks))
        page.note(benchmarks["harness"])


BENCHMARK_COLUMNS = ("benchmark", "metric", "value", "standard error", "examples")


def benchmark_rows(benchmarks: Mapping[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """Returns a row for each metric of each task."""
    return [
        (task, name, f"{metric['value']:.4f}", f"{metric['stderr']:.4f}" if "stderr" in metric else "", f"{count:,}")
        for task, measured in benchmarks["tasks"].items()
        for count in (measured["count"],)
        for name, metric in measured["metrics"].items()
    ]


def _in_one_line(value: Any) -> Any:
    return value.replace("\n", "\\n") if isinstance(value, str) else value


def question_rows(questions: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Returns each way in which answers were compared, in words, with its mean over the questions."""
    return [(QUESTION_METRICS[name], metric["value"]) for name, metric in questions["metrics"].items()]


QUESTION_METRICS = {
    "exact_match": "right to the letter",
    "word_match": "right but for case, punctuation and articles",
    "word_f1": "F1 of words",
}


def _show_metrics(splits: Mapping[str, Mapping[str, Any]], page: Page) -> None:
    units = metric_units(splits)
    circumstances = record_names(splits)
    rows = [
        (
            name,
            *(measured(split["metrics"][metric]["value"]) if metric in split["metrics"] else "" for metric in units),
            f"{split['count']:,} {split['unit']}s",
            *(_cell(split["record"].get(key)) for key in circumstances),
        )
        for name, split in splits.items()
    ]
    titles = (with_unit(words(name), unit) for name, unit in units.items())
    page.table(("split", *titles, "measured on", *map(words, circumstances)), rows)


def words(name: str) -> str:
    """Returns a task's name of a number as words."""
    return name.replace("_", " ")


def with_unit(title: str, unit: str) -> str:
    """Returns a metric's title with its unit, where the title does not say it: ``loss (nats/token)``."""
    return f"{title} ({unit})" if unit and unit.replace("/", " per ").rstrip("s") not in title else title


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
    """Returns whether these are counts by true and by predicted label."""
    if not isinstance(table, dict) or not isinstance(table.get("labels"), list):
        return False
    rows, size = table.get("counts"), len(table["labels"])
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        return False
    counted = all(isinstance(count, int) for row in rows for count in row)
    return counted and [len(row) for row in rows] == [size] * size


def is_curve(table: Any) -> bool:
    """Returns whether these are points and what to call them; a row may lack a number."""
    told = isinstance(table, dict) and {"title", "x", "x_title", "y", "y_title", "rows"} <= table.keys()
    return told and bool(row_columns(table["rows"]))


def curve_points(curve: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Returns x and y of each row that has both as numbers."""
    rows = ((row.get(curve["x"]), row.get(curve["y"])) for row in curve["rows"])
    return [(x, y) for x, y in rows if isinstance(x, (int, float)) and isinstance(y, (int, float))]


def _show_table(title: str, table: Any, page: Page) -> None:
    """Shows a table, a square of counts; a curve is drawn on the report's page alone."""
    columns, rows = [*map(words, row_columns(table))], []
    if columns:
        rows = [[_cell(row.get(key)) for key in row_columns(table)] for row in table]
    elif is_square(table):
        columns = ["true \\ predicted", *table["labels"]]
        rows = [[label, *map(measured, counts)] for label, counts in zip(table["labels"], table["counts"], strict=True)]
    if rows:
        page.line()
        page.table(columns, rows, title=title)


def _cell(value: Any) -> str:
    return "" if value is None else measured(value)


def has_baselines(splits: Mapping[str, Mapping[str, Any]]) -> bool:
    """Returns whether each split has the metric of compressors and n-grams, and was compared with them."""
    return all(
        "baselines" in split and split["metrics"].get("bits_per_byte", {}).get("value") is not None
        for split in splits.values()
    )


def has_scores(splits: Mapping[str, Mapping[str, Any]]) -> bool:
    """Returns whether each split has a macro F1, and was compared with that of words alone."""
    return all("baselines" in split and "macro_f1" in split["metrics"] for split in splits.values())


def scores(split: Mapping[str, Any]) -> dict[str, float]:
    """Returns the macro F1 of the model and of what it is held against, by name, on one split."""
    others = {entry["name"]: entry["macro_f1"] for entry in split["baselines"]}
    return {"this model": split["metrics"]["macro_f1"]["value"], **others}


def score_rows(splits: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Returns a row for the model and for each that it is held against, with its macro F1 on each split."""
    columns = [scores(split) for split in splits.values()]
    return [(name, *(f"{column[name]:.4f}" for column in columns)) for name in columns[0]]


def baseline_rows(splits: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Returns a row per way to code the text, the best one on the first split on top."""
    columns = [
        {"this model": split["metrics"]["bits_per_byte"]["value"]}
        | {entry["name"]: entry["bits_per_byte"] for entry in split["baselines"]}
        for split in splits.values()
    ]
    ranked = sorted(columns[0], key=lambda name: columns[0][name])
    return [(name, *(f"{column[name]:.4f}" if name in column else "" for column in columns)) for name in ranked]
