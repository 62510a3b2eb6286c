"""Commands that meet: threads of one process here (``conftest``); processes in ``tests/system``."""

from __future__ import annotations

import copy
import json
import re
import threading
import time
from dataclasses import replace
from functools import partial

import pytest

from trainwright import __version__
from trainwright.core.errors import MachineError, RecipeErrors, TrainingError
from trainwright.core.place import Place
from trainwright.stages.train.ranks.several import meeting as module
from trainwright.stages.train.ranks.several.meeting import Meeting, differences, facts_of, meeting


def test_commands_that_are_alike_go_on(each) -> None:
    results = each(lambda here: here.agree("start", {"version": "1"}))
    assert [came.result(60) for came in results] == [None] * 3


def test_every_command_ends_with_every_difference(each) -> None:
    def act(here: Meeting) -> None:
        rank = here.place.rank
        here.agree("start", {"version of torch": "2.13" if rank != 1 else "2.11", "seed": "5" if rank != 2 else "7"})

    for came in each(act):
        with pytest.raises(RecipeErrors) as raised:
            came.result(60)
        first, second = str(raised.value).splitlines()
        assert "node 1 on " in first
        assert "another version of torch than node 0 (seen 2.11, expected 2.13 as on" in first
        assert "node 2 on " in second
        assert "another seed than node 0 (seen 7, expected 5" in second


def test_the_first_command_says_what_all_take_for_true(each) -> None:
    said = each(lambda here: here.of_the_first("gone-1", f"as {here.place.rank} sees it"))
    assert [came.result(60) for came in said] == ["as 0 sees it"] * 3


def test_those_who_go_on_without_a_node_move_up(place) -> None:
    here = Meeting(place, 5.0)
    seen = [replace_place(here, rank).without({1}).place for rank in (0, 2)]
    assert [(each.rank, each.commands) for each in seen] == [(0, 2), (1, 2)]
    assert here.place == place, "the meeting itself stays"


def test_several_nodes_leave_at_once(place) -> None:
    here = Meeting(replace(place, commands=4), 5.0)
    fewer = replace_place(here, 3).without({1, 2})
    assert (fewer.place.rank, fewer.place.commands, fewer.members) == (1, 2, (0, 3))


def test_no_other_training_begins_where_a_node_was_left_out(place) -> None:
    here = Meeting(place, 5.0)
    here.without({1}).without({1})
    assert here.store.check(["gone/1", "gone/2"]), "nobody waits for them"
    with pytest.raises(MachineError, match="left out of the training before this one: node 1, 2; run the same command"):
        here.call({})


def replace_place(here: Meeting, rank: int) -> Meeting:
    other = copy.copy(here)
    other.place = replace(here.place, rank=rank)
    return other


def test_a_verdict_counts_though_the_first_command_ended_right_after_it(each, monkeypatch) -> None:
    """The first one says both between two looks of another command, which has looked for the verdict alone."""
    looked = threading.Event()

    def act(here: Meeting) -> None:
        has, all_there = (partial(vars(Meeting)[name], here) for name in ("_has", "_all_there"))

        def late(key: str) -> bool:
            found = has(key)
            if key == "start/verdict" and not found:
                looked.set()
                while not has("end"):
                    time.sleep(0.01)
            return found

        if here.place.leads:
            monkeypatch.setattr(here, "_all_there", lambda about: (all_there(about), looked.wait(30)))
        elif here.place.rank == 1:
            monkeypatch.setattr(here, "_has", late)
        try:
            here.agree("start", {"seed": str(here.place.rank)})
        finally:
            if here.place.leads:
                here.store.set("end", json.dumps({"what": "they differ", "exit_code": 2}))

    for came in each(act):
        with pytest.raises(RecipeErrors):
            came.result(60)


def test_a_fact_that_one_command_lacks_is_a_difference() -> None:
    said = [{"host": "a", "facts": {"x": "1", "y": "2"}}, {"host": "b", "facts": {"x": "1", "z": "3"}}]
    found = differences(said, "rank")
    assert [(each["seen"], each["expected"]) for each in found] == [("none", "2 as on a"), ("3", "none as on a")]
    assert all(each["template"].startswith("rank 1 on b has another ") for each in found)


def test_versions_and_mathematics_are_compared_and_how_it_is_run_is_not(make_recipe) -> None:
    facts = facts_of(make_recipe(exec_threads=1))
    assert facts["version of trainwright"] == __version__
    assert facts == facts_of(make_recipe(exec_threads=2))
    other = facts_of(make_recipe(exec_threads=1, clip_norm=3.5))
    assert {name for name in facts if facts[name] != other[name]} == {"train.clip_norm"}


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_processors_that_compute_other_directions_of_muon_differ(make_recipe, monkeypatch, optimizer) -> None:
    found = []
    for native in (True, False):
        monkeypatch.setattr(module, "native_bf16", lambda native=native: native)
        found.append(facts_of(make_recipe(optimizer={"name": optimizer})))
    differing = {name for name in found[0] if found[0][name] != found[1][name]}
    assert differing == ({"processor for Muon"} if optimizer == "muon" else set())


def test_code_of_plug_ins_is_compared(make_recipe, tmp_path, monkeypatch) -> None:
    """Also of one that is installed, whose version says less than its code."""
    (tmp_path / "acme_rules-1.2.dist-info").mkdir()
    (tmp_path / "acme_rules-1.2.dist-info" / "METADATA").write_text("Name: acme-rules\nVersion: 1.2\n")
    (tmp_path / "acme_rules-1.2.dist-info" / "top_level.txt").write_text("acme_rules\n")
    code = tmp_path / "acme_rules.py"
    code.write_text("def rate(done, section): return 1.0 - done\n")
    monkeypatch.syspath_prepend(tmp_path)
    recipe = make_recipe(schedule={"name": "acme_rules:rate"})
    found = []
    for body in ("1.0 - done", "1.0"):
        code.write_text(f"def rate(done, section): return {body}\n")
        facts = facts_of(recipe)
        found.append({name: facts[name] for name in facts if name.startswith("code of")})
    assert [list(each) for each in found] == [["code of plug-in acme_rules:rate"]] * 2
    (first,), (second,) = (each.values() for each in found)
    assert first != second
    assert all(re.fullmatch(r"acme-rules 1\.2, digest [0-9a-f]{12}", each) for each in (first, second))


def test_calls_are_heard_in_order_until_the_end(each) -> None:
    def act(here: Meeting) -> object:
        if here.place.leads:
            names = [here.call({"number": number}) for number in (1, 2)]
            here.end(None)
            return names
        heard = list(here.calls())
        here.leave()
        return heard

    led, *followed = (came.result(60) for came in each(act))
    assert led == ["training-1", "training-2"]
    assert followed == [[("training-1", {"number": 1}), ("training-2", {"number": 2})]] * 2


def test_the_first_commands_error_ends_the_others(each) -> None:
    def act(here: Meeting) -> None:
        if here.place.leads:
            here.end(MachineError("the disk is full"))
            return
        here.leave()
        list(here.calls())

    _, *followed = each(act)
    for came in followed:
        with pytest.raises(TrainingError, match="node 0 ended: the disk is full") as caught:
            came.result(60)
        assert caught.value.exit_code == MachineError.exit_code


def test_who_did_not_come_is_named(place: Place, make_recipe) -> None:
    recipe = make_recipe(exec_rendezvous_timeout=0.3)
    pair = replace(place, commands=2)
    with pytest.raises(MachineError, match=rf"{place.endpoint}: 1 of 2 nodes came here within 0.3 s; absent: 1"):
        Meeting(pair, 0.3).agree("start", facts_of(recipe))


def test_a_place_that_nobody_serves_is_named(place: Place, make_recipe) -> None:
    recipe = make_recipe(exec_rendezvous_timeout=0.3)
    last = replace(place, rank=1)
    with pytest.raises(MachineError, match=rf"{place.endpoint}: nobody was here within 0.3 s"), meeting(last, recipe):
        pytest.fail("nobody is there to meet")
