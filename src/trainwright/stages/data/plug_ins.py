"""Code that a data section names as ``package.module:name``."""

from __future__ import annotations

from trainwright.core.registry import is_reference
from trainwright.spec.sections.data import DataSection


def plug_ins(section: DataSection) -> tuple[str, ...]:
    """Returns the references to code outside the project that a section names, in order."""
    names = {source.kind for source in section.sources} | {each.name for each in section.clean.filters}
    return tuple(sorted(name for name in names if is_reference(name)))
