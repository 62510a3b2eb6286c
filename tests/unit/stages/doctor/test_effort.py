"""Which shapes are measured, and when the time is up."""

from __future__ import annotations

import pytest

from trainwright.stages.doctor import effort as module
from trainwright.stages.doctor.effort import Shapes, effort
from trainwright.stages.doctor.reference import model_spec

EFFORTS = [(kind, thorough) for kind in ("cpu", "cuda") for thorough in (False, True)]


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    return now


def test_the_fastest_precision_comes_first_and_has_every_shape():
    entries = list(Shapes((1, 2, 3), in_every=2).entries(("fp32", "bf16")))
    assert entries == [(1, "bf16"), (1, "fp32"), (2, "bf16"), (2, "fp32"), (3, "bf16")]


def test_the_time_ends_what_is_not_needed(clock):
    measured = []
    for shape in Shapes(("a", "b", "c", "d"), least=1, budget_s=1.0).alone():
        measured.append(shape)
        clock[0] += 0.6
    assert measured == ["a", "b"]


def test_what_is_needed_is_measured_whatever_it_takes(clock):
    measured = []
    for shape in Shapes(("a", "b", "c"), least=2, budget_s=1.0).alone():
        measured.append(shape)
        clock[0] += 100.0
    assert measured == ["a", "b"]


@pytest.mark.parametrize(("kind", "thorough"), EFFORTS)
def test_every_stack_is_a_network_that_exists(kind, thorough):
    shapes = effort(kind, thorough=thorough)
    assert all(model_spec(stack).problems() == () for stack in (*shapes.blocks.shapes, *shapes.growth.shapes))


@pytest.mark.parametrize(("kind", "thorough"), EFFORTS)
def test_memory_is_measured_at_two_depths_of_each_width(kind, thorough):
    depths: dict[int, set[int]] = {}
    growth = effort(kind, thorough=thorough).growth
    for stack in growth.shapes:
        depths.setdefault(stack.width, set()).add(stack.layers)
    assert all(len(layers) == 2 for layers in depths.values())
    assert growth.budget_s == float("inf"), "one depth alone says nothing"


@pytest.mark.parametrize(("kind", "thorough"), EFFORTS)
def test_a_plan_finds_rates_of_both_precisions(kind, thorough):
    """Products, attention and the peak have no other precision to fall back on: each is measured in both."""
    shapes = effort(kind, thorough=thorough)
    for probe in (shapes.linears, shapes.attentions, shapes.squares):
        certain = list(probe.entries(("fp32", "bf16")))[: probe.least or None]
        assert {dtype for _, dtype in certain} == {"fp32", "bf16"}


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_quick_effort_is_bound_by_time(kind):
    shapes = effort(kind, thorough=False)
    limited = [shapes.squares, shapes.linears, shapes.blocks, shapes.losses, shapes.attentions, shapes.matrices]
    assert sum(probe.budget_s for probe in limited) <= 2.0
    assert shapes.short_s < effort(kind, thorough=True).short_s
