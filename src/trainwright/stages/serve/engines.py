"""The engine that a server generates with."""

from __future__ import annotations

from pathlib import Path

from trainwright.core.plug_in import blaming, not_an_instance
from trainwright.spec.generation import Generator
from trainwright.spec.sections.serve import ENGINE, EngineSection


def open_engine(section: EngineSection, directory: Path, *, places: int) -> Generator:
    """Returns the engine that a section names, with the directory's model loaded.

    Raises:
        RecipeError: no such engine; or it does not support the model.
        DataError: the model is missing or damaged.
    """
    make = ENGINE.bound(section, EngineSection)
    with blaming(section.name, where="serve.engine"):
        engine = make(directory, places=places)
        if not isinstance(engine, Generator):
            raise not_an_instance(engine, Generator)
    return engine
