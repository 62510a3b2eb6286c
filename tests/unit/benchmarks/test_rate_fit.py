"""The fit of rates: stacks that follow others, and what rows are multiplied by that is measured."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainwright.core.errors import RecipeError

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def fit():
    """The module, which imports its neighbours by name."""
    pytest.importorskip("scipy")
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import rate_fit
    finally:
        sys.path.remove(str(BENCHMARKS))
    return rate_fit


def follow(monkeypatch, fit, **earlier):
    monkeypatch.setattr(fit, "read_stack", lambda name: SimpleNamespace(follows=earlier.get(name)))


def test_a_stack_stands_before_the_releases_that_it_follows(fit, monkeypatch):
    follow(monkeypatch, fit, third="second", second="first")
    assert fit.lineage("third") == ["third", "second", "first"]
    assert fit.lineage("first") == ["first"]


@pytest.mark.parametrize("earlier", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "b"}])
def test_releases_that_lead_back_to_themselves_are_refused(fit, monkeypatch, earlier):
    follow(monkeypatch, fit, **earlier)
    with pytest.raises(RecipeError, match="a release is its own successor") as caught:
        fit.lineage("a")
    assert "a after" in str(caught.value)
