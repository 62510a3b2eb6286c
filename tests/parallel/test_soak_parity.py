"""Every layout that the fast tests know, in every setting that they know: the whole product (``make soak``).

Nothing is listed here: what is added to ``parallel.cases`` joins.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path

import pytest

from fixtures.started import start
from parallel.cases import CASES, LATER, SLOW_STEPS, SOAKED, STEPS, Case
from parallel.ranks import main
from trainwright.stages.train.layout import refusals

pytestmark = pytest.mark.soak

BLOCKS = 4
"""As many as the deepest pipeline needs."""
LONGER = {STEPS: 10, SLOW_STEPS: 3}
"""How many updates are compared here."""


def distinct(values: Iterator[Case]) -> list[Case]:
    """Each case once, by all that it says."""
    return list({case.name: case for case in values}.values())


EVERY = (*CASES, *SOAKED)
LAYOUTS = distinct(Case(layout=case.layout) for case in EVERY)
SETTINGS = distinct(
    replace(case, layout={}, model={**case.model, "layers": BLOCKS}, steps=LONGER[case.steps]) for case in EVERY
)


def product_of(layout: Mapping[str, object]) -> tuple[Case, ...]:
    """The layout in every setting that it is not refused in."""
    cases = (replace(setting, layout=layout) for setting in SETTINGS)
    return tuple(case for case in cases if not refused(case))


def refused(case: Case) -> list[str]:
    recompute = case.model.get("recompute", getattr(case, "recompute", "none"))
    whole = {"pipelines": not case.taught, "tensors": not case.taught}
    return list(refusals(case.parallel, recompute=recompute, blocks=BLOCKS, **whole))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda case: ",".join(f"{k}={v}" for k, v in case.layout.items()))
def test_a_layout_trains_as_one_process_in_every_setting(layout: Case, tmp_path: Path, record_property) -> None:
    cases = product_of(layout.layout)
    assert cases, [refused(replace(setting, layout=layout.layout)) for setting in SETTINGS[:1]]
    ranks = layout.parallel.ranks
    start(main, ranks, tmp_path, ranks, str(tmp_path), cases)
    found = json.loads((tmp_path / "results.json").read_text())
    record_property("cases", len(cases))
    record_property("worst_fp64_gradient", worst(found, cases, "fp64"))
    record_property("worst_fp32_gradient", worst(found, cases, "fp32"))
    beyond = [
        f"{case.name}: {name} {difference:.1e}"
        for case in cases
        for name, difference in found[case.name].items()
        if math.isnan(difference) or difference > bound(case, name)
    ]
    assert not beyond, "\n".join(beyond)


def bound(case: Case, name: str) -> float:
    """What a quantity may differ by."""
    exact = case.optimizer == "sgd" or "after" not in name
    return case.tolerance if exact else LATER


def worst(found: Mapping[str, Mapping[str, float]], cases: tuple[Case, ...], dtype: str) -> float:
    """The largest difference of a gradient in one precision."""
    differences = (
        difference
        for case in cases
        if case.dtype == dtype
        for name, difference in found[case.name].items()
        if name.startswith("gradient of")
    )
    return max(differences, default=0.0)


def test_the_product_has_all_layouts_and_settings() -> None:
    assert len(LAYOUTS) == len({json.dumps(dict(case.layout), default=str) for case in EVERY})
    assert {field.name for field in fields(Case)} >= {"layout", "family", "dtype", "micro_batch", "optimizer"}
    assert len(SETTINGS) >= 6
