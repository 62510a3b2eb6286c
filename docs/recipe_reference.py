"""Writes docs/en/recipe.md from the recipe's own schema: python docs/recipe_reference.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.core.config import explain
from trainwright.core.config.explain import Explanation
from trainwright.spec.recipe import Recipe

HEAD = """\
# Recipe reference

<!-- Written by docs/recipe_reference.py; the descriptions stand in src/trainwright/spec/recipe*.py. -->

A recipe is a YAML 1.2 (or JSON) file. What is left out takes its default; an unknown key is an error with a suggestion.
Later layers win: defaults, `--preset`, files in the order given, environment (`TRAINWRIGHT_TRAIN__BATCH_TOKENS=4096`),
`key=value` on the command line. A section's `exec` says how the work is done and never changes a result's address.

Counts may carry a decimal multiplier (`100k`, `1.5M`, `3B`), durations a unit (`300M tok`, `20 tok/param`,
`2000 steps`, `3 epochs`), times one of `ms s min h d w`.

```bash
trainwright config explain train.duration      # what one key means
trainwright config show recipe.yaml --origin   # every value and where it comes from
trainwright config validate recipe.yaml        # everything that is wrong, at once
trainwright config schema > recipe.schema.json # for editors
```
"""


LIST_ITEM = "each entry of the list above"


def page() -> str:
    """The whole page."""
    top = [explain(Recipe, name) for name in Recipe.model_fields]
    own = [item for item in top if not item.members]
    parts = [HEAD, "## The recipe itself\n", table(own)]
    for item in top:
        if item.members:
            parts += sections(item, depth=2)
    return "\n".join(parts) + "\n"


def sections(item: Explanation, depth: int) -> Iterator[str]:
    """A section: its keys in a table, then the sections in it."""
    members = [explain(Recipe, f"{item.key}.{name}") for name, _ in item.members]
    yield f"\n{'#' * depth} {item.key}\n\n{sentence(item.doc or LIST_ITEM)}\n"
    yield table([member for member in members if not member.members])
    if item.key == "data":
        members.append(explain(Recipe, "data.sources.0"))
    for member in members:
        if member.members:
            yield from sections(member, min(depth + 1, 4))


def table(items: list[Explanation]) -> str:
    """Key, type, default and meaning of each."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for item in items:
        default = "**required**" if item.required else f"`{plain(item.default)}`"
        only = f" (kind {', '.join(item.only_for)})" if item.only_for else ""
        name = item.key.rpartition(".")[2]
        rows.append(f"| `{name}` | {cell(item.type)} | {cell(default)} | {cell(item.doc + only)} |")
    return "\n".join(rows)


def plain(value: object) -> str:
    """A default as YAML would have it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(plain(part) for part in value) + "]"
    return repr(value) if isinstance(value, str) and value.strip() != value else f"{value}"


def cell(text: str) -> str:
    """Text that does not break a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def sentence(text: str) -> str:
    """A description with a capital letter and a full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


if __name__ == "__main__":
    (Path(__file__).parent / "en" / "recipe.md").write_text(page(), encoding="utf-8")
