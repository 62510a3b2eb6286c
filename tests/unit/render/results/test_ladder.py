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
    assert chunked == ("chunked-loss", "not tried", "", "", "", "", "", "", "")
    assert fused[-1] == "0 of 1e-02"


STAYS = Comparison(
    chosen="given",
    reason="what was decided is 0.90x as fast (0.88 to 0.92): the recipe stays as it was given",
    before=measured(600.0),
    tuned=measured(540.0),
    after=measured(600.0),
    gain=Interval(low=0.88, mid=0.9, high=0.92),
    predicted_before=PredictedStep(tokens_per_s=600.0, memory_bytes=3 * GIB),
    predicted=PredictedStep(tokens_per_s=660.0, memory_bytes=3 * GIB),
    loss_difference=2e-4,
    tolerance=3e-2,
)
BETTER = replace(STAYS, chosen="tuned", reason="", tuned=measured(720.0), gain=Interval(low=1.1, mid=1.2, high=1.3))


def test_the_recipe_as_given_stands_beside_the_tuned_one() -> None:
    page = WrittenPage()
    show(replace(LADDER, given=STAYS, tuned={}), page)
    *_, given, tuned = page.tables["technique"]
    assert given == ("as given", "", "", "", "600", "600", "4 GiB", "3 GiB", "")
    assert tuned == ("tuned", "no", "0.90x (0.88 to 0.92)", "1.10x", "540", "660", "4 GiB", "3 GiB", "2e-04 of 3e-02")
    assert f"the recipe as given: {STAYS.reason}" in page.lines


def test_the_headline_is_the_last_comparisons_where_there_is_one() -> None:
    """The naive configuration computes 200 tokens/s: 600 and 720 are three times that, and 3.6 times."""
    assert headline(replace(LADDER, given=STAYS, tuned={})) == (
        "gpt2-124m on EPYC: what was decided is 0.90x as fast (0.88 to 0.92): the recipe stays as it was given; "
        "3.00x the naive configuration's tokens/s"
    )
    assert headline(replace(LADDER, given=BETTER)) == (
        "gpt2-124m on EPYC: tuned, 1.20x (1.10 to 1.30) as fast as the recipe as given, predicted 1.10x; "
        "3.60x the naive configuration's tokens/s; kept: bf16, fused-update"
    )
    alone = Comparison(chosen="tuned", reason="the recipe as given cannot be trained here: no memory")
    assert "2.50x as fast as the naive" in headline(replace(LADDER, given=alone))


def test_the_picture_ends_with_the_last_comparison(tmp_path) -> None:
    texts = texts_of(lambda path: draw(replace(LADDER, given=STAYS, tuned={}), path), tmp_path)
    assert "as given" in texts and "tuned" not in texts
    assert any(text.startswith("gpt2-124m: stays as given, 3.00x the naive") for text in texts)
    texts = texts_of(lambda path: draw(replace(LADDER, given=BETTER), path), tmp_path)
    assert "tuned" in texts and "gpt2-124m: 3.60x the naive configuration" in texts


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
    assert "  kept: the reason of bf16" in text and "  not tried: one chunk" in text
    (note,) = page.notes
    assert note.startswith("this machine's speed changed by more than 10% while compile was measured")


def test_the_picture_begins_with_the_naive_throughput(tmp_path) -> None:
    texts = texts_of(lambda path: draw(LADDER, path), tmp_path)
    assert {"naive", "bf16", "compile", "fused-update", "tuned", "2.00x", "1.01x", "1.25x"} <= texts
    assert "chunked-loss" not in texts
