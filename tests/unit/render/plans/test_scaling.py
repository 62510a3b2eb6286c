from __future__ import annotations

import pytest

from fixtures.page import WrittenPage
from trainwright.planner.cost.scaling_laws import DEFAULT_LAW, LAWS
from trainwright.render.plans.scaling import (
    FITTED,
    Scaling,
    critical_batches,
    laws_for,
    over_training_document,
    scaling_document,
    show,
)


def scaling(flops):
    return Scaling(
        title="a budget", laws=laws_for(flops=flops), batches=critical_batches(2e12, 2.0), over_training=None, run=None
    )


def test_each_law_spends_the_whole_budget():
    laws = laws_for(flops=1e21)
    assert [each.law for each in laws] == list(LAWS)
    for each in laws:
        # Published coefficients are rounded.
        assert 6 * each.parameters * each.tokens == pytest.approx(1e21, rel=0.1)


def test_a_law_answers_for_a_model_too():
    assert [each.parameters for each in laws_for(parameters=7e9)] == pytest.approx([7e9] * len(LAWS))


def test_outside_the_fitted_sizes_it_says_extrapolated():
    page = WrittenPage()
    show(scaling(1e27), page)
    assert max(each.parameters for each in laws_for(flops=1e27)) > FITTED[1]
    assert page.lines[-2].startswith("extrapolated: ")


def test_the_default_law_is_the_headline():
    page, answer = WrittenPage(), scaling(1e21)
    show(answer, page)
    assert answer.best.law == DEFAULT_LAW == scaling_document(answer)["law"]
    assert page.headings[0].startswith("a budget: ") and len(page.tables["critical batch"]) == 2


def test_a_smaller_model_pays_when_it_is_served():
    text = over_training_document(1e9, 1e12)["text"]
    assert text.startswith("on 1T tokens it takes ") and "being smaller, it pays after" in text
