"""Pages about the planner: the speeds that they print are those that it says today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trainwright.cli import main as cli
from trainwright.hardware.catalogue.models import model
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.layout import parse_layout
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of

PAGES = [Path(__file__).parents[3] / "docs" / language / "planner.md" for language in ("en", "zh")]
STACKS = ({}, {"stack": "torchtitan"}, {"stack": "torchtitan", "layout": parse_layout("compile=true")})
"""What is said of the software, in the order in which the pages print its speeds."""


def speed(**said):
    question = Question(model=model("llama3-8b"), on="8xh100-sxm", **said)
    estimate = planned(scenario_of(question)).plan.estimate
    return f"{estimate.tokens_per_s:,.0f}"


@pytest.mark.parametrize("page", PAGES, ids=["en", "zh"])
def test_the_speeds_by_software_are_those_of_today(page):
    (row,) = re.findall(r"^\| (?:software|软件) \|.*$", page.read_text(encoding="utf-8"), re.MULTILINE)
    printed = re.findall(r"\d\d,\d{3}", row)
    assert printed == [speed(**said) for said in STACKS]


def test_the_verdict_on_two_kinds_of_devices_is_todays(capsys):
    have = "8xa100-80gb+8xh100-sxm"
    asked = ["recommend", "--model", "llama3-8b", "--tokens", "100B", "--have", have, "--devices", "h100-sxm"]
    assert cli.main(asked) == 0
    verdict = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("use both"))
    for page in PAGES:
        text = " ".join(page.with_name("recommend.md").read_text(encoding="utf-8").split())
        assert f"*{verdict}*" in text
