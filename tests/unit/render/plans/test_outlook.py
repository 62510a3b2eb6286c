from __future__ import annotations

from fixtures.recommend import option, printed
from trainwright.planner.search.offers import OWN
from trainwright.planner.search.ranking import Goals, ranked
from trainwright.render.plans.outlook import outlook

SLOW, FAST = option(seconds=100 * 60.0, usd=1.0), option(seconds=40 * 60.0, usd=5.0, price_kind="on_demand")
OWNED = option(seconds=400 * 60.0, usd=0.0, provider=OWN, price_kind=None, device="a100-sxm-80gb")


def lines(*options, unfit=(), **goals):
    return outlook(ranked(options, (), Goals(**goals)), lambda each: each.cluster, unfit=unfit)


def test_what_is_there_has_its_line_with_the_reason_why_it_is_not_the_answer():
    assert (
        lines(SLOW, OWNED, deadline_s=6000.0)[0]
        == "best use of what is there: 8xa100-sxm-80gb: 4.00 times the deadline"
    )
    assert lines(FAST, OWNED, budget_usd=9.0) == ["best use of what is there: 8xa100-sxm-80gb"]
    assert "the run does not fit" in lines(FAST, unfit=["l4"], budget_usd=9.0)[0]
    # The answer itself stands above already.
    assert lines(OWNED, budget_usd=9.0) == []


def test_only_the_best_of_what_is_there_is_called_so():
    other = option(seconds=200 * 60.0, usd=0.0, provider=OWN, price_kind=None, device="v100-sxm-32gb")
    assert lines(OWNED, other) == ["also there: 8xa100-sxm-80gb"], "the faster one is the answer"
    assert lines(FAST, OWNED, other, deadline_s=6000.0)[:2] == [
        "best use of what is there: 8xv100-sxm-32gb: 2.00 times the deadline",
        "also there: 8xa100-sxm-80gb: 4.00 times the deadline",
    ]


def test_a_deadline_has_its_odds_and_the_next_that_surely_is_in_time():
    odds, stops = lines(SLOW, FAST, deadline_s=6000.0)
    assert odds == "about an even chance to be in time; surely in time (19 of 20): 8xh100-sxm"
    assert stops.endswith("(Nebius spot): interruptions to expect 3, a checkpoint every 10 min 00 s")
    assert lines(SLOW, deadline_s=7000.0)[0] == "about a chance of 6 in 10 to be in time; nothing surely is"
    assert lines(FAST, deadline_s=6000.0) == ["surely in time: at most 1 h 20 min in 19 of 20 such runs"]
    assert lines(FAST, budget_usd=9.0) == []


def test_all_of_them_stand_on_the_first_screen(capsys):
    asked = ("--devices", "h100-sxm", "--cloud", "nebius", "--have", "8xa100-80gb+l4", "--deadline", "3d")
    out = printed(capsys, *asked).partition("best of each device")[0]
    assert (
        "best use of what is there: 8xa100-sxm-80gb (own), " in out and "what is there: l4: the run does not fit" in out
    )
    assert "to be in time" in out or "surely in time" in out


def test_a_given_rate_is_the_commands_and_says_how_long_the_answer_takes_at_it(capsys):
    out = printed(capsys, "--devices", "h100-sxm", "--cloud", "nebius", "--rate", "400TFLOP/s", "--deadline", "30d")
    assert "at the rate that is given, if each device held it: " in out.partition("best of each device")[0]
    assert "--rate 400TFLOP/s" in out.splitlines()[-1]
