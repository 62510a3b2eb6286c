"""Writes docs/en/recipe.md and docs/zh/recipe.md from the recipe's own schema: python docs/recipe_reference.py.

The English descriptions stand in the schema. The Chinese ones stand in docs/zh/recipe_descriptions.yaml, each beside
the English text that it translates, so that a new key or a changed description fails until it is translated; all other
Chinese words of the page stand in docs/zh/recipe_words.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from trainwright.core.config.explain import KeyExplanation, explain
from trainwright.spec.recipe import Recipe

DOCS = Path(__file__).parent
DESCRIPTIONS = DOCS / "zh" / "recipe_descriptions.yaml"
WORDS = DOCS / "zh" / "recipe_words.yaml"

LIST_ITEM = "each entry of the list above"
"""What the items of a list of sections are, where their own section does not say it."""


@dataclass(frozen=True, kw_only=True)
class Language:
    """The words of one page.

    ``notes`` say more about sections, by key, above their tables. ``types`` are regular expressions and what they
    become, in order: they turn an English type into the language's. ``translations`` are the descriptions by key; None
    where the schema's stand on the page.
    """

    head: str
    first: str
    columns: Sequence[str]
    required: str
    only: str
    comma: str
    stop: str
    notes: Mapping[str, str] = field(default_factory=dict)
    types: Sequence[tuple[str, str]] = ()
    translations: Mapping[str, str] | None = None

    def described(self, item: KeyExplanation) -> str:
        """Returns what the key means."""
        english = item.doc or (LIST_ITEM if item.key.endswith(".0") else "")
        return english if self.translations is None else self.translations[item.key]

    def typed(self, item: KeyExplanation) -> str:
        """Returns the type in words."""
        text = item.type
        for pattern, replacement in self.types:
            text = re.sub(pattern, replacement, text)
        return text


HEAD = """\
# Recipe reference

<!-- Written by docs/recipe_reference.py; the descriptions stand in src/trainwright/spec/sections/. -->

A recipe is a YAML 1.2 (or JSON) file. What is left out takes its default; an unknown key is an error with a suggestion.
Later layers win: defaults, `--preset`, files in the order given, environment (`TRAINWRIGHT_TRAIN__BATCH_TOKENS=4096`),
`key=value` on the command line. A section's `exec` says how the work is done and never changes a result's address.

Counts may carry a decimal multiplier (`100k`, `1.5M`, `3B`), durations a unit (`300M tok`, `20 tok/param`,
`2000 steps`, `3 epochs`), times one of `ms s min h d w`.

Some keys take `package.module:function` and then run a plug-in of that name; keys of its own stand beside the name
(`filters: [long-lines, {name: my.rules:dull, limit: 3}]`) and are checked like the others. Its code runs with the
rights of the user who runs the recipe: it can read, write and reach the network. Run a recipe from elsewhere only if
you trust the plug-ins that it names.

```bash
trainwright config explain train.duration      # what one key means
trainwright config show recipe.yaml --origin   # every value and where it comes from
trainwright config validate recipe.yaml        # everything that is wrong, at once
trainwright config schema > recipe.schema.json # for editors
```
"""

ENGLISH = Language(
    head=HEAD,
    first="The recipe itself",
    columns=("key", "type", "default", "meaning"),
    required="required",
    only=" (only for {})",
    comma=", ",
    stop=".",
)


def chinese() -> Language:
    """Returns the Chinese page's words.

    Raises:
        SystemExit: a key has no Chinese description, or one whose English text has changed since; names each.
    """
    stored = yaml.safe_load(DESCRIPTIONS.read_text(encoding="utf-8"))
    schema = english_descriptions()
    problems = [f"{key}: no Chinese description" for key in schema if key not in stored]
    problems += [f"{key}: no key of the recipe" for key in stored if key not in schema]
    problems += [
        f"{key}: the English description is now {schema[key]!r}"
        for key, entry in stored.items()
        if key in schema and entry["en"] != schema[key]
    ]
    if problems:
        raise SystemExit(f"{DESCRIPTIONS.name} does not fit the recipe's schema:\n" + "\n".join(problems))
    words = yaml.safe_load(WORDS.read_text(encoding="utf-8"))
    return Language(**words, translations={key: entry["zh"] for key, entry in stored.items()})


def english_descriptions() -> dict[str, str]:
    """Returns the description of every key and section, by dotted key, in the order of the page."""
    descriptions: dict[str, str] = {}

    def add(item: KeyExplanation) -> None:
        descriptions[item.key] = ENGLISH.described(item)
        for member in members(item):
            add(member)

    top = [explain(Recipe, name) for name in Recipe.model_fields]
    for item in [*top, *list_items(top)]:
        add(item)
    return descriptions


def members(item: KeyExplanation) -> list[KeyExplanation]:
    """Returns the keys and sections of a section, then the items of its lists of sections."""
    inside = [explain(Recipe, f"{item.key}.{name}") for name, _ in item.members]
    return [*inside, *list_items(inside)]


def list_items(keys: list[KeyExplanation]) -> list[KeyExplanation]:
    """Returns the items of those keys that are lists of sections; they stand under ``0``."""
    return [explain(Recipe, f"{item.key}.0") for item in keys if item.type.startswith("list of mapping")]


def page(language: Language) -> str:
    """Returns the whole page."""
    top = [explain(Recipe, name) for name in Recipe.model_fields]
    keys = [item for item in top if not item.members]
    parts = [language.head, f"## {language.first}\n", table(keys, language)]
    for item in [*top, *list_items(top)]:
        if item.members:
            parts += sections(item, language, depth=2)
    return "\n".join(parts) + "\n"


def sections(item: KeyExplanation, language: Language, depth: int) -> Iterator[str]:
    """Yields a section: its keys in a table, then the sections in it."""
    inside = members(item)
    yield f"\n{'#' * depth} {item.key}\n\n{sentence(language.described(item), language)}\n"
    if item.key in language.notes:
        yield language.notes[item.key]
    yield table([member for member in inside if not member.members], language)
    for member in inside:
        if member.members:
            yield from sections(member, language, min(depth + 1, 4))


def table(items: list[KeyExplanation], language: Language) -> str:
    """Returns key, type, default and meaning of each as a table."""
    rows = [f"| {' | '.join(language.columns)} |", "|---|---|---|---|"]
    for item in items:
        default = f"**{language.required}**" if item.required else f"`{plain(item.default)}`"
        only = language.only.format(language.comma.join(item.only_for)) if item.only_for else ""
        name = item.key.rpartition(".")[2]
        meaning = language.described(item) + only
        rows.append(f"| `{name}` | {cell(language.typed(item))} | {cell(default)} | {cell(meaning)} |")
    return "\n".join(rows)


def plain(value: object) -> str:
    """Returns a default as YAML would have it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(plain(part) for part in value) + "]"
    return repr(value) if isinstance(value, str) and value.strip() != value else f"{value}"


def cell(text: str) -> str:
    """Returns text that does not break a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def sentence(text: str, language: Language) -> str:
    """Returns a description with a capital letter and a full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + language.stop


if __name__ == "__main__":
    (DOCS / "en" / "recipe.md").write_text(page(ENGLISH), encoding="utf-8")
    (DOCS / "zh" / "recipe.md").write_text(page(chinese()), encoding="utf-8")
