"""The report of a dataset: the funnel of each source, the splits, the tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.core.units import format_bytes, format_count, format_seconds
from trainwright.render.page import Page

EXAMPLES_SHOWN = 2


def show(report: Mapping[str, Any], execution: Mapping[str, Any], page: Page) -> None:
    """Shows the funnel of each source, the splits and the tokenizer."""
    for source in report["sources"]:
        what = "images" if "images" in report else "documents"
        page.table(("", what, "bytes", "for example"), funnel_rows(source), title=source["source"])
        page.line()
    if "images" in report:
        _show_images(report, page)
    else:
        _show_texts(report, execution, page)


def _show_images(report: Mapping[str, Any], page: Page) -> None:
    """Shows the images of each class by split, and their form."""
    splits, form = report["splits"], report["images"]
    classes = list(next(iter(splits.values()))["classes"])
    rows = [(label, *(format_count(split["classes"][label]) for split in splits.values())) for label in classes]
    rows.append(("all", *(format_count(split["documents"]) for split in splits.values())))
    page.table(("class", *splits), rows)
    page.line()
    page.line(images_line(form))


def images_line(form: Mapping[str, Any]) -> str:
    """Returns how images are stored: ``8 x 8 pixels, grey; mean 0.306, deviation 0.377 of the train split``."""
    colour = "grey" if form["channels"] == 1 else "red, green, blue"
    mean, std = (", ".join(f"{value:.3g}" for value in form[key]) for key in ("mean", "std"))
    return f"{form['size']} x {form['size']} pixels, {colour}; mean {mean}, deviation {std} of the train split"


def _show_texts(report: Mapping[str, Any], execution: Mapping[str, Any], page: Page) -> None:
    """Shows the splits in tokens, and the tokenizer."""
    page.table(
        ("split", "documents", "text", "tokens", "bytes per token"),
        [
            (
                name,
                format_count(s["documents"]),
                format_bytes(s["bytes"]),
                format_count(s["tokens"]),
                s["bytes_per_token"],
            )
            for name, s in report["splits"].items()
        ],
    )
    page.line()
    tokenizer = report["tokenizer"]
    asked = tokenizer["asked_vocabulary"]
    short = f" of {asked:,} asked for (the corpus is too small)" if asked and asked > tokenizer["vocabulary"] else ""
    engine = execution["encoding"]["engine"]
    speed = f"{execution['encode_bytes_per_s'] / 1e6:.3g} MB/s"
    page.line(
        f"tokenizer: {tokenizer['kind']}, vocabulary {tokenizer['vocabulary']:,}{short}; "
        f"encoded by {engine} at {speed}; all took {format_seconds(execution['seconds'])}"
    )


def funnel_rows(source: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Rows from read to kept; a reason for each document that fell out in between."""
    rows = [("read", source["read"], "")]
    rows += [(f"- broken: {reason}", tally, reason) for reason, tally in source["broken"].items()]
    rows += [(f"- {reason}", tally, reason) for reason, tally in source["dropped"].items()]
    if source["duplicates"]["documents"]:
        rows.append(("- duplicate", source["duplicates"], "duplicate"))
    if "relabelled" in source:
        rows.append(("  of these with another label", source["relabelled"], "relabelled"))
    rows.append(("kept", source["kept"], ""))
    return [
        (
            label,
            format_count(tally["documents"]),
            format_bytes(tally["bytes"]),
            ", ".join(source["examples"].get(reason, [])[:EXAMPLES_SHOWN]),
        )
        for label, tally, reason in rows
    ]
