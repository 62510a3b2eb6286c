from trainwright.planner.cost.assumptions import of_price
from trainwright.spec.device import Price


def price(**changes):
    known = {"usd_per_device_hour": 2.5, "kind": "spot", "provider": "AWS", "region": "us-east-1", "as_of": "2c3d7ea"}
    return Price(**{**known, "source": "a list", **changes})


def test_a_price_says_where_it_holds_and_when_it_was_written():
    dated, unknown = of_price(price(date="2026-01-02")), of_price(price())
    assert (dated.name, dated.value, dated.origin) == ("price (spot)", 2.5, "catalog")
    assert dated.source == "AWS us-east-1, of 2026-01-02; a list@2c3d7ea"
    assert unknown.source == "AWS us-east-1, of an unknown day; a list@2c3d7ea"
    assert of_price(price(doubt="near the floor")).source.startswith("doubtful: near the floor; ")
    given = of_price(price(source="given"))
    assert (given.origin, given.source) == ("given", "")


def test_a_price_says_which_instance_is_rented_and_how_much_of_it_stands_idle():
    whole = of_price(price(instance="g4dn.12xlarge", idle_devices=3))
    assert whole.source == "AWS us-east-1, g4dn.12xlarge (3 of its devices idle), of an unknown day; a list@2c3d7ea"
    assert "g4dn.xlarge, of" in of_price(price(instance="g4dn.xlarge")).source
