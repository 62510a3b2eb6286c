from trainwright.planner.counts.parallel.dry_run import DryRank, ratio


def test_one_side_alone_has_no_ratio() -> None:
    assert ratio(3.0, 2.0) == 1.5
    assert ratio(0.0, 0.0) == 1.0
    assert ratio(1.0, 0.0) is None
    assert ratio(0.0, 1.0) is None


def test_the_sum_is_compared_too() -> None:
    counted = {"weights": 4.0, "gradients": 4.0, "optimizer": 8.0, "activations": 0.0, "communication": 2.0}
    planned = {"weights": 4.0, "gradients": 2.0, "optimizer": 8.0, "activations": 0.0, "communication": 0.0}
    rank = DryRank(rank=0, alike=1, shares={}, memory=counted, planned_memory=planned, sent=(), planned_sent=())
    ratios = rank.ratios()
    assert (ratios["weights"], ratios["gradients"], ratios["activations"]) == (1.0, 2.0, 1.0)
    assert ratios["communication"] is None
    assert ratios["total"] == 18 / 14
