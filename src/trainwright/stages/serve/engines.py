"""The engine that a server generates with."""

from __future__ import annotations

from pathlib import Path

from trainwright.core.plug_in import blaming, not_an_instance
from trainwright.spec.generation import Generator
from trainwright.spec.sections.serve import ENGINES


def open_engine(name: str, directory: Path, *, places: int) -> Generator:
    """Returns the engine called ``name`` (or at ``package.module:function``), with the directory's model loaded.

    Raises:
        RecipeError: no such engine; or it does not support the model.
        DataError: the model is missing or damaged.
    """
    make = ENGINES.load(name)
    with blaming(name, where="serve.engine"):
        engine = make(directory, places=places)
        if not isinstance(engine, Generator):
            raise not_an_instance(engine, Generator)
    return engine
