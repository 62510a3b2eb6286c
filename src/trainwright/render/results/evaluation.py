"""The evaluation of a trained model: splits, baselines, completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.render.page import Page


def show(evaluation: Mapping[str, Any], page: Page) -> None:
    """Shows what a language model or a classifier measured; of a plug-in's task what every task measures."""
    splits = evaluation["splits"]
    if evaluation["task"] == "next-token":
        _show_language(splits, page)
    else:
        _show_metrics(splits, page)
    if evaluation["task"] == "classify":
        for name, split in splits.items():
            _show_confusion(name, split, page)
    if all("baselines" in split and "bits_per_byte" in split["metrics"] for split in splits.values()):
        page.line()
        page.table(("bits/byte", *splits), baseline_rows(splits))
    for completion in evaluation["completions"]:
        page.line()
        page.heading(completion["prompt"])
        page.line(completion["text"])
        overlap = completion["overlap"]
        page.note(f"word for word in the training text: at most {overlap['size_bytes']} bytes in a row")


def _show_language(splits: Mapping[str, Mapping[str, Any]], page: Page) -> None:
    rows = [
        (
            name,
            f"{split['loss']:.4f}",
            "unknown" if split["perplexity"] is None else f"{split['perplexity']:.4g}",
            f"{split['bits_per_byte']:.4f}",
            f"{split['tokens']:,}",
            f"{split['documents']:,}",
        )
        for name, split in splits.items()
    ]
    page.table(("split", "loss (nats/token)", "perplexity", "bits/byte", "tokens", "documents"), rows)


def _show_metrics(splits: Mapping[str, Mapping[str, Any]], page: Page) -> None:
    names = list(dict.fromkeys(name for split in splits.values() for name in split["metrics"]))
    rows = [
        (name, *(f"{split[metric]:.4f}" if metric in split["metrics"] else "" for metric in names), _count(split))
        for name, split in splits.items()
    ]
    page.table(("split", *(name.replace("_", " ") for name in names), "measured on"), rows)


def _count(split: Mapping[str, Any]) -> str:
    return f"{split['count']:,} {split['unit']}s"


def _show_confusion(name: str, split: Mapping[str, Any], page: Page) -> None:
    page.line()
    page.heading(f"{name}: true label, and what it was taken for")
    rows = []
    for row, counts in zip(split["by_label"], split["confusion"], strict=True):
        score = "unknown" if row["f1"] is None else f"{row['f1']:.4f}"
        rows.append((row["label"], *(f"{count:,}" for count in counts), score))
    page.table(("", *(row["label"] for row in split["by_label"]), "F1"), rows)


def baseline_rows(splits: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A row per way to code the text, the best one on the first split on top."""
    columns = [
        {"this model": split["bits_per_byte"]} | {entry["name"]: entry["bits_per_byte"] for entry in split["baselines"]}
        for split in splits.values()
    ]
    ranked = sorted(columns[0], key=lambda name: columns[0][name])
    return [(name, *(f"{column[name]:.4f}" if name in column else "" for column in columns)) for name in ranked]
