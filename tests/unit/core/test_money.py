import pytest

from trainwright.core.errors import RecipeError
from trainwright.core.money import format_hourly, format_usd, parse_usd


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (273_000, "$273k"),
        (1234, "$1,234"),
        (0.042, "$0.042"),
        (0, "$0"),
        (2.5e6, "$2.5M"),
        (12.345, "$12"),
        (999_999, "$1M"),
        (829e6, "$829M"),
        (22.4e9, "$22.4B"),
    ],
)
def test_money(usd, text):
    assert format_usd(usd) == text


@pytest.mark.parametrize(
    ("text", "usd"),
    [
        ("50k$", 50_000.0),
        ("$50k", 50_000.0),
        ("$ 1.2M", 1_200_000.0),
        ("1,234.50", 1234.5),
        ("$0.5", 0.5),
        ("3 USD", 3.0),
        ("2b", 2e9),
        (75, 75.0),
    ],
)
def test_amounts_of_money(text, usd):
    assert parse_usd(text) == usd


@pytest.mark.parametrize("text", ["", "$", "50 EUR", "-3", "many", True])
def test_what_is_no_amount_of_money_says_what_would_be(text):
    with pytest.raises(RecipeError, match=r"such as '\$50k'"):
        parse_usd(text)


@pytest.mark.parametrize(("usd", "text"), [(1.8675, "$1.87"), (0.05, "$0.05"), (0.0042, "$0.0042"), (0.0, "$0.00")])
def test_a_price_of_an_hour_has_cents_and_is_never_rounded_to_nothing(usd, text):
    assert format_hourly(usd) == text
