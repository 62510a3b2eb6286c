"""Terms beside a task's loss, as recipes say them."""

from __future__ import annotations

import pytest

from trainwright.spec.sections.updates.loss import PLAIN, LossSection


@pytest.mark.parametrize(
    ("terms", "targets", "weights"),
    [
        ({}, False, False),
        ({"label_smoothing": 0.1}, True, False),
        ({"z_weight": 1e-4}, True, False),
        ({"l1_weight": 1e-5}, False, True),
        ({"l2_weight": 1e-5, "z_weight": 1e-4}, True, True),
    ],
)
def test_terms_are_of_targets_or_of_weights(terms, targets, weights):
    section = LossSection(**terms)
    assert (section.changes_targets, section.penalises) == (targets, weights)
    assert (section == PLAIN) is (not terms)


@pytest.mark.parametrize("terms", [{"label_smoothing": 1.0}, {"label_smoothing": -0.1}, {"z_weight": -1}, {"l1": 1}])
def test_what_is_no_term_is_refused(terms):
    with pytest.raises(ValueError, match=next(iter(terms))):
        LossSection(**terms)
