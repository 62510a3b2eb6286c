from __future__ import annotations

from dataclasses import replace

import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model
from trainwright.hardware.catalogue.support import check
from trainwright.pipeline.question_fields import read_fields
from trainwright.planner.counts.layouts import FixedLayout
from trainwright.planner.forecast.switches import check_switches
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.search.variants import LEAST_RANK, LEAST_SEQUENCE_TOKENS, singles, together

ASKED = {
    "from the start": {"on": "rtx-4090"},
    "all weights": {"on": "rtx-4090", "method": "full"},
    "adapters": {"on": "rtx-4090", "method": "lora"},
    "as torchtune": {"on": "rtx-4090", "method": "full", "stack": "torchtune"},
    "images": {"model": "resnet-50", "on": "rtx-4090"},
}
SIZES = {"steps", "example_spread"}
"""What follows from other fields."""


def variants(fields):
    asked = Question(model=model(fields.get("model", "llama3-8b")), on=fields["on"], **read(fields))
    run = scenario_of(asked).run
    every = list(singles(run))
    return asked, run, [*every, *together(run, every)]


def read(fields):
    return {**read_fields({name: value for name, value in fields.items() if name not in ("model", "on")})}


@pytest.mark.parametrize("fields", ASKED.values(), ids=ASKED)
def test_what_is_asked_for_is_what_was_changed(fields):
    """The workload of a question with the variant's fields, read as a user types them, is the changed one."""
    asked, run, _ = variants(fields)
    for each in singles(run):
        try:
            changed = replace(run, workload=replace(run.workload, **each.changed))
            check(changed, FixedLayout(offload=each.offload))
            check_switches(changed, FixedLayout(offload=each.offload))
        except RecipeError:  # its software does not run it, and a search leaves it out
            continue
        if not each.asked:
            continue
        question = replace(asked, **read({**fields, **each.asked}))
        got, wanted = scenario_of(question).run.workload, replace(run.workload, **each.changed)
        for name in set(each.changed) - SIZES:
            assert getattr(got, name) == getattr(wanted, name), (each.name, name)


def test_what_is_cut_is_halved_down_to_the_least():
    _, run, _ = variants({"on": "rtx-4090", "method": "lora"})
    every = list(singles(run))
    ranks = [each.changed["adapter"].rank for each in every if each.group == "rank" and len(each.changed) == 1]
    tokens = [each.changed["sequence_tokens"] for each in every if each.group == "shorter" and not each.moves]
    assert run.workload.adapter is not None
    assert ranks == [run.workload.adapter.rank >> power for power in range(1, len(ranks) + 1)]
    assert ranks[-1] == LEAST_RANK and min(tokens) == LEAST_SEQUENCE_TOKENS
    assert all(each.cuts == (each.group in ("rank", "shorter") or "attention" in each.name) for each in every)


def test_several_at_once_never_train_less():
    _, run, every = variants({"on": "rtx-4090"})
    alone = {each.name for each in singles(run)}
    assert any(each.trains_less for each in every)
    assert not any(each.trains_less for each in every if each.name not in alone)
