from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import get_args

import pytest

from fixtures.questions import LLAMA, assumption, scenario
from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import read_stack, stack_names
from trainwright.hardware.catalogue.support import SWITCHES
from trainwright.planner.counts.layouts import OFFLOADS, RECOMPUTES
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.layout import choose, wanted_layout
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.usual import NAMES, USUAL, as_usual
from trainwright.planner.plan.usual import habits as line
from trainwright.planner.plan.ways import with_ways
from trainwright.planner.search.recommend import recommend
from trainwright.spec.workload import MomentDtype

TUNED = {"on": "h100-sxm", "method": "lora"}


def habits(resolved):
    return {each.key.removeprefix(USUAL): each for each in resolved.assumptions if each.key.startswith(USUAL)}


@pytest.mark.parametrize("name", stack_names())
def test_every_habit_of_a_file_has_its_source_and_is_one_of_its_switches(name):
    stack = read_stack(name)
    known = {"recompute": RECOMPUTES, "packing": ("on", "off"), "offload": OFFLOADS, "moments": get_args(MomentDtype)}
    known |= dict.fromkeys(("activation_offload", "update_in_backward", "paged_moments"), ("on",))
    known |= {"zero_stage": tuple(map(str, stack.runs.zero_stages))}
    known |= dict.fromkeys(("micro_batch", "batch"), tuple(map(str, range(1, 65))))
    assert set(stack.usual) <= set(NAMES)
    for habit, usual in stack.usual.items():
        assert usual.source and usual.value in known[habit], habit
    switches = stack.runs.switches
    assert switches is None or (set(switches) <= set(SWITCHES) and all(switches.values()))
    if stack.usual and switches is not None:
        packing = stack.usual.get("packing")
        assert packing is None or {"on": "packing", "off": "padding"}[packing.value] in switches
        named = ("activation_offload", "update_in_backward", "paged_moments")
        assert all(name in switches for name in named if name in stack.usual)
    offload = stack.usual.get("offload")
    assert offload is None or offload.value in stack.runs.offloads


def test_unsloth_recomputes_and_offloads_unless_somebody_says_otherwise():
    usual = scenario(stack="unsloth", **TUNED)
    found = habits(usual)
    assert {name: each.value for name, each in found.items()} == {"recompute": "full", "activation_offload": "on"}
    for each in found.values():
        assert each.origin == "default"
        assert each.source.startswith("software 'unsloth' default: unslothai/unsloth@") and ".py:" in each.source
    made = choose(usual)
    assert (made.recompute, usual.run.workload.activation_offload) == ("full", True)

    whole = scenario(stack="unsloth", recompute="none", **TUNED)
    assert not habits(whole) and choose(whole).recompute == "none" and not whole.run.workload.activation_offload
    kept = scenario(stack="unsloth", activation_offload=False, **TUNED)
    assert set(habits(kept)) == {"recompute"} and not kept.run.workload.activation_offload
    by_layout = scenario(stack="unsloth", layout={"recompute": "none"}, **TUNED)
    assert choose(by_layout).recompute == "none" and not habits(by_layout)
    short = scenario(stack="unsloth", sequence_tokens=256, **TUNED)
    assert set(habits(short)) == {"recompute"}, "below 512 tokens it offloads nothing"


def test_software_that_nobody_names_pads_examples_as_most_of_it_does_and_has_no_other_habit():
    found = habits(scenario(**TUNED))
    assert {name: each.value for name, each in found.items()} == {"packing": "off"}
    assert found["packing"].origin == "default" and not scenario(**TUNED).usual
    for method in ("full", "lora", "qlora"):
        assert scenario(on="h100-sxm", method=method).run.workload.example_tokens is not None
    packed = scenario(packing="on", **TUNED)
    assert not habits(packed) and packed.run.workload.example_tokens is None
    assert not habits(scenario(stack="megatron-core")) and not habits(scenario(on="h100-sxm"))
    assert scenario(stack="trainwright", **TUNED).run.workload.example_tokens is None, "a recipe says it itself"


def test_the_line_of_habits_names_the_software_or_says_most_of_it():
    most, one = scenario(**TUNED), scenario(stack="unsloth", **TUNED)
    assert line(most.assumptions, most.run.stack) == (
        "as most software for tuning does by default: packing of examples off"
    )
    assert line(one.assumptions, one.run.stack).startswith("as unsloth does by default: recomputation full, ")
    plain = scenario()
    assert line(plain.assumptions, plain.run.stack) == ""


def test_a_device_without_a_bus_keeps_its_activations():
    on_a_bus = cluster("h100-sxm")
    unified = replace(on_a_bus, node=replace(on_a_bus.node, bus=None))
    asked = Question(model=LLAMA, stack="unsloth", **TUNED)
    for machines, placed, offloads in ((on_a_bus, True, True), (unified, True, False), (unified, False, True)):
        notes = []
        question, layout = as_usual(asked, read_stack("unsloth"), machines, notes.append, placed=placed)
        assert (question.activation_offload, layout) == (offloads, {"recompute": "full"})
        assert any(each.key.endswith("activation_offload") for each in notes) == offloads
    resolved = scenario(stack="unsloth", **TUNED)
    kept, moved = (recommend(resolved.run, devices=[], have=[machines]).options[0] for machines in (unified, on_a_bus))
    assert kept.memory_bytes > moved.memory_bytes


def test_tuned_shards_are_recomputed_and_nothing_else():
    for on, layout, recompute in (("8xh100-sxm", {"dp_shard": 8}, "full"), ("h100-sxm", {}, "none")):
        chosen = choose(scenario(stack="litgpt", layout=layout, **TUNED | {"on": on}))
        assert (chosen.parallel.dp_shard > 1, chosen.recompute) == (recompute == "full", recompute)
    replicated = choose(scenario(stack="litgpt", layout={"dp_replicate": 8}, **TUNED | {"on": "8xh100-sxm"}))
    assert replicated.recompute == "none"
    odd = {"micro_batch": 3, "dp_shard": 8}  # no search has it
    filled = scenario(stack="litgpt", layout=odd, batch_tokens=2048 * 24, **TUNED | {"on": "8xh100-sxm"})
    assert choose(filled).recompute == "full"
    assert "recompute" not in habits(scenario(stack="litgpt")), "of a pretraining it recomputes nothing by itself"


@pytest.mark.parametrize("stack", ["fsdp-qlora", "torchtune"])
def test_ranks_share_at_the_stage_that_is_the_softwares_default(stack):
    """fsdp_qlora: train.py:1196, full_shard. torchtune: fully_shard over all ranks, which reshards after a pass."""
    two = {"on": "2xrtx-4090", "method": "qlora"}
    shared = choose(scenario(stack=stack, **two)).parallel
    assert (shared.dp_replicate, shared.dp_shard, shared.zero_stage) == (1, 2, 3)
    assert habits(scenario(stack=stack, **two))["zero_stage"].value == "ZeRO-3"
    alone = scenario(stack=stack, **two | {"on": "rtx-4090"})
    assert choose(alone).parallel.dp_shard == 1 and "zero_stage" not in habits(alone)
    said = scenario(stack=stack, layout={"dp_replicate": 2}, **two)
    assert choose(said).parallel.dp_replicate == 2 and "zero_stage" not in habits(said)
    assert choose(scenario(stack=stack, layout={"zero_stage": 2}, **two)).parallel.zero_stage == 2
    odd = {"micro_batch": 3}  # no search has it
    filled = choose(scenario(stack=stack, layout=odd, batch_tokens=2048 * 24, **two | {"on": "8xrtx-4090"})).parallel
    assert (filled.dp_shard, filled.zero_stage) == (8, 3)
    resolved = scenario(stack=stack, **two)
    every = recommend(resolved.run, devices=["rtx-4090"], layout=wanted_layout(resolved)).options
    assert {each.devices > 1 for each in every} == {True, False}
    assert all(each.parallel.zero_stage == 3 and each.parallel.dp_replicate == 1 for each in every if each.devices > 1)


def test_torchtune_has_the_batches_of_its_recipes():
    """recipes/configs/llama3_1 of pytorch/torchtune@bd2a0fc7c: 8B_qlora_single_device, 8B_full_single_device."""
    card = {"on": "rtx-4090", "stack": "torchtune"}
    adapters = scenario(method="qlora", **card)
    work, made = adapters.run.workload, choose(adapters).parallel
    assert (work.batch_sequences, made.micro_batch_sequences, work.update_in_backward) == (16, 2, False)
    whole = scenario(method="full", **card)
    work, made = whole.run.workload, choose(whole).parallel
    assert (work.batch_sequences, made.micro_batch_sequences) == (2, 2)
    assert (work.update_in_backward, work.paged_moments, work.moments) == (True, True, "int8")
    assert {"batch", "update_in_backward", "paged_moments", "moments"} <= set(habits(whole))
    same = scenario(method="full", batch_tokens=2 * 2048, **card)
    assert same.run.workload == work, "its own batch, said, changes nothing"
    for said, found in (
        ({"batch_tokens": 4 * 2048}, (4, False, True, "int8")),  # accumulated: the optimizer is the recipe's
        ({"update_in_backward": False}, (2, False, True, "int8")),
        ({"paged_moments": False}, (2, True, False, "int8")),
        ({"moments": "fp32"}, (2, True, True, "fp32")),
        ({"optimizer": "sgd"}, (16, False, False, None)),
    ):
        work = scenario(method="full", **card, **said).run.workload
        assert (work.batch_sequences, work.update_in_backward, work.paged_moments, work.moments) == found, said
    several = scenario(method="full", stack="torchtune", on="8xh100-sxm")
    assert not several.run.workload.update_in_backward and choose(several).parallel.micro_batch_sequences == 2
    one = choose(scenario(method="lora", batch_tokens=8 * 2048, stack="torchtune", on="8xh100-sxm")).parallel
    assert one.micro_batch_sequences == 1, "a rank has one sequence, which two do not divide"
    own = scenario(method="qlora", layout={"micro_batch": 4}, **card)
    assert choose(own).parallel.micro_batch_sequences == 4 and "micro_batch" not in habits(own)
    anew = scenario(stack="torchtune")
    assert not {"micro_batch", "zero_stage"} & set(habits(anew)), "its recipes are of tuning"


def test_examples_are_padded_where_the_software_does_not_pack_them():
    padded = scenario(stack="trl-peft", **TUNED)
    assert habits(padded)["packing"].value == "off" and padded.run.workload.example_tokens == 200
    packed = scenario(stack="trl-peft", packing="on", **TUNED)
    assert "packing" not in habits(packed) and packed.run.workload.example_tokens is None
    told = scenario(stack="trl-peft", model=model("bert-large"), task="classify")
    assert "packing" not in habits(told), "what is told apart is padded to the sequence anyway"
    assert "packing" not in habits(scenario(stack="trl-peft")), "a pretraining has documents"


def test_offload_is_the_softwares_unless_the_layout_says_it():
    usual = scenario(stack="fsdp-qlora", **TUNED)
    assert choose(usual).parallel.offload == "all" and assumption(usual, "offload").value == "all"
    assert choose(scenario(stack="fsdp-qlora", layout={"offload": "none"}, **TUNED)).parallel.offload == "none"


def test_habits_hold_in_the_search_too():
    resolved = scenario(stack="unsloth", **TUNED)
    found = recommend(resolved.run, devices=["h100-sxm", "l40s"], layout=wanted_layout(resolved))
    assert {each.device for each in found.options} == {"h100-sxm", "l40s"}
    assert {each.recompute for each in found.options} == {"full"}
    shards = scenario(stack="litgpt", **TUNED)
    every = recommend(shards.run, devices=["h100-sxm"], layout=wanted_layout(shards)).options
    assert {each.devices > 1 for each in every} == {True, False}
    assert all(each.recompute == ("full" if each.parallel.dp_shard > 1 else "none") for each in every)


def test_what_would_make_it_fit_is_asked_for_with_the_habits_it_keeps():
    """The plan of each change fits, without that anything but the change was asked for."""
    asked = {"stack": "unsloth", "on": "8xh100-sxm"}
    made = with_ways(planned(scenario(**asked)))
    assert not made.plan.estimate.fits and made.changes
    for change in made.changes:
        if change.fields == {"states": "pure"}:
            again = planned(scenario(**asked, states="pure")).plan
            assert again.estimate.fits and again.workload.recompute == change.best.recompute == "full"
            break
    else:
        pytest.fail("weights and states in 16 bits are no change any more")


@pytest.mark.parametrize(
    ("stack", "asked"),
    list(
        product(
            ("nanotron", "torchtitan"),
            (
                {"paged_moments": True},
                {"moments": "int8"},
                {"activation_offload": True},
                {"update_in_backward": True},
                {"packing": "off", "example_tokens": 300, "examples": 10_000},
            ),
        )
    ),
)
def test_a_switch_that_software_lacks_is_refused_in_one_line_that_names_others(stack, asked):
    field, *_ = asked
    with pytest.raises(RecipeError, match=f"{stack} does not run .*software that does: ") as error:
        scenario(stack=stack, **asked)
    assert error.value.field == f"stack, {field}" and "\n" not in str(error.value)
    named = str(error.value).partition("software that does: ")[2].partition(" and ")[0].split(", ")
    assert named and stack not in named
    for other in named:
        assert scenario(stack=other, **asked).run.stack.name == other


def test_what_cannot_pack_is_not_asked_to():
    with pytest.raises(RecipeError, match=r"litgpt does not run packed examples .*software that does: axolotl"):
        scenario(stack="litgpt", packing="on", **TUNED)


@pytest.mark.parametrize("stack", ["default", "deepspeed"])
def test_of_software_that_nobody_knows_enough_of_no_switch_is_refused(stack):
    assert scenario(stack=stack, paged_moments=True, moments="int8").run.workload.paged_moments
