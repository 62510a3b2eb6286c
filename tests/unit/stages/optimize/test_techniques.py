"""What each technique tries on a machine, and when there is nothing to try."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import yaml

from fixtures.paired import SEQUENCE, embed_recipe
from trainwright.planner.counts.pieces import LOGITS_CHUNK_MIN_TOKENS
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.optimize import TechniqueName
from trainwright.spec.workload import DatasetFacts
from trainwright.stages.optimize.techniques import NAIVE, OF_BLOCKS, TECHNIQUES, Situation, naive, with_changes
from trainwright.stages.plan.build import build_plan
from trainwright.testing.machine import fake_machine

MACHINE = fake_machine()


def planned(recipe):
    return build_plan(recipe, MACHINE, DatasetFacts(vocabulary=300))


@pytest.fixture
def situation(make_recipe):
    """What a technique sees after these changes to the naive configuration."""

    def make(changes=None, *, facts=MACHINE.facts, **train) -> Situation:
        asked, now = make_recipe(**train), dict(NAIVE) | (changes or {})
        recipe = with_changes(asked, now)
        return Situation(
            asked=asked,
            recipe=recipe,
            plan=planned(recipe),
            planned=lambda more: planned(with_changes(asked, {**now, **more})),
            facts=facts,
        )

    return make


def test_every_technique_has_an_entry_and_recomputation_comes_last() -> None:
    assert tuple(TECHNIQUES) == get_args(TechniqueName)
    assert tuple(TECHNIQUES)[-1] == "recompute", "the others decide whether memory is short"


def test_every_technique_changes_the_naive_configuration_into_a_recipe(situation) -> None:
    for name, technique in TECHNIQUES.items():
        here = situation({"train.exec.micro_batch": 32} if name == "chunked-loss" else None, batch_tokens=32 * 32)
        changes = technique.changes(here)
        if name in ("document-attention", "cuda-graphs"):
            assert isinstance(changes, str), "of accelerators alone"
            continue
        if name == "chunked-loss":
            assert isinstance(changes, dict) == (LOGITS_CHUNK_MIN_TOKENS * 16 < 32 * 32)
            continue
        assert isinstance(changes, dict), name
        assert with_changes(here.recipe, changes) != here.recipe


def test_a_precision_that_is_no_rung_stays(make_recipe, situation) -> None:
    asked = make_recipe(precision="fp16", loss_scale={"initial": 1024})
    assert with_changes(asked, naive(asked)).train.precision == "fp16"
    assert naive(make_recipe(precision="bf16")) == NAIVE
    here = situation(precision="fp32")
    assert TECHNIQUES["bf16"].changes(here) == "the recipe asks for fp32"
    assert TECHNIQUES["bf16"].changes(replace(here, asked=asked)) == "the recipe asks for fp16"


def test_the_naive_keys_are_the_recipes_and_the_rest_is_the_authors(make_recipe) -> None:
    asked = make_recipe(batch_tokens=512, exec={"threads": 2})
    naive = with_changes(asked, NAIVE)
    assert (naive.train.precision, naive.train.exec.micro_batch, naive.train.exec.compile) == ("fp32", 1, False)
    assert (naive.train.batch_tokens, naive.train.exec.threads) == (512, 2)
    assert naive.train.exec.kernels.attention == "math"
    assert with_changes(naive, {"train.precision": "auto"}).train.precision == "auto"


def test_the_micro_batch_is_the_planners_or_the_next_larger_one(situation) -> None:
    try_it = TECHNIQUES["micro-batch"].changes
    best = planned(situation().recipe.model_copy()).parallel.micro_batch_sequences
    assert best == 1
    (size,) = try_it(situation()).values()
    assert size > 1 and 8 % size == 0
    assert try_it(situation(batch_tokens=32)) == "a batch is one sequence"
    assert try_it(situation({"train.exec.micro_batch": 8})) == "the batch is one micro batch already"


def test_a_precision_that_the_author_chose_is_kept(situation) -> None:
    assert TECHNIQUES["bf16"].changes(situation(precision="fp32")) == "the recipe asks for fp32"
    assert TECHNIQUES["bf16"].changes(situation()) == {"train.precision": "bf16"}


def test_nothing_is_compiled_without_a_compiler(situation) -> None:
    facts = MACHINE.facts
    assert "C++" in TECHNIQUES["compile"].changes(situation(facts=replace(facts, compiler=None)))
    assert "headers" in TECHNIQUES["compile"].changes(situation(facts=replace(facts, python_headers=False)))
    assert TECHNIQUES["compile"].changes(situation()) == {"train.exec.compile": True}


def test_recomputation_is_tried_the_other_way_round_where_the_recipe_has_it(situation) -> None:
    try_it = TECHNIQUES["recompute"].changes
    assert try_it(situation()) == {"train.recompute": "full"}
    assert try_it(situation(recompute="full")) == {"train.recompute": "none"}


def on(here, kind: str, **parallel):
    """The situation as if on another kind of device."""
    node = here.plan.cluster.node
    cluster = replace(here.plan.cluster, node=replace(node, device=replace(node.device, kind=kind)))
    return replace(here, plan=replace(here.plan, cluster=cluster, parallel=replace(here.plan.parallel, **parallel)))


def test_graphs_are_tried_of_compiled_code_on_cuda_alone(situation) -> None:
    try_it = TECHNIQUES["cuda-graphs"].changes
    assert try_it(situation()) == "it is for CUDA devices: Ideal CPU (cpu) launches none"
    assert "launches none" in try_it(on(situation(), "rocm", compile=True))
    assert "made of compiled code" in try_it(on(situation(), "cuda", compile=False))
    assert try_it(on(situation(), "cuda", compile=True)) == {"train.exec.cuda_graphs": True}


def test_documents_are_passed_over_where_they_are_masked_and_torch_has_the_gradients(situation) -> None:
    try_it = TECHNIQUES["document-attention"].changes
    assert "not masked" in try_it(on(situation(), "cuda"))
    assert "no gradients" in try_it(situation(document_masking=True))
    masked = on(situation(document_masking=True), "cuda")
    assert try_it(masked) == {"train.exec.attention": "flex"}
    selective = replace(masked.plan, workload=replace(masked.plan.workload, recompute="selective"))
    assert "recompute=selective" in try_it(replace(masked, plan=selective)), "what the trainer refuses is not tried"


def test_a_ladder_begins_without_the_graphs_that_the_recipe_has(make_recipe) -> None:
    asked = make_recipe(exec={"cuda_graphs": True, "compile": True})
    assert naive(asked) == NAIVE | {"train.exec.cuda_graphs": False}
    assert with_changes(asked, naive(asked)).train.exec.cuda_graphs is False


def test_a_convolutional_network_is_left_its_one_pass_and_has_no_attention() -> None:
    path = Path(__file__).parents[4] / "recipes" / "resnet-digits.yaml"
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    data["train"]["duration"] = "20 steps"
    asked = Recipe.model_validate(data)
    begun = naive(asked)
    assert begun == {key: value for key, value in NAIVE.items() if key not in OF_BLOCKS}
    recipe = with_changes(asked, begun)
    plan = planned(recipe)
    here = Situation(asked=asked, recipe=recipe, plan=plan, planned=lambda more: plan, facts=MACHINE.facts)
    tried = {name: technique.changes(here) for name, technique in TECHNIQUES.items()}
    assert {name for name in tried if not isinstance(tried[name], str)} <= {"bf16", "compile", "fused-update"}


def test_groups_of_pairs_stay_whole_from_the_first_rung_on() -> None:
    asked = embed_recipe(train={"batch_tokens": 24 * SEQUENCE})
    begun = naive(asked)
    assert begun == NAIVE | {"train.exec.micro_batch": 4}
    recipe = with_changes(asked, begun)
    plan = planned(recipe)
    here = Situation(asked=asked, recipe=recipe, plan=plan, planned=lambda more: plan, facts=MACHINE.facts)
    assert TECHNIQUES["micro-batch"].changes(here) == {"train.exec.micro_batch": 8}, "which divides 24; 6 cuts a group"
