"""The contract of a filter: what every function in ``data.clean.filters`` promises, as tests to inherit.

::

    class TestMyFilter(FilterContract):
        filter = "my_package.filters:too_short"
        kept = ("a text that it keeps",)
        dropped = ("?",)
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from trainwright.spec.sections.data import CleanSection
from trainwright.stages.data.cleaning.cleaner import Cleaner
from trainwright.stages.data.cleaning.filters import load_filters

STRANGE = ("", " ", "\n\n", "a", "\x00", "é" * 10, "你好", "\U0001f469\u200d\U0001f4bb", "x" * 100_000, "\n" * 10_000)
"""Texts that a filter must take, though it may drop them."""


class FilterContract:
    """What a filter promises. Inherit it and name the filter, with texts that it keeps and drops."""

    filter: ClassVar[str]
    """A name of ours, or ``package.module:function``."""
    keys: ClassVar[dict[str, Any]] = {}
    """Keys beside the name, where the examples need them."""
    kept: ClassVar[tuple[str, ...]] = ()
    dropped: ClassVar[tuple[str, ...]] = ()

    def section(self) -> CleanSection:
        """Returns the recipe's section, with no rule but the filter."""
        return CleanSection.model_validate({"filters": [{"name": self.filter} | self.keys], "min_characters": 0})

    def reasons(self, texts: tuple[str, ...]) -> list[str | None]:
        """Returns what the filter says of each text."""
        (judgement,) = load_filters(self.section().filters)
        return [judgement(text) for text in texts]

    def test_examples_of_both_sides_are_there(self) -> None:
        assert self.kept, "give texts that the filter keeps"
        assert self.dropped, "give texts that the filter drops"

    def test_what_is_kept_has_no_reason(self) -> None:
        assert self.reasons(self.kept) == [None] * len(self.kept)

    def test_what_is_dropped_has_a_reason_of_one_line(self) -> None:
        for reason in self.reasons(self.dropped):
            assert isinstance(reason, str)
            assert reason.strip() == reason != ""
            assert len(reason.splitlines()) == 1

    def test_reasons_are_kinds_and_not_messages(self) -> None:
        """They are counted: one that quotes the text would be counted once."""
        reasons = self.reasons(tuple(f"{text} {number}" for text in self.dropped for number in range(50)))
        assert len(set(reasons)) <= 10 * len(self.dropped)

    @pytest.mark.parametrize("text", STRANGE, ids=range(len(STRANGE)))
    def test_every_text_is_taken(self, text: str) -> None:
        (reason,) = self.reasons((text,))
        assert reason is None or isinstance(reason, str)

    def test_the_answer_depends_on_the_text_alone(self) -> None:
        texts = (*self.kept, *self.dropped, *STRANGE)
        assert self.reasons(texts) == self.reasons(texts)
        assert self.reasons(texts[::-1]) == self.reasons(texts)[::-1]

    def test_a_recipe_names_it(self) -> None:
        assert [Cleaner(self.section())(text)[1] for text in self.dropped] == self.reasons(self.dropped)

    def test_every_key_is_written_down_and_read_back(self) -> None:
        written = self.section().model_dump(mode="json")
        assert CleanSection.model_validate(written) == self.section()
        (filter_written,), (filter_read,) = written["filters"], self.section().filters
        names = {"name"} if isinstance(filter_written, str) else filter_written.keys()
        assert names == type(filter_read).model_fields.keys()
