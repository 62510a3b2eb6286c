import re
from dataclasses import replace

import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.planner.counts.layouts import FixedLayout, Layouts
from trainwright.planner.forecast.forecast import forecast
from trainwright.planner.plan.layout import choose, mesh, parse_layout
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.spec.workload import ParallelPlan


def chosen(layout: str, *, model="llama3-8b", on="4x8xh100-sxm", **options):
    return choose(scenario_of(Question(model=catalogue_model(model), on=on, layout=parse_layout(layout), **options)))


def test_a_whole_layout_is_taken_as_it_is():
    choice = chosen("dp_shard=8,tp=4,micro_batch=2,zero_stage=3,recompute=full")
    assert (choice.parallel.dp_shard, choice.parallel.tp, choice.parallel.micro_batch_sequences) == (8, 4, 2)
    assert choice.recompute == "full"


def test_what_a_layout_leaves_open_is_chosen_for_the_shortest_step_that_fits():
    choice = chosen("tp=4,pp=2,dp_shard=4,recompute=full")
    options = [
        ParallelPlan(tp=4, pp=2, dp_shard=4, micro_batch_sequences=each, zero_stage=stage)
        for each in (1, 2, 4, 8)
        for stage in (1, 3)
    ]
    scenario = scenario_of(Question(model=catalogue_model("llama3-8b"), on="4x8xh100-sxm"))
    rows = Layouts.of(options, ["full"] * len(options), scenario.run.workload)
    by_hand = forecast(scenario.run, rows, CATALOGUE)
    assert float(choice.forecast.step_s[0]) <= by_hand.step_s[by_hand.fits].min() * (1 + 1e-9)


def test_auto_finds_a_layout_that_fits_and_names_others():
    choice = chosen("auto")
    assert bool(choice.forecast.fits[0])
    assert choice.rejected
    assert all(other.name != mesh(choice.parallel, choice.recompute) for other in choice.rejected)


def test_layouts_that_no_search_tries_can_be_asked_for():
    choice = chosen("dp_shard=32,micro_batch=1,sequence_parallel=false,compile=true,schedule=gpipe", recompute="none")
    assert choice.parallel.compile and not choice.parallel.sequence_parallel
    assert choice.parallel.schedule == "gpipe"
    assert chosen("tp=8,dp_replicate=4,zero_stage=0").parallel.dp_replicate == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp=3", "heads .* cannot be divided over tp=3: nearest 2 or 4"),
        ("dp_shard=7", "the layout uses 7 devices, the cluster has 32: with dp_shard=32 it is full"),
        ("ep=4", "ep=4 divides experts, and this model has none"),
        ("pp=4,virtual_stages=16", r"layers \(32\) are fewer than the 64 stages of pp=4 .*: at most pp=2"),
    ],
)
def test_a_layout_that_cannot_run_says_why_and_what_is_near(text, message):
    with pytest.raises(RecipeError, match=message):
        chosen(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tpp=3", r"unknown part of a layout .*did you mean 'tp'"),
        ("dp=2", r"unknown part of a layout .*did you mean 'dp_replicate' or 'dp_shard'"),
        ("zero=2", r"unknown part of a layout .*did you mean 'zero_stage'"),
        ("tp", "needs its value"),
        ("xp", "unknown part"),
        ("tp=0", "not a number of ranks"),
        ("tp=x", "not a number of ranks"),
        ("zero_stage=4", "no stage of ZeRO"),
        ("schedule=1f2b", r"unknown schedule .*did you mean '1f1b'"),
        ("tp=2,tp=4", "given twice"),
    ],
)
def test_a_layout_that_cannot_be_read_says_why(text, message):
    with pytest.raises(RecipeError, match=message):
        parse_layout(text)


def test_convolutional_networks_have_data_parallelism_alone():
    choice = chosen("zero_stage=0", model="resnet-50")
    assert choice.parallel.dp_replicate == 32
    assert choice.forecast.step_s[0] >= chosen("auto", model="resnet-50").forecast.step_s[0]
    with pytest.raises(RecipeError, match=r"seen micro_batch=7, expected all 32 .* micro_batch one of 1, 2, 4"):
        chosen("micro_batch=7", model="resnet-50")
    three = Question(model=catalogue_model("resnet-50"), on="3xh100-sxm", batch_tokens=100)
    with pytest.raises(RecipeError, match=r"batch_tokens: .*seen 100 for 3 devices.*change `batch_tokens` to 99"):
        choose(scenario_of(three))
    assert choose(scenario_of(replace(three, batch_tokens=99))).forecast.fits[0]
    with pytest.raises(RecipeError, match="seen recompute"):
        chosen("auto", model="resnet-50", recompute="full")


def test_convolutional_networks_are_divided_as_their_software_divides():
    """One that replicates alone shares no states, whichever is faster."""
    asked = Question(model=catalogue_model("resnet-50"), on="4x8xh100-sxm", stack="torch-amp")
    assert choose(scenario_of(asked)).parallel.dp_replicate == 32
    assert choose(scenario_of(replace(asked, layout={"micro_batch": 24}, batch_tokens=32 * 24))).parallel.dp_shard == 1


def test_what_no_search_has_is_divided_as_its_software_divides():
    odd = {"layout": {"micro_batch": 3}, "batch_tokens": 2048 * 24, "method": "lora"}
    shapes = {
        name: choose(scenario_of(Question(model=catalogue_model("llama3-8b"), on="8xh100-sxm", stack=name, **odd)))
        for name in ("unsloth", "trl-peft")
    }
    degrees = {name: (each.parallel.dp_replicate, each.parallel.dp_shard) for name, each in shapes.items()}
    assert degrees == {"unsloth": (8, 1), "trl-peft": (1, 8)}


def test_the_least_divided_layout_is_among_the_alternatives_however_slow():
    choice = choose(scenario_of(Question(model=catalogue_model("llama3-8b"), on="8xh100-sxm")))
    assert choice.parallel.dp_shard < 8, "dp_shard alone has no room without recomputation"
    plain = next(each for each in choice.rejected if each.name.startswith("dp_shard 8;"))
    slower = float(plain.reason.removesuffix("% slower"))
    assert slower > 5, "the plainest within 5 % of the fastest is chosen"
    alone = choose(scenario_of(Question(model=catalogue_model("llama3-8b"), on="8xh100-sxm", layout={"dp_shard": 8})))
    ratio = float(alone.forecast.step_s[0] / choice.forecast.step_s[0])
    assert 100 * (ratio - 1) == pytest.approx(slower, abs=0.1)


def test_words_for_layouts():
    plan = ParallelPlan(dp_shard=4, tp=8, micro_batch_sequences=2, zero_stage=1)
    assert mesh(plan, "full") == "dp_shard 4, tp 8, ZeRO-1; micro batch 2, recompute full"
    assert mesh(ParallelPlan(), "none") == "one device; micro batch 1"


@pytest.mark.parametrize(
    ("schedule", "chunks", "word"),
    [
        ("1f1b", False, ""),
        ("zero_bubble", False, "zero-bubble"),
        ("gpipe", False, "GPipe"),
        ("interleaved", True, "chunks"),
    ],
)
def test_only_interleaving_has_several_chunks_on_a_stage(schedule, chunks, word):
    choice = chosen(f"pp=4,tp=2,schedule={schedule}")
    assert choice.parallel.schedule == schedule
    assert (choice.parallel.virtual_stages > 1) == chunks
    assert word in mesh(choice.parallel, choice.recompute)


def test_micro_batches_enter_at_both_ends_where_there_are_enough():
    choice = chosen("pp=4,tp=2,schedule=dualpipe")
    assert choice.parallel.schedule == "dualpipe" and choice.parallel.virtual_stages == 1
    assert choice.forecast.layouts.micro_batches[0] >= 8
    assert "DualPipe" in mesh(choice.parallel, choice.recompute)
    with pytest.raises(RecipeError, match="an even number of micro batches"):
        chosen("pp=32,dp_shard=1,micro_batch=16,schedule=dualpipe")


def test_several_chunks_under_another_schedule_are_refused():
    with pytest.raises(RecipeError, match="interleaved schedule"):
        chosen("pp=4,virtual_stages=2,schedule=1f1b")


def test_a_tuning_takes_what_surely_fits_and_needs_least():
    asked = Question(model=catalogue_model("llama3-8b"), on="rtx-4090", method="qlora")
    scenario = scenario_of(asked)
    chosen = choose(scenario)
    assert not chosen.forecast.uncertain[0] and chosen.recompute == "full"
    # Of micro batches of 1 to 16 that fit: the one with least memory within 5 % of the fastest.
    ways = [
        choose(replace(scenario, layout=FixedLayout(micro_batch=1 << power), recompute="full")) for power in range(5)
    ]
    sure = [each.forecast for each in ways if each.forecast.fits[0] and not each.forecast.uncertain[0]]
    least = min(each.step_s[0] for each in sure)
    near = [each for each in sure if each.step_s[0] <= 1.05 * least]
    assert chosen.forecast.memory.needed_bytes[0] == min(each.memory.needed_bytes[0] for each in near)


def test_updates_in_the_backward_pass_have_a_layout_of_one_micro_batch_or_say_which_batch_would_do():
    asked = {"on": "h100-sxm", "method": "full", "states": "pure", "stack": "torchtune", "recompute": "full"}
    asked["batch_tokens"] = 16 * 2048
    added, once = (chosen("auto", update_in_backward=each, **asked) for each in (False, True))
    assert added.forecast.layouts.micro_batches[0] > 1 == once.forecast.layouts.micro_batches[0]
    with pytest.raises(RecipeError, match="cannot be added up") as raised:
        chosen("micro_batch=2", update_in_backward=True, **asked)
    assert "change `batch_tokens` to 4,096 tokens or less" in str(raised.value)
    assert chosen("micro_batch=2", update_in_backward=True, **asked | {"batch_tokens": 4096}).forecast.fits[0]
    assert chosen("tp=1", update_in_backward=True, **asked).parallel.micro_batch_sequences == 16


def test_a_faster_layout_that_was_not_chosen_says_what_it_needs():
    choice = chosen("auto", on="h100-sxm", method="lora", recompute="full", packing="on")
    chosen_at = choice.parallel.micro_batch_sequences
    faster = [other for other in choice.rejected if "faster" in other.reason]
    assert faster and all(int(re.search(r"micro batch (\d+)", other.name)[1]) > chosen_at for other in faster)
    assert all(re.fullmatch(r"[\d.]+% faster, but needs [\d.]+ GiB", other.reason) for other in faster)


@pytest.mark.parametrize(
    ("name", "on", "tokens"),
    [("gpt3-175b", "1250x8xv100-sxm-32gb", 3 * 10**11), ("llama2-70b", "250x8xa100-80gb", 2 * 10**12)],
)
def test_a_batch_that_nobody_gave_is_one_that_the_devices_divide(name, on, tokens):
    choice = chosen("auto", model=name, on=on, tokens=tokens)
    assert choice.parallel.ranks == choice.forecast.run.cluster.devices


def test_where_nothing_divides_the_nearest_batch_and_devices_that_do_are_named():
    asked = {"model": "llama2-70b", "on": "250x8xa100-80gb", "tokens": 2 * 10**12}
    with pytest.raises(RecipeError) as error:
        chosen("auto", **asked, batch_tokens=1 << 22)
    found = re.search(r"`batch_tokens` to (\d+) \([\d,]+ sequences\), or change `on` to (\S+) ", str(error.value))
    assert found is not None
    assert chosen("auto", **asked, batch_tokens=int(found[1])).parallel.ranks == 2000
    assert chosen("auto", **asked | {"on": found[2]}, batch_tokens=1 << 22).parallel.ranks == 2048


def test_selective_recomputation_of_attention_costs_what_attention_does():
    """Korthikanti et al., 2022, arXiv 2205.05198: a few percent, which spare nothing where scores are never written."""
    asked = {"stack": "megatron-core", "on": "8xh200", "tokens": 10**11}
    layout = "dp_shard=8,micro_batch=1,zero_stage=1"
    none, again = (chosen(f"{layout},recompute={each}", **asked).forecast for each in ("none", "selective"))
    assert 1.01 < again.step_s[0] / none.step_s[0] < 1.05
    assert again.memory.needed_bytes[0] == pytest.approx(none.memory.needed_bytes[0], rel=0.01)
    others = {**asked, "stack": "torchtitan"}
    none, again = (
        chosen("dp_shard=8,micro_batch=1,recompute=" + each, **others).forecast for each in ("none", "selective")
    )
    assert again.step_s[0] / none.step_s[0] > 1.1
    assert again.memory.needed_bytes[0] < 0.9 * none.memory.needed_bytes[0]
