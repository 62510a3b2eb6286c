"""Which of the commands of one training makes artefacts; whole runs are in ``tests/system/test_nodes.py``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fixtures.planned_recipe import planned_recipe
from trainwright.core.errors import RecipeError
from trainwright.core.place import Place
from trainwright.pipeline.several import together

RANK = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.fixture
def met(monkeypatch) -> list[Place]:
    """Places that came to a meeting; nothing is made."""
    places: list[Place] = []

    @contextmanager
    def meet(place: Place, recipe: object) -> Iterator[None]:
        places.append(place)
        yield

    monkeypatch.setattr(together, "load", lambda reference, kind: meet)
    monkeypatch.setattr(together.runner, "run", lambda *given, **options: {"made": True})
    return places


def test_a_command_alone_makes_all_and_meets_nobody(met, tmp_path) -> None:
    assert together.run_together(planned_recipe(tmp_path), root=tmp_path) == {"made": True}
    assert met == []


@pytest.mark.parametrize(("rank", "made"), [("0", {"made": True}), ("1", {})])
def test_the_first_command_alone_makes_artefacts(met, tmp_path, monkeypatch, rank, made) -> None:
    for name, value in (RANK | {"RANK": rank}).items():
        monkeypatch.setenv(name, value)
    assert together.run_together(planned_recipe(tmp_path), root=tmp_path) == made
    assert [place.rank for place in met] == [int(rank)]


def test_another_number_of_processes_than_ranks_is_refused_before_they_meet(met, tmp_path, monkeypatch) -> None:
    for name, value in (RANK | {"RANK": "0"}).items():
        monkeypatch.setenv(name, value)
    recipe = planned_recipe(tmp_path)
    how = recipe.train.exec.model_validate({"layout": {"dp_shard": 3}})
    asked = recipe.model_copy(update={"train": recipe.train.model_copy(update={"exec": how})})
    with pytest.raises(RecipeError, match=r"\(seen 2, expected 3\)"):
        together.run_together(asked, root=tmp_path)
    assert met == []
