from dataclasses import replace

from fixtures.page import WrittenPage
from trainwright.hardware.catalogue.accelerators import NEVER_RUN, NEVER_RUN_KEY
from trainwright.hardware.catalogue.models import model
from trainwright.planner.cost.assumptions import OTHER_PROGRAMS
from trainwright.planner.plan.cluster import plan_run
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.render.plans.first_screen import WIDTH, memory_bar, show_first
from trainwright.spec.plan import Assumption


def planned(on):
    return plan_run(scenario_of(Question(model=model("llama3-8b"), on=on, tokens=10**12)))


def test_the_bar_has_a_letter_for_each_share_of_the_memory():
    plan = planned("4x8xh100-sxm")
    bar = memory_bar(plan)
    _, inside, legend = bar.split("|")
    assert len(inside) == WIDTH
    memory, there = plan.estimate.memory, plan.estimate.memory_available_bytes
    assert abs(inside.count(".") - WIDTH * (1 - memory.total_bytes / there)) <= 1
    assert abs(inside.count("a") - WIDTH * memory.activations / there) <= 1
    assert legend.startswith(" activations ") and bar.isascii()


def test_what_is_beyond_the_memory_stands_behind_a_second_stroke():
    plan = planned("rtx-4090")
    memory, there = plan.estimate.memory, plan.estimate.memory_available_bytes
    _, inside, beyond, legend = memory_bar(plan).split("|")
    assert len(inside) == round(WIDTH * there / memory.total_bytes) and len(inside + beyond) == WIDTH
    assert "." not in inside + beyond and "o" in beyond
    assert legend.startswith(" optimizer ")


def test_the_bar_stands_in_forty_columns():
    *_, legend = (bar := memory_bar(planned("rtx-4090"))).split("|")
    assert len("  " + bar.removesuffix(legend)) <= 40


def test_what_nobody_has_run_is_said_on_the_first_screen():
    plan, page = planned("4x8xh100-sxm"), WrittenPage()
    never = Assumption("training on TPUs", NEVER_RUN, "", "default", "make gpu", key=NEVER_RUN_KEY)
    entries = (*plan.estimate.assumptions, never)
    show_first(page, replace(plan, estimate=replace(plan.estimate, assumptions=entries)), following="")
    assert "training on TPUs: never run on hardware" in page.lines


def test_that_other_programs_ran_beside_a_measurement_is_said_on_the_first_screen():
    """Else a reader sees a wide range, and not what to do about it."""
    plan, page = planned("4x8xh100-sxm"), WrittenPage()
    busy = Assumption("other programs", "90%", "of the processors", "probed", "measure again", key=OTHER_PROGRAMS)
    entries = (*plan.estimate.assumptions, busy)
    show_first(page, replace(plan, estimate=replace(plan.estimate, assumptions=entries)), following="")
    assert "other programs: 90% of the processors; measure again" in page.lines
