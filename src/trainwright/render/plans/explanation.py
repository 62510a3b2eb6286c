"""A formula of the planner with its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.render.numbers import amount
from trainwright.render.page import Page

if TYPE_CHECKING:
    from trainwright.planner.explain.formula import Explanation, Term


def show_explanation(explanation: Explanation, page: Page) -> None:
    """Shows the formula, its numbers, and what it comes to."""
    page.heading(f"{explanation.name} = {amount(explanation.value, explanation.unit)}: {explanation.about}")
    page.line(f"= {explanation.formula}")
    page.line(f"= {explanation.with_numbers(amount)}")
    page.line()
    page.table(("", "value", "is"), [_term(term) for term in explanation.terms])
    if explanation.details:
        page.line()
        page.table(("", "value", "is"), [_term(term) for term in explanation.details])
    if explanation.source:
        page.line(f"source: {explanation.source}")


def _term(term: Term) -> tuple[str, str, str]:
    return term.symbol, amount(term.value, term.unit), term.meaning
