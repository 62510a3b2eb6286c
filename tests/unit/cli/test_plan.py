import json
import subprocess
import sys

import pytest

from fixtures.planned_recipe import TEXT
from trainwright.cli import main as cli
from trainwright.cli import plan as command
from trainwright.hardware.record import Machine
from trainwright.spec.plan import Rental
from trainwright.testing.machine import fake_facts, fake_machine


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(TEXT)
    return "r.yaml"


@pytest.fixture
def on(monkeypatch):
    return lambda machine: monkeypatch.setattr(command, "_machine", lambda recipe, root: machine)


def test_the_verdict_comes_first_and_everything_it_rests_on_after(recipe, on, capsys):
    on(fake_machine())
    assert cli.main(["plan", recipe]) == 0
    out = capsys.readouterr().out
    assert out.startswith("fits: ")
    for word in ("memory at the peak", "backward", "MFU", "h100-sxm", "micro_batch=4", "rests on", "probed"):
        assert word in out


def test_what_does_not_fit_exits_with_1_and_says_how_it_would(recipe, on, capsys):
    on(fake_machine(memory_bytes=100 << 20))
    assert cli.main(["plan", recipe]) == 1
    assert capsys.readouterr().out.startswith("does not fit: needs ")


def test_json_holds_the_whole_plan(recipe, on, capsys):
    on(fake_machine())
    assert cli.main(["plan", recipe, "train.duration=7 steps", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "trainwright.plan/1"
    assert document["plan"]["workload"]["steps"] == 7


def test_an_unmeasured_machine_is_planned_and_told_how_to_measure(recipe, on, capsys):
    on(Machine(facts=fake_facts()))
    assert cli.main(["plan", recipe]) == 0
    assert "trainwright doctor r.yaml" in capsys.readouterr().err


def test_facts_of_this_machine_are_enough(recipe):
    code = (
        "import sys; from trainwright.cli.main import main; code = main(['plan', 'r.yaml', '-q'])\n"
        "sys.exit(9 if 'torch' in sys.modules else code)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode in (0, 1)


def test_unknown_costs_are_unknown():
    plain = Rental(
        device="t4", provider="", price_kind="", usd_per_device_hour=None, fits=True, seconds=10, usd=None, source="",
        as_of="", seconds_low=5, seconds_high=20, reason="no checked price is known",
    )  # fmt: skip
    assert command.rental_row(plain)[1:] == ("5 s to 20 s", "unknown", "unknown", "no checked price is known")
