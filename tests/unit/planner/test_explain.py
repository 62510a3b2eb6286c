import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.models import model as catalogue_model
from trainwright.planner.choose import parse_layout
from trainwright.planner.cluster_plan import planned
from trainwright.planner.explain import EXPLAINERS, explain
from trainwright.planner.explain_run import RUN
from trainwright.planner.explain_time import TIME
from trainwright.planner.question import Question, resolve

QUESTIONS = {
    "sharded": ("llama3-70b", "64x8xh100-sxm", "auto", {"price": 2.0}),
    "pipelined": ("llama3-70b", "64x8xh100-sxm", "tp=8,pp=8", {"stack": "megatron-core"}),
    "small": ("gpt2", "8xa100-80gb", "auto", {}),
    "mixture": ("mixtral-8x7b", "8x8xh100-sxm", "auto", {}),
    "both ways": (
        "deepseek-v3",
        "64x8xh800-sxm",
        "pp=16,ep=32,recompute=full,schedule=dualpipe",
        {"stack": "hai-llm", "precision": "fp8", "batch_tokens": 4096 * 3840, "sequence_tokens": 4096},
    ),
    "adapters": ("llama3-8b", "8xa100-80gb", "auto", {"method": "qlora"}),
    "ours": ("llama3-8b", "8xa100-80gb", "auto", {"stack": "trainwright", "optimizer": "muon"}),
    "offloaded": ("llama3-8b", "8xa100-80gb", "offload=all", {"stack": "deepspeed"}),
    "streamed": ("llama3-8b", "8xa100-80gb", "offload=all-nvme", {"stack": "deepspeed"}),
    "held": ("gpt3-175b", "128x8xa100-80gb", "tp=8,pp=8,zero_stage=1", {"stack": "megatron-deepspeed"}),
    "vision": ("vit-b-16", "8xa100-80gb", "auto", {}),
}


@pytest.fixture(scope="module", params=QUESTIONS.values(), ids=QUESTIONS.keys())
def found(request):
    name, on, layout, more = request.param
    return planned(resolve(Question(model=catalogue_model(name), on=on, layout=parse_layout(layout), **more)))


@pytest.mark.parametrize("name", [name for name in EXPLAINERS if name != "run.usd"])
def test_every_formula_comes_to_the_forecasts_value(found, name):
    explained = explain(found, name)
    assert explained.evaluated() == pytest.approx(explained.value, rel=1e-6, abs=1e-12)
    assert explained.about
    assert all(term.meaning for term in explained.terms)


def test_what_is_sent_to_experts_is_said():
    name, on, layout, more = QUESTIONS["both ways"]
    found = planned(resolve(Question(model=catalogue_model(name), on=on, layout=parse_layout(layout), **more)))
    said = {term.meaning: term.value for term in explain(found, "time.communicate").details}
    # 32 ranks are four nodes; the two whole groups on each are picked, or one of them, or none (section 2.1.2).
    assert said["copies of a token over the network"] == pytest.approx(3 * (1 - 3 / 14), rel=0.2)
    assert said["ranks of 32 that a token goes to, of 4 of 8 groups at most"] < 8
    assert said["of a copy on its way to its experts"] == 7168 * (1 + 4 / 128)
    assert said["of a copy on its way back"] == 2 * 7168
    hidden = "sent to experts and stages while the other direction's micro batch is computed"
    waited = {term.meaning: term.value for term in explain(found, "time.communicate").terms}
    assert said[hidden] > 20 * waited["expert parallelism"]
    dense = planned(resolve(Question(model=catalogue_model("llama3-8b"), on="8xh100-sxm")))
    assert explain(dense, "time.communicate").details == ()


def test_dollars_are_explained_where_a_price_is_known(found):
    if found.scenario.price is None:
        with pytest.raises(RecipeError, match="no price is known"):
            explain(found, "run.usd")
    else:
        assert explain(found, "run.usd").evaluated() == pytest.approx(found.plan.estimate.usd.mid)


def test_of_a_convolutional_network_time_is_explained_and_memory_in_total():
    found = planned(resolve(Question(model=catalogue_model("resnet-50"), on="8xa100-80gb", price=1.0)))
    for name in (*TIME, *RUN, "memory.total"):
        explained = explain(found, name)
        assert explained.evaluated() == pytest.approx(explained.value, rel=1e-6, abs=1e-12), name
    with pytest.raises(RecipeError, match="for transformers"):
        explain(found, "memory.weights")


def test_unknown_names_are_refused_with_near_ones(found):
    with pytest.raises(RecipeError, match=r"did you mean .*memory\.activations"):
        explain(found, "memory.activation")
