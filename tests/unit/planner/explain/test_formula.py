import pytest

from fixtures.formulas import evaluated
from trainwright.planner.explain.formula import Explanation, Term


def computed(formula: str, **values: float) -> float:
    terms = tuple(Term(name, value, "", "x") for name, value in values.items())
    return evaluated(Explanation("x", "x", formula, terms, 0.0, ""))


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("a + b × c", 14.0),
        ("(a + b) × c", 20.0),
        ("a - b - c", -5.0),
        ("a / b / c", 2 / 3 / 4),
        ("b × c ^ a", 48.0),
        ("c / (a × b) + 1", 4 / 6 + 1),
        ("0", 0.0),
        ("2 × (b - 1)", 4.0),
    ],
)
def test_formulas_are_ordinary_arithmetic(formula, value):
    assert computed(formula, a=2.0, b=3.0, c=4.0) == pytest.approx(value)


def test_a_symbol_without_a_term_is_our_mistake():
    with pytest.raises(ValueError, match="could not convert"):
        computed("a + q", a=1.0)
