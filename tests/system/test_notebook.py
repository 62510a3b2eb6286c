"""The notebook of the documentation, executed by a kernel of its own as Jupyter does it."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "docs" / "first-run.ipynb"
pytestmark = pytest.mark.slow


SHORTER = {
    "300 steps": "12 steps",
    "every_steps: 100": "every_steps: 6",
    "warmup: 20": "warmup: 2",
    "{kind: python-stdlib}": "{kind: files, paths: [corpus], include: ['*.txt']}",
    "vocabulary: 2048": "vocabulary: 300",
    "log_every_steps: 5": "log_every_steps: 2, compile: false",
}
"""What the test puts in place of the recipe's own values."""


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The notebook after a run of its cells, on a small corpus and with few updates."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    recipe = notebook.cells[1]
    for long, short in SHORTER.items():
        assert long in recipe.source
        recipe.source = recipe.source.replace(long, short)
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "corpus").mkdir()
    for number in range(200):
        text = " ".join(f"word {number * place % 17} of line {place}" for place in range(40))
        (folder / "corpus" / f"{number}.txt").write_text(f"{number}: {text}")
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def outputs_of(cell):
    """The HTML and the text that a cell shows."""
    html = [each.data["text/html"] for each in cell.outputs if "text/html" in each.get("data", {})]
    return html, "".join(each.text for each in cell.outputs if each.output_type == "stream")


def test_a_plan_says_whether_it_fits(executed):
    assert re.fullmatch(r"fits \d+ MiB, about \d+ s\n", outputs_of(executed.cells[3])[1])


def test_the_area_ends_with_what_was_done_and_the_curves_of_the_losses(executed):
    (area, page), text = outputs_of(executed.cells[5])
    assert "train: 12/12 steps (100%)" in area and "evaluate: done in" in area
    assert "<progress" not in area, "a task is left running"
    assert area.count("<polyline") == 2 and re.search(r"validation/loss</span> [\d.]+ at step 6, ", area)
    assert not text, "progress was printed beside its area"
    assert page.startswith("<div><iframe") and "first-run" in page


def test_what_was_made_is_there(executed):
    (result,) = executed.cells[7].outputs
    assert "bits_per_byte" in result.data["text/plain"]
