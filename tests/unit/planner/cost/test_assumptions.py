import math

from fixtures.questions import scenario
from trainwright.hardware.catalogue.accelerators import NEVER_RUN, NEVER_RUN_KEY
from trainwright.hardware.catalogue.devices import find_device
from trainwright.hardware.catalogue.efficiency import read_efficiency
from trainwright.planner.cost.assumptions import FEW_ROWS, THIN, of_accelerator, of_measured, of_price, of_trainer
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


def test_this_trainer_was_never_run_on_a_device_without_a_result_file_nor_on_one_without_a_record():
    for name, title in (("tpu-v5p", "TPUs"), ("gaudi3", "gaudi3"), ("mi300x", "ROCm devices")):
        (line,) = of_accelerator(find_device(name))
        assert (line.name, line.value, line.key) == (f"training on {title}", NEVER_RUN, NEVER_RUN_KEY)
    assert of_accelerator(find_device("xeon-8480plus")) == ()
    assert of_trainer(scenario(on="8xascend-910b2", stack="mindspeed").run) == ()


def test_rates_say_how_many_measured_runs_stand_behind_them():
    """The counts are those of the tables that the rates are fitted to; their sum is in every line."""
    rows = read_efficiency().rows
    assert set(rows) == set(read_efficiency().seen) and rows["npu"] < FEW_ROWS < rows["hopper"]
    many = of_measured(scenario().run)
    assert (many.value, many.key, many.source) == (rows["hopper"], "measured", f"of {sum(rows.values()):,} {FITTED}")
    few = of_measured(scenario(on="8xascend-910b2", method="lora").run)
    wider = math.exp(read_efficiency().doubt["generation"])
    assert (few.value, few.key) == (rows["npu"], THIN)
    assert few.source.startswith(f"none with software 'default': the range is wider, by a factor of {wider:.2f}")
    rare = of_measured(scenario(on="8xp100-sxm-16gb").run)
    assert (rare.value, rare.key) == (rows["pascal"], THIN)
    assert "none with software 'default': the range is wider, by a factor of 1.31" in rare.source
    theirs = of_measured(scenario(on="8xascend-910b2", stack="mindspeed").run)
    assert theirs.key == THIN and "none with" not in theirs.source
    borrowed = of_measured(scenario(on="8xascend-910b2", stack="hf-peft").run)
    assert "none with software 'hf-peft', whose rates are those of 'hf-trainer'" in borrowed.source
    nobody = of_measured(scenario(on="xeon-8480plus").run)
    assert (nobody.value, nobody.origin) == (0, "default") and nobody.source.startswith("never measured: ")


FITTED = "that all rates are fitted to"
