"""What commands tell each other of a training; whole runs are in ``tests/system/test_nodes.py``."""

from __future__ import annotations

import json
from dataclasses import replace

from fixtures.planned_recipe import plan_of
from trainwright.artifact.store import MANIFEST
from trainwright.core.place import Place
from trainwright.spec.recipe import Recipe
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train.ranks.rank import RankTask
from trainwright.stages.train.ranks.several.together import SHARED, _seen, _told, node_configuration


def task_in(tmp_path, make_recipe) -> RankTask:
    recipe = make_recipe(optimizer={"name": "muon", "muon_lr": 0.01}, exec_checkpoint_every="90 s")
    plan = replace(plan_of(recipe), parallel=ParallelPlan(dp_shard=6))
    inputs = {"dataset": tmp_path / "dataset"}
    return RankTask(
        recipe=recipe, plan=plan, inputs=inputs, digests={"dataset": "abc"}, out=tmp_path, root=tmp_path, group="x-1"
    )


def test_a_call_tells_the_recipe_whole_and_places_that_every_host_finds(make_recipe, tmp_path) -> None:
    task = task_in(tmp_path, make_recipe)
    told = json.loads(json.dumps(_told(task)))
    assert Recipe.model_validate(told.pop("recipe")) == task.recipe
    at = str(tmp_path)
    assert told == {"inputs": {"dataset": f"{at}/dataset"}, "digests": {"dataset": "abc"}, "out": at, "root": at}


def test_inputs_are_compared_by_digest_and_what_is_absent_says_why(tmp_path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder, text in ((here, "{}"), (there, "{ }")):
        folder.mkdir()
        (folder / MANIFEST).write_text(text)
    seen = [_seen({"dataset": folder}, tmp_path)["digest of dataset"] for folder in (here, there, here)]
    assert seen[0] == seen[2] != seen[1]
    absent = _seen({"dataset": tmp_path / "none"}, tmp_path / "neither")
    assert set(absent.values()) == {SHARED}


def test_each_node_starts_its_share_of_the_ranks_under_its_own_number(make_recipe, tmp_path) -> None:
    task = task_in(tmp_path, make_recipe)
    place = Place(rank=1, commands=3, host="first", port=29400)
    how = node_configuration(place, task, 7.0)
    assert (how.min_nodes, how.max_nodes, how.nproc_per_node, how.run_id) == (3, 3, 2, "x-1")
    assert (how.rdzv_backend, how.rdzv_endpoint, how.rdzv_configs["rank"]) == ("static", "first:29400", 1)
    assert how.rdzv_configs["timeout"] == 7
