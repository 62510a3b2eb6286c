from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from trainwright.stages.data.funnel import EXAMPLES, Funnel, total

EVENTS = st.lists(
    st.tuples(st.sampled_from(["broken", "dropped"]), st.sampled_from("abc"), st.integers(0, 99)), max_size=60
)


def counted(events, first=0):
    funnel = Funnel()
    for number, (kind, reason, size) in enumerate(events, first):
        funnel.read.add(size)
        funnel.lose(getattr(funnel, kind), reason, size, f"place {number}")
    return funnel


@given(events=EVENTS, cut=st.integers(0, 60))
def test_merging_parts_in_order_equals_counting_in_one_go(events, cut):
    merged = counted(events[:cut])
    merged.merge(counted(events[cut:], first=len(events[:cut])))
    assert merged == counted(events)


@given(events=EVENTS)
def test_json_and_back(events):
    funnel = counted(events)
    assert Funnel.from_json(json.loads(json.dumps(funnel.to_json()))) == funnel


def test_examples_are_the_first_few():
    funnel = counted([("dropped", "a", 1)] * 20)
    assert funnel.examples["a"] == [f"place {n}" for n in range(EXAMPLES)]
    assert funnel.dropped["a"].documents == 20


def test_reasons_stand_by_falling_count():
    funnel = counted([("dropped", "rare", 1)] + [("dropped", "often", 1)] * 3 + [("dropped", "also rare", 1)])
    assert list(funnel.to_json()["dropped"]) == ["often", "also rare", "rare"]


def test_total_adds_sources():
    assert total([counted([("broken", "a", 5)]), counted([("broken", "a", 7)])]).to_json()["broken"] == {
        "a": {"documents": 2, "bytes": 12}
    }
