"""From a document as found to a document as kept, or to the reason why it is not."""

from __future__ import annotations

import re
import unicodedata

from trainwright.core.errors import RecipeError
from trainwright.core.plug_in import blaming
from trainwright.core.registry import is_reference
from trainwright.spec.sections.data import CleanSection
from trainwright.stages.data.cleaning.filters import Filter, load_filters

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")
"""Unicode's category Cc without tab, line feed, form feed and carriage return, which text uses."""
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class Cleaner:
    """Normalises text and says what is not worth keeping.

    Args:
        section: the recipe's rules.

    Raises:
        RecipeError: a filter cannot be found.
    """

    def __init__(self, section: CleanSection) -> None:
        self._rules = section
        functions = enumerate(zip(section.filters, load_filters(section.filters), strict=True))
        self._filters = tuple(
            _blamed(each.name, function, key=f"data.clean.filters.{number}") if is_reference(each.name) else function
            for number, (each, function) in functions
        )

    def __call__(self, text: str) -> tuple[str, str | None]:
        """Returns the cleaned text and None, or the text so far and the reason to drop it.

        Cleaning a cleaned text changes nothing.
        """
        text = self.normalised(text)
        return text, self.reason_to_drop(text)

    def normalised(self, text: str) -> str:
        """Returns a text as it is kept; one with lone surrogates stays as it is."""
        rules = self._rules
        text = text.lstrip("\ufeff") if text.startswith("\ufeff") else text
        if not text.isascii() and _SURROGATE.search(text):
            return text
        if rules.newlines == "unix" and "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        if rules.unicode != "none" and not text.isascii():
            text = unicodedata.normalize("NFC" if rules.unicode == "nfc" else "NFKC", text)
        return text

    def reason_to_drop(self, text: str) -> str | None:
        """Returns why a normalised text is not kept, or None."""
        rules = self._rules
        if not text.isascii() and _SURROGATE.search(text):
            return "lone surrogates, which UTF-8 cannot say"
        if len(text) < rules.min_characters:
            return f"under {rules.min_characters} characters" if text else "empty"
        if rules.min_characters and text.isspace():
            return "only whitespace"
        if rules.max_characters is not None and len(text) > rules.max_characters:
            return f"over {rules.max_characters} characters"
        if rules.max_control_ratio < 1 and len(_CONTROL.findall(text)) > rules.max_control_ratio * len(text):
            return f"over {rules.max_control_ratio:.0%} control characters"
        reasons = (filtered(text) for filtered in self._filters)
        return next((reason for reason in reasons if reason is not None), None)


def _blamed(name: str, function: Filter, *, key: str) -> Filter:
    """Returns a plug-in's filter whose exceptions and wrong answers are one line under its key."""

    def reason_to_drop(text: str) -> str | None:
        try:
            with blaming(name, where=key):
                reason = function(text)
                if not (reason is None or isinstance(reason, str)):
                    raise TypeError(f"a filter returns None or a reason to drop, not {reason!r}")
                return reason
        except RecipeError as error:
            raise error.at(key, what=f"{error.what} on a text that begins {text[:40]!r}") from error

    return reason_to_drop
