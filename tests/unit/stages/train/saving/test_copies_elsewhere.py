"""A training's checkpoints go to another place, and a machine without any goes on from there."""

from __future__ import annotations

from uuid import uuid4

import fsspec
import pytest

from trainwright.runtime.elsewhere import Elsewhere


@pytest.fixture(params=["memory", "file", "folder"])
def place(request, tmp_path) -> str:
    name = uuid4().hex
    return {"memory": f"memory://{name}", "file": f"file://{tmp_path}/there", "folder": str(tmp_path / "there")}[
        request.param
    ]


def recipe_of(make_recipe, place: str, **more):
    return make_recipe(exec_checkpoint_to=place, exec_checkpoint_every=1e-9, **more)


def names(place: str, out) -> list[str]:
    system, path = fsspec.core.url_to_fs(place)
    return sorted(each.rsplit("/", 1)[-1] for each in system.ls(f"{path}/{out.name}", detail=False))


def test_another_machine_goes_on_to_the_same_bits(make_recipe, inputs_for, train, tmp_path, place) -> None:
    def stop(event) -> None:
        if event.kind == "progress" and event.value == 5:
            raise SystemExit(137)

    recipe = recipe_of(make_recipe, place)
    inputs = inputs_for(recipe)
    train(make_recipe(), inputs, tmp_path / "whole")
    here, there = tmp_path / "here" / "train-1.partial", tmp_path / "new" / "train-1"
    with pytest.raises(SystemExit):
        train(recipe, inputs, here, (stop,))
    assert names(place, there) == ["step-00000003", "step-00000004"]
    said: list[str] = []
    train(recipe, inputs, there, (lambda event: said.append(str(event)),))
    assert any("step-00000004 comes from where checkpoints go" in each for each in said)
    bits = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in ("whole", "new/train-1")]
    assert bits[0] == bits[1]
    assert names(place, there) == ["step-00000007", "step-00000008"]


def test_a_later_one_here_wins(make_recipe, inputs_for, train, tmp_path) -> None:
    recipe = recipe_of(make_recipe, f"memory://{uuid4().hex}")
    inputs = inputs_for(recipe)
    train(recipe, inputs, tmp_path / "train-1")
    elsewhere = Elsewhere(recipe.train.exec.checkpoint_to, tmp_path / "train-1")
    assert elsewhere.fetch(tmp_path / "there", after=8) is None
    fetched = elsewhere.fetch(tmp_path / "there", after=7)
    assert fetched is not None and fetched.name == "step-00000008"
