import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.links import is_rate, link, link_names, link_reach, parse_rate


def test_every_link_has_numbers_and_sources():
    assert {"nvlink4", "nvl72", "pcie5", "ib-ndr", "roce-800", "ethernet-25", "efa-100", "ici-v5p"} <= set(link_names())
    for name in link_names():
        spec = link(name)
        assert spec.name == name
        assert 1e8 < spec.bytes_per_s < 2e12, name
        assert 1e-6 < spec.latency_s < 1e-4, name
        assert "latency: " in spec.source, name


@pytest.mark.parametrize(
    ("name", "rate"), [("pcie3", 8e9 * 16 * 128 / 130 / 8), ("pcie5", 32e9 * 16 * 128 / 130 / 8), ("ib-ndr", 400e9 / 8)]
)
def test_line_rates_follow_from_the_signalling(name, rate):
    assert link(name).bytes_per_s == pytest.approx(rate, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("400Gb/s", 50e9), ("400 Gbps", 50e9), ("1.6Tb/s", 200e9), ("50GB/s", 50e9), ("100 Mbit/s", 12.5e6)],
)
def test_bits_and_bytes_are_told_apart(text, rate):
    assert is_rate(text)
    assert parse_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["400", "0Gb/s", "400gb/s", "-1Gb/s", "fast", ""])
def test_what_is_no_rate_is_refused(text):
    with pytest.raises(RecipeError, match="cannot read a rate"):
        parse_rate(text)


def test_reach():
    assert link_reach("nvl72") == 72
    assert link_reach("nvlink3-bridge") == 2
    assert link_reach("nvlink4") is None
    assert not is_rate("nvlink4")


def test_an_unknown_link_names_its_neighbours():
    with pytest.raises(RecipeError, match=r"^plan\.scale_up: unknown link \(seen 'nvlnk4'.*did you mean nvlink4"):
        link("nvlnk4", where="plan.scale_up")
