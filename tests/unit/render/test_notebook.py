from __future__ import annotations

import re
import sys
from types import ModuleType, SimpleNamespace
from xml.etree import ElementTree as ET

import pytest

from trainwright.render import notebook
from trainwright.render.notebook import MOST_POINTS, NotebookProgress, curves, in_notebook
from trainwright.spec.event import Event


def event(t_s, kind, name, value=0.0, **more):
    return Event(run="r", t_s=t_s, kind=kind, name=name, value=value, **more)


def shown(*events):
    """Every drawing of an area that sees these events, the last one when the work has ended."""
    drawings = []
    with NotebookProgress(drawings.append) as progress:
        for each in events:
            progress(each)
    for html in drawings:
        ET.fromstring(html.replace("&nbsp;", " "))  # each element is closed
    return drawings


def losses(*values, name="train/loss"):
    return [event(10.0 + step / 1000, "metric", name, value, step=step) for step, value in enumerate(values, 1)]


def test_a_running_task_is_a_bar_with_its_rate():
    running = shown(
        event(1.0, "progress", "train", 0.0, total=200.0, unit="steps"),
        event(11.0, "progress", "train", 50.0, total=200.0, unit="steps"),
    )[-1]
    assert ET.fromstring(running).find("div/progress").attrib == {"max": "200", "value": "50"}
    assert "50/200 steps (25%), 5 steps/s, 30 s left" in running


def test_what_is_done_is_a_line_and_no_bar():
    done = shown(
        event(1.0, "progress", "train", 0.0, total=2.0, unit="steps"),
        event(3.0, "progress", "train", 2.0, total=2.0, unit="steps"),
        event(4.0, "stage", "train", 1.0, text="done in 3 s"),
        event(5.0, "message", "", text="a < b"),
    )[-1]
    assert "<progress" not in done
    lines = ET.fromstring(done).find("pre").text.splitlines()
    assert lines == ["train: 2/2 steps (100%), 1 steps/s, took 2 s", "train: done in 3 s", "a < b"]


def test_losses_fall_on_the_screen_as_they_do_in_numbers():
    svg = ET.fromstring(f"<div>{curves({'train/loss': [(0, 4.0), (10, 2.0), (20, 3.0)]})}</div>").find("svg")
    points = [tuple(map(float, pair.split(","))) for pair in svg.find("polyline").get("points").split()]
    (left, top), (middle, bottom), (right, between) = points
    assert middle - left == right - middle > 0
    assert bottom - top == pytest.approx(2 * (between - top))
    assert 0 < top < bottom < float(svg.get("height")) and right < float(svg.get("width"))


def test_curves_say_in_words_what_they_show():
    drawn = shown(*losses(4.0, float("nan"), 2.0), *losses(3.5, 3.0, name="validation/loss"))[-1]
    assert drawn.count("<polyline") == 2 and "nan" not in drawn
    assert "train/loss</span> 4 at step 1, 2 at step 3" in drawn
    assert "validation/loss</span> 3.5 at step 1, 3 at step 2" in drawn


def test_one_point_and_equal_losses_are_drawn_without_a_division_by_nothing():
    assert "<svg" not in shown(*losses(4.0))[-1]
    assert "<polyline" in shown(*losses(4.0, 4.0))[-1]


def test_long_curves_keep_their_ends_and_few_points():
    drawn = shown(*losses(*(float(step) for step in range(1, 20_001))))[-1]
    points = re.search(r'points="([^"]+)"', drawn).group(1).split()
    assert MOST_POINTS / 2 <= len(points) < 2 * MOST_POINTS
    assert "1 at step 1, 2e+04 at step 20,000" in drawn


def test_a_training_that_goes_back_draws_the_steps_again_and_another_training_begins_anew():
    before = (*losses(4.0, 3.0, 2.0), event(11.0, "resume", "train", 1.0, step=1))
    again = event(12.0, "metric", "train/loss", 2.5, step=2)
    drawn = shown(*before, again)[-1]
    assert "train/loss</span> 4 at step 1, 2.5 at step 2" in drawn and drawn.count("<circle") == 2
    other = (event(13.0, "stage", "tune", 0.0), event(13.0, "stage", "evaluate", 0.0))
    assert "2.5 at step 2" in shown(*before, again, *other)[-1]
    drawn = shown(*before, again, *other, *losses(0.5, 0.4))[-1]
    assert "train/loss</span> 0.5 at step 1, 0.4 at step 2" in drawn and drawn.count("<circle") == 2


def test_it_is_drawn_now_and_then_and_at_the_end():
    events = [event(1.0 + number / 100, "message", "", text=f"line {number}") for number in range(101)]
    drawings = shown(*events)
    assert len(drawings) == 4  # at 0, 0.5 and 1 s, and when it ends
    assert "line 100" in drawings[-1]


def test_other_ranks_are_not_shown():
    assert "told" not in shown(event(1.0, "message", "", text="told", rank=1))[-1]


@pytest.mark.parametrize(
    ("shell", "expected"), [(None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=object()), True)]
)
def test_a_notebook_is_known_by_its_kernel(monkeypatch, shell, expected):
    found = ModuleType("IPython")
    found.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", found)
    assert in_notebook() is expected


def test_without_ipython_there_is_no_notebook(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not in_notebook()


def test_a_page_stays_inside_its_frame(tmp_path, monkeypatch):
    page, seen = tmp_path / "report.html", []
    page.write_text('<p class="x">a & b</p>', encoding="utf-8")
    display = SimpleNamespace(HTML=lambda html: html, display=seen.append)
    monkeypatch.setattr(notebook, "import_module", lambda name: display)
    notebook.show_page(page)
    frame = ET.fromstring(seen[0]).find("iframe")
    assert frame.get("srcdoc") == '<p class="x">a & b</p>'
