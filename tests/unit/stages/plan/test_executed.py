"""What is asked about without a recipe is refused where a recipe would be."""

from __future__ import annotations

import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model
from trainwright.pipeline.question_fields import read_fields
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.plan.ways import with_ways
from trainwright.stages.plan.executed import refuses


def scenario(name, on="8xh100-sxm", **asked):
    return scenario_of(Question(model=model(name), on=on, stack="trainwright", **asked))


@pytest.mark.parametrize(
    ("name", "asked", "line"),
    [
        ("mixtral-8x7b", {"precision": "fp8"}, "experts' products are not in float8"),
        ("mixtral-8x7b", {"optimizer": "muon"}, "those of a layer's experts lie in one tensor"),
        ("mixtral-8x7b", {"moments": "int8"}, "its blocks lie in matrices"),
        ("llama3-8b", {"method": "lora", "precision": "fp8"}, "products with adapters beside them"),
        ("qwen3-30b-a3b", {"method": "qlora"}, "experts are stacks of matrices, which nf4 is not made of"),
        ("llama3-8b", {"optimizer": "muon", "moments": "int8"}, "moments=int8: those of muon are in fp32"),
        ("llama3-8b", {"further_layers": 1}, "no network of this trainer predicts further tokens"),
        ("resnet-50", {"on": "h100-sxm", "precision": "fp8"}, "no convolution computes in fp8"),
    ],
)
def test_what_no_layout_executes_is_refused(name, asked, line):
    with pytest.raises(RecipeError, match=f"stack: this trainer does not train it so: .*{line}"):
        scenario(name, **asked)


@pytest.mark.parametrize(
    "asked",
    [
        {"optimizer": "adafactor"},
        {"precision": "fp8"},
        {"moments": "int8"},
        {"method": "qlora"},
        {"sequence_tokens": 131_072, "tokens": 10**9},
    ],
)
def test_the_layout_that_is_planned_is_executed(asked):
    made = planned(scenario("llama3-8b", **asked))
    assert refuses(made.scenario.run)(made.plan.parallel, made.plan.workload.recompute) == ()


@pytest.mark.parametrize(
    ("name", "asked", "line"),
    [
        ("llama3-8b", {"optimizer": "muon", "layout": {"offload": "optimizer"}}, "only AdamW updates on the host"),
        ("llama3-8b", {"activation_offload": True, "recompute": "selective"}, "activation_offload moves nothing"),
        ("resnet-50", {"on": "h100-sxm", "layout": {"micro_batch": 32}}, "a batch norm sees its whole batch of 256"),
    ],
)
def test_a_layout_that_is_not_executed_is_refused(name, asked, line):
    with pytest.raises(RecipeError, match=line):
        planned(scenario(name, **asked))


@pytest.mark.parametrize(("name", "batch"), [("resnet-50", 64), ("resnet-152", 8192)])
def test_batch_norms_see_their_whole_batch_whether_it_fits_or_not(name, batch):
    plan = planned(scenario(name, on="rtx-3080", batch_tokens=batch)).plan
    assert plan.parallel.micro_batch_sequences == batch
    assert plan.estimate.fits == (batch == 64)


@pytest.mark.parametrize("optimizer", ["muon", "sgd"])
def test_no_change_moves_to_the_host_what_only_adamw_updates_there(optimizer):
    made = with_ways(planned(scenario("llama3-8b", on="h100-sxm", optimizer=optimizer)))
    assert not made.plan.estimate.fits and made.changes
    assert not [each.name for each in made.changes if each.best.parallel.offload != "none"]


def test_of_what_is_offloaded_no_selective_recomputation_is_chosen():
    made = planned(scenario("llama3-8b", activation_offload=True, layout={"pp": 2}))
    assert made.plan.workload.recompute != "selective"


def test_every_change_that_is_offered_is_executed():
    made = with_ways(planned(scenario("mixtral-8x7b")))
    assert not made.plan.estimate.fits and made.changes
    assert not {each.name for each in made.changes} & {"8-bit optimizer", "paged optimizer"}
    for each in made.changes:
        asked = dict(each.fields)
        there = scenario("mixtral-8x7b", asked.pop("on", "8xh100-sxm"), **read_fields(asked))
        assert refuses(there.run)(each.best.parallel, each.best.recompute) == (), each.name
