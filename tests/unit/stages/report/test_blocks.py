from __future__ import annotations

from trainwright.stages.report.blocks import FULL_PX, HALF_PX, NARROW_PX, Cell, Figure, Sample, Table
from trainwright.stages.report.charts import Lines, Series

CHART = Lines(title="Loss", x_title="x", y_title="y", series=[Series(name="a", xs=[1, 2], ys=[1.0, 2.0], tone=0)])


def test_a_figure_is_drawn_wide_and_narrow():
    ((view, wide, narrow, words),) = Figure(views=[("", CHART)], wide=True).drawings()
    assert (view, f'width="{FULL_PX}"' in wide, f'width="{NARROW_PX}"' in narrow) == ("", True, True)
    assert f'width="{HALF_PX}"' in Figure(views=[("", CHART)]).drawings()[0][1]
    assert words.startswith("Loss")


def test_a_tables_cells_know_their_column():
    table = Table(title="t", columns=["name", "value"], rows=[["a", Cell(text="1", tone="good")]], right=(1,))
    assert table.cells() == [[(Cell(text="a"), False, "name"), (Cell(text="1", tone="good"), True, "value")]]


def test_a_table_wider_than_a_phone_becomes_a_list_there():
    narrow = Table(title="t", columns=["quantity", "predicted", "measured"], rows=[["a long name " * 9, "1 s", "2 s"]])
    wide = Table(title="t", columns=["quantity", "value", "source"], rows=[["a", "1", "x" * 40]])
    assert (narrow.is_list_on_a_phone, wide.is_list_on_a_phone) == (False, True)
    assert Table(title="t", columns=["a"], rows=[]).is_list_on_a_phone is False


def test_a_sample_marks_its_overlap_once():
    sample = Sample(prompt="p", completion="abcabc", note="", overlap="bc")
    assert sample.parts() == ("a", "bc", "abc")
    assert Sample(prompt="p", completion="abc", note="").parts() == ("abc", "", "")
    assert Sample(prompt="p", completion="abc", note="", overlap="zz").parts() == ("abc", "", "")
