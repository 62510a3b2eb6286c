"""The page about published tables: its run is read, and its columns are those of the tables."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from fixtures.published import RUNS, TOTALS
from trainwright.planner.evidence.report import known_runs
from trainwright.planner.evidence.rows import REQUIRED

PAGES = [Path(__file__).parents[3] / "docs" / language / "published.md" for language in ("en", "zh")]


@pytest.fixture(params=PAGES, ids=["en", "zh"])
def page(request):
    return request.param.read_text(encoding="utf-8")


def header(path):
    with path.open(encoding="utf-8", newline="") as lines:
        return next(csv.reader(lines))


def test_its_run_can_be_learnt_from(page, tmp_path):
    path = tmp_path / "run.json"
    short, whole = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    path.write_text(short, encoding="utf-8")
    (reference,) = known_runs(path)
    assert reference.log_speed is not None
    path.write_text(whole, encoding="utf-8")
    (reference,) = known_runs(path)
    assert reference.log_speed is not None and reference.log_memory is not None
    assert reference.placed.run.stack.name == "torchtitan" and reference.placed.parallel.compile


def test_its_columns_are_the_tables(page):
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("|")]
    names = {name for row in rows for name in re.findall(r"[a-z]\w+", row) if "_" in name}
    assert names - {"source_left_out", "five_folds"} <= set(header(RUNS))
    bold = {name for row in rows for name in re.findall(r"\*\*(\w+)\*\*", row)}
    assert bold == set(REQUIRED)
    assert all(name in page for name in header(TOTALS) if name != "mfu")
