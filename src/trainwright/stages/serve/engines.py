"""The engine that a server generates with."""

from __future__ import annotations

from pathlib import Path

from trainwright.core.errors import MachineError
from trainwright.core.plug_in import blaming, not_an_instance
from trainwright.spec.generation import Generator
from trainwright.spec.sections.serve import ENGINE, EngineSection


def open_engine(section: EngineSection, directory: Path, *, places: int) -> Generator:
    """Returns the engine that a section names, with the directory's model loaded.

    Raises:
        RecipeError: no such engine; or it does not support the model.
        DataError: the model is missing or damaged.
        MachineError: the memory does not hold it, or the cache for so many places.
    """
    make = ENGINE.bound(section, EngineSection)
    with blaming(section.name, where="serve.engine"):
        try:
            engine = make(directory, places=places)
        except MachineError as error:
            if error.field != "max_concurrent":
                raise
            raise error.at("serve.max_concurrent") from error
        if not isinstance(engine, Generator):
            raise not_an_instance(engine, Generator)
    return engine
