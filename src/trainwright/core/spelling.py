"""What a user meant by a name that is not known: the nearest known one, and characters that only look right.

A Cyrillic o in ``mоdel`` or a long dash before an option cannot be seen by a reader: an error names the character.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches

REMARK = "what was written has"

_TWINS = str.maketrans(
    {
        # Cyrillic
        **dict(zip("авекмнорстухѕіјԁԛԝһ", "abekmhopctyxsijdqwh", strict=True)),
        **dict(zip("АВЕКМНОРСТУХЅІЈ", "ABEKMHOPCTYXSIJ", strict=True)),
        # Greek
        **dict(zip("αικνορυχ", "aiknopux", strict=True)),
        **dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABEZHIKMNOPTYX", strict=True)),
        # Latin letters without a dot, dashes, minus, quotes
        **dict(zip("ıȷɡɑ", "ijga", strict=True)),
        **dict.fromkeys("\u2010\u2011\u2012\u2212\u00ad", "-"),
        **dict.fromkeys("\u2013\u2014\u2015", "--"),
        **dict.fromkeys("\u2018\u2019\u02bc", "'"),
        **dict.fromkeys("\u201c\u201d\u201f", '"'),
        # Characters without a width
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", ""),
    }
)


def with_article(noun: str) -> str:
    """Returns ``an audit``, ``a plan``."""
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


def counted(count: int, noun: str) -> str:
    """Returns ``1 file``, ``2,000 files``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Returns ``did you mean 'x'?`` for the nearest known name, or None where none is near.

    Where ``name`` holds characters that only look like those of the known one, they are named.
    """
    near = get_close_matches(ascii_twin(name), list(known), n=1, cutoff=0.6)
    hints = (f"did you mean {near[0]!r}?" if near else None, foreign_characters(name))
    return " ".join(hint for hint in hints if hint) or None


def unknown(name: str, known: Iterable[str]) -> dict[str, str | None]:
    """Returns what an error says of an unknown name: it was seen, all known are expected, the nearest is advised."""
    names = list(known)
    return {"seen": repr(name), "expected": f"one of {', '.join(names)}", "fix": did_you_mean(name, names)}


def ascii_twin(text: str) -> str:
    """Returns ``text`` with each look-alike replaced by the ASCII that it looks like; other characters stay."""
    return unicodedata.normalize("NFKC", text.translate(_TWINS))


def foreign_characters(text: str) -> str | None:
    """Returns a remark that names the look-alikes of ``text``, or None where it has none.

    For example: ``what was written has 'о' (U+043E, CYRILLIC SMALL LETTER O)``.
    """
    seen = dict.fromkeys(character for character in text if not character.isascii() and ascii_twin(character).isascii())
    return f"{REMARK} {', '.join(_named(character) for character in seen)}" if seen else None


def _named(character: str) -> str:
    shown = f"{character!r} " if character.isprintable() else ""
    return f"{shown}(U+{ord(character):04X}, {unicodedata.name(character, 'a control character')})"
