from datetime import UTC, datetime, timedelta

import pytest

from trainwright.core.errors import DataError
from trainwright.hardware.prices.own import checked_row
from trainwright.hardware.prices.skypilot import COLUMNS

ROW = dict.fromkeys(COLUMNS, "") | {
    "device": "t4",
    "provider": "AWS",
    "kind": "on_demand",
    "usd_per_device_hour": "0.5",
    "date": "2026-01-02",
}


def test_a_right_row_has_the_catalogues_names():
    row = checked_row(ROW | {"device": "NVIDIA T4", "provider": "aws"}, where="own.csv:2")
    assert row == ROW


@pytest.mark.parametrize(
    ("column", "value", "line"),
    [
        ("device", "t44", "unknown device"),
        ("instance", "g4\ndn", r"cannot be printed \(seen instance 'g4\\ndn'"),
        ("region", "us\0", "cannot be printed"),
        ("provider", "cloudy", "unknown cloud"),
        ("kind", "spott", "unknown kind of price.*did you mean 'spot'"),
        ("usd_per_device_hour", "abc", "no price.*'abc'"),
        ("usd_per_device_hour", "", "no price"),
        ("usd_per_device_hour", "inf", "no price"),
        ("usd_per_device_hour", "nan", "no price"),
        ("usd_per_device_hour", "-1", "no price"),
        ("usd_per_device_hour", "0", "no price"),
        ("date", "yesterday", "no date"),
        ("date", "2999-01-01", "no date"),
        ("as_of", "2999-01-01", "no date"),
    ],
)
def test_a_wrong_value_is_refused_with_its_line(column, value, line):
    with pytest.raises(DataError, match=f"own.csv:7: {line}"):
        checked_row(ROW | {column: value}, where="own.csv:7")


def test_today_is_no_day_to_come_and_a_commit_is_no_day():
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    assert checked_row(ROW | {"date": tomorrow, "as_of": "2c3d7ea"}, where="")["date"] == tomorrow
