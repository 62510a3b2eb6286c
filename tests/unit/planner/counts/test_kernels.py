"""Kinds of work and fields of kernels, against the sources that fill them."""

from dataclasses import fields

from trainwright.planner.counts.kernels import KINDS, Exposure
from trainwright.planner.counts.work import Work
from trainwright.planner.rates.catalogue import WORK_OF, Rates


def test_every_count_that_takes_time_is_of_one_kind():
    counts = [name for kind in KINDS for name in WORK_OF[kind]]
    timed = {each.name for each in fields(Work) if each.name.endswith("_s")} | {"kernels", "expert_layers"}
    assert sorted(counts) == sorted(timed)


def test_what_is_made_of_communication_is_part_of_the_catalogues_rates():
    assert {each.name for each in fields(Exposure)} < {each.name for each in fields(Rates)}
