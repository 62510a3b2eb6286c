from __future__ import annotations

from dataclasses import replace

from fixtures.drawings import texts_of
from fixtures.ladders import GIB, LADDER, measured
from fixtures.page import WrittenPage
from trainwright.planner.evidence.ladder import Comparison, PredictedStep
from trainwright.render.results.ladder import draw, headline, show
from trainwright.spec.plan import Interval


def test_the_table_has_measured_beside_predicted() -> None:
    page = WrittenPage()
    show(LADDER, page)
    naive, bf16, compiled, chunked, fused = page.tables["technique"]
    assert naive == ("naive", "", "", "", "200", "200", "4 GiB", "4 GiB", "")
    assert bf16[:4] == ("bf16", "yes", "2.00x (1.80 to 2.20)", "1.80x")
    assert bf16[4:] == ("400", "360", "4 GiB", "3 GiB", "3e-05 of 1e-02")
    assert compiled[1] == "no"
    assert chunked == ("chunked-loss", "no", "", "", "", "", "", "", "")
    assert fused[-1] == "0 of 1e-02"


def test_the_recipe_as_given_stands_beside_the_tuned_one() -> None:
    page, reason = WrittenPage(), "what was decided is 0.90x as fast"
    gain = Interval(low=0.88, mid=0.9, high=0.92)
    predicted = PredictedStep(tokens_per_s=600.0, memory_bytes=3 * GIB)
    both = Comparison(
        chosen="given",
        reason=reason,
        before=measured(500.0),
        tuned=measured(450.0),
        after=measured(500.0),
        gain=gain,
        predicted_before=predicted,
        predicted=predicted,
    )
    show(replace(LADDER, given=both), page)
    *_, given, tuned = page.tables["technique"]
    assert given == ("as given", "", "", "", "500", "600", "4 GiB", "3 GiB", "")
    assert tuned == ("tuned", "no", "0.90x (0.88 to 0.92)", "", "450", "600", "4 GiB", "3 GiB", "")
    assert f"the recipe as given: {reason}" in page.lines


def test_the_headline_says_what_all_brought() -> None:
    assert headline(LADDER) == (
        "gpt2-124m on EPYC: 2.50x as fast as the naive configuration (2.15 to 2.86), predicted 2.70x; "
        "kept: bf16, fused-update"
    )
    assert "no technique helps" in headline(replace(LADDER, rungs=LADDER.rungs[1:2]))


def test_each_technique_says_what_it_changes_and_why_it_is_kept() -> None:
    page = WrittenPage()
    show(LADDER, page)
    text = "\n".join(page.lines)
    assert "bf16 (train.exec.bf16=true): what bf16 does." in text
    assert "  kept: the reason of bf16" in text and "  not kept: one chunk" in text
    (note,) = page.notes
    assert note.startswith("this machine's speed changed by more than 10% while compile was measured")


def test_the_picture_begins_with_the_naive_throughput(tmp_path) -> None:
    texts = texts_of(lambda path: draw(LADDER, path), tmp_path)
    assert {"naive", "bf16", "compile", "fused-update", "tuned", "2.00x", "1.01x", "1.25x"} <= texts
    assert "chunked-loss" not in texts
