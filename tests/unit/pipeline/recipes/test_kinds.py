"""The table of kinds: each one is whole, and rates are those of its sources."""

from __future__ import annotations

import pytest

from fixtures.answers import DATA
from trainwright.pipeline.recipes.kinds import KINDS, rate_of
from trainwright.spec.sections.task import TASKS


def test_kinds_are_of_tasks_that_there_are() -> None:
    assert {kind.task["name"] for kind in KINDS.values()} <= set(TASKS)
    assert set(DATA) == set(KINDS), "give the new kind data in fixtures/answers.py"


@pytest.mark.parametrize(
    ("kind", "parameters", "rate"),
    [
        ("pretrain", 125_000_000, 6e-4),  # the sizes of GPT-3's table
        ("pretrain", 1_300_000_000, 2e-4),
        ("pretrain", 6_700_000_000, 1.2e-4),
        ("pretrain", 175_000_000_000, 6e-5),
        ("classify", 110_000_000, 3e-5),
        ("chat-lora", 8_000_000_000, 2e-4),
        ("chat-lora", 2_000_000, 3e-3),
    ],
)
def test_rates(kind, parameters, rate) -> None:
    assert rate_of(KINDS[kind], parameters) == rate


def test_a_kind_without_a_network_of_its_own_needs_weights() -> None:
    needing = {name for name, kind in KINDS.items() if kind.needs_base}
    assert needing == {"continue", "chat", "chat-lora", "chat-qlora", "preference"}
