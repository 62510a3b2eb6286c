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
from fixtures.tiny_models import spec
from parallel.cases import CASES, LATER, SLOW_STEPS, SOAKED, STEPS, Case
from parallel.ranks import SECTIONS, main
from trainwright.model.experts.refusals import refusals as of_experts
from trainwright.model.kernels.refusals import of_recompute
from trainwright.spec.sections.task import TASKS
from trainwright.spec.workload import KernelChoice
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
    """What the trainer says before any process starts; whatever it does not refuse must train as one process does."""
    task, optimizer = TASKS[task_of(case)], SECTIONS[case.optimizer]
    shape, kernels = spec(case.family, **case.model), KernelChoice(attention=case.attention)
    how = {"optimizer": case.optimizer, "moments": None, "frozen": "nf4" if case.adapter == "qlora" else None}
    return [
        *refusals(
            case.parallel,
            recompute=case.recompute,
            blocks=BLOCKS,
            family=case.family,
            divides=task.divides,
            pipelines=task.pipelines,
            tensors=task.tensors,
            optimizer=optimizer,
            precision=case.dtype,
            adapts=bool(case.adapter),
            quantised=case.adapter == "qlora",
        ),
        *of_experts(shape, case.parallel, precision=case.dtype, kernels=kernels, **how),
        *of_recompute(kernels, case.recompute),
    ]


def task_of(case: Case) -> str:
    """The name of the task that a case is of."""
    of_whole = {"many": "classify-many", "words": "classify-tokens", "embed": "embed"}
    told = {
        "distill": case.taught,
        "chat": case.chats,
        "reward": case.preference == "reward",
        "preference": bool(case.preference),
        of_whole.get(case.whole, "regress"): bool(case.whole),
        "masked": spec(case.family).kind == "encoder",
        "next-token": True,
    }
    return next(name for name, is_of in told.items() if is_of)


@pytest.fixture(scope="session")
def references(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where stays what one process computes: all layouts are held against the same."""
    return tmp_path_factory.mktemp("references")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda case: ",".join(f"{k}={v}" for k, v in case.layout.items()))
def test_a_layout_trains_as_one_process_in_every_setting(
    layout: Case, references: Path, tmp_path: Path, record_property
) -> None:
    cases = product_of(layout.layout)
    assert cases, [refused(replace(setting, layout=layout.layout)) for setting in SETTINGS[:1]]
    ranks = layout.parallel.ranks
    start(main, ranks, tmp_path, ranks, str(tmp_path), cases, references)
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
