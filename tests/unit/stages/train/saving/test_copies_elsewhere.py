"""A training's checkpoints go to another place, and a machine without any goes on from there."""

from __future__ import annotations

import json
from uuid import uuid4

import fsspec
import pytest

from trainwright.artifact.checkpoint.index import checkpoints_in
from trainwright.core.errors import MachineError
from trainwright.stages.train.saving.elsewhere import Elsewhere


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


@pytest.mark.parametrize("has", ["nothing", "the newest"])
def test_another_machine_has_the_best_weights_too(make_recipe, inputs_for, train, tmp_path, place, has) -> None:
    """So it has where its first start ended when the newest checkpoint had come and the best had not."""

    def stop(event) -> None:
        if event.kind == "progress" and event.value == 5:
            raise SystemExit(137)

    keys = {"early_stopping": {"by": "max loss", "patience": 2}, "validation": {"every_steps": 2}}  # the first is best
    recipe = recipe_of(make_recipe, place, **keys)
    inputs = inputs_for(recipe)
    with pytest.raises(SystemExit):
        train(recipe, inputs, tmp_path / "here" / "train-1.partial", (stop,))
    if has == "the newest":
        root = tmp_path / "new" / "train-1" / "checkpoints"
        assert Elsewhere(recipe.train.exec.checkpoint_to, tmp_path / "new" / "train-1").fetch(root, after=-1)
    train(recipe, inputs, tmp_path / "new" / "train-1")
    summary = json.loads((tmp_path / "new" / "train-1" / "summary.json").read_text())
    assert (summary["steps"], summary["early_stopping"]["result_step"]) == (6, 2)


def test_a_later_one_here_wins(make_recipe, inputs_for, train, tmp_path) -> None:
    recipe = recipe_of(make_recipe, f"memory://{uuid4().hex}")
    inputs = inputs_for(recipe)
    train(recipe, inputs, tmp_path / "train-1")
    elsewhere = Elsewhere(recipe.train.exec.checkpoint_to, tmp_path / "train-1")
    assert elsewhere.fetch(tmp_path / "there", after=8) is None
    fetched = elsewhere.fetch(tmp_path / "there", after=7)
    assert fetched is not None and fetched.name == "step-00000008"


def test_a_place_that_takes_nothing_is_found_before_the_first_step(make_recipe, inputs_for, train, tmp_path) -> None:
    recipe, seen = recipe_of(make_recipe, "/proc/nope"), []
    with pytest.raises(MachineError, match="train.exec.checkpoint_to: cannot reach the place"):
        train(recipe, inputs_for(recipe), tmp_path / "train-1", (seen.append,))
    assert not any(event.kind == "progress" for event in seen)


@pytest.fixture
def store(monkeypatch):
    """A place that is down while this is set; nothing of it answers."""
    down = []
    system = type(fsspec.filesystem("memory"))
    for name in ("makedirs", "put_file", "pipe_file", "rm_file", "ls"):
        answer = getattr(system, name)

        def asked(self, *rest, answer=answer, **by):
            if down:
                raise ConnectionError("the store is down")
            return answer(self, *rest, **by)

        monkeypatch.setattr(system, name, asked)
    return down


def test_a_place_that_is_down_for_a_while_ends_nothing(make_recipe, inputs_for, train, tmp_path, store) -> None:
    """What it lacks is copied once it is back: those that are kept for good too."""
    said: list[str] = []

    def listen(event) -> None:
        if event.kind == "message":
            said.append(event.text)
        if event.kind == "progress" and event.value in (2, 6):
            store[:] = ["down"] if event.value == 2 else []

    place = f"memory://{uuid4().hex}"
    recipe = recipe_of(make_recipe, place, exec_keep_every_steps=4)
    train(recipe, inputs_for(recipe), tmp_path / "train-1", (listen,))
    assert any("could not be copied, which is tried again with the next one" in text for text in said)
    assert any("the store is down" in text for text in said) and any("again: none is missing" in text for text in said)
    expected = ["step-00000004", "step-00000007", "step-00000008"]
    assert names(place, tmp_path / "train-1") == expected
    assert [path.name for path in checkpoints_in(tmp_path / "train-1" / "checkpoints")] == expected


def test_a_place_that_stays_down_costs_no_step(make_recipe, inputs_for, train, tmp_path, store) -> None:
    def listen(event) -> None:
        if event.kind == "progress" and event.value == 2:
            store.append("down")

    place, out = f"memory://{uuid4().hex}", tmp_path / "train-1"
    recipe = recipe_of(make_recipe, place)
    inputs = inputs_for(recipe)
    train(make_recipe(), inputs, tmp_path / "whole")
    with pytest.raises(MachineError, match="all steps are made, and their checkpoints cannot be copied") as caught:
        train(recipe, inputs, out, (listen,))
    assert "the store is down" in str(caught.value) and "step-00000008, which is complete" in str(caught.value)
    assert [path.name for path in checkpoints_in(out / "checkpoints")] == ["step-00000007", "step-00000008"]
    store.clear()
    seen: list = []
    train(recipe, inputs, out, (seen.append,))
    assert not any(event.kind == "progress" for event in seen), "no step is made again"
    assert names(place, out) == ["step-00000007", "step-00000008"]
    bits = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in ("whole", "train-1")]
    assert bits[0] == bits[1]
    measured = [
        json.loads((tmp_path / folder / "summary.json").read_text())["validation"] for folder in ("whole", "train-1")
    ]
    assert measured[0] == measured[1]
