import io
from dataclasses import asdict

import pytest

from trainwright.cli.audit import row_text, show, value_text
from trainwright.cli.output import Output
from trainwright.planner.audit import Audit, Row


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0.5, "s", "500 ms"), (1 << 30, "bytes", "1 GiB"), (12345.6, "tokens/s", "12,346 tokens/s"), (0.25, "", "25.0%")],
)
def test_values_are_printed_in_their_unit(value, unit, text):
    assert value_text(value, unit) == text


def test_both_ratios_and_every_row_are_shown():
    rows = (
        Row(group="step", quantity="forward", unit="s", predicted=1.0, measured=1.1, ratio=1.1),
        Row(group="step", quantity="data_wait", unit="s", predicted=0.0, measured=0.001, ratio=None),
    )
    found = asdict(Audit(rows=rows, seconds_ratio=1.1, memory_ratio=0.97))
    stream = io.StringIO()
    show(found, Output(command="audit", stdout=stream))
    assert stream.getvalue().startswith("measured / predicted: training time 1.10, peak memory 0.97")
    assert row_text(found["rows"][0])[-1] == "1.10"
    assert row_text(found["rows"][1]) == ("step", "data wait", "0 s", "1 ms", "")
