from dataclasses import replace

import pytest

from fixtures.published import record, workload
from fixtures.questions import LLAMA, assumption, scenario
from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.stacks import stack
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.layout import choose
from trainwright.planner.plan.question import Question, implied_kernels, trained
from trainwright.planner.plan.scenario import scenario_of


def test_a_short_run_has_a_small_batch_and_a_long_one_no_more_than_published_ones():
    assert scenario(tokens=10**7).run.workload.batch_tokens < 1 << 17
    assert scenario(tokens=15 * 10**12).run.workload.batch_tokens == 1 << 22
    assert scenario(model=catalogue_model("llama3.1-405b"), tokens=15 * 10**12).run.workload.batch_tokens == 1 << 24


def test_a_batch_in_round_tokens_means_whole_sequences():
    assert scenario(batch_tokens=4_000_000).run.workload.batch_tokens == 512 * 8192
    with pytest.raises(RecipeError, match="whole sequences"):
        scenario(batch_tokens=1000)


def test_a_batch_fills_devices_that_are_no_power_of_two():
    resolved = scenario(on="6x8xh100-sxm")
    assert resolved.run.workload.batch_sequences % 48 == 0


@pytest.mark.parametrize(("device", "precision"), [("h100-sxm", "bf16"), ("v100-sxm-32gb", "fp16"), ("t4", "fp16")])
def test_precision_follows_the_device(device, precision):
    assert scenario(on=device).run.workload.precision == precision


def test_adapters_are_on_all_linear_layers_of_a_block():
    assert scenario(method="lora").run.workload.adapter.frozen == "bf16"
    qlora = scenario(method="qlora", rank=64).run.workload
    assert (qlora.adapter.frozen, qlora.adapter.rank) == ("nf4", 64)
    assert set(qlora.adapter.targets) == {"query", "key", "value", "output", "gate", "up", "down"}
    assert "query_up" in scenario(model=catalogue_model("deepseek-v3"), method="lora").run.workload.adapter.targets
    some = scenario(model=catalogue_model("deepseek-v3"), method="lora", targets=("attention", "experts")).run.workload
    assert some.adapter.experts and {"query_up", "gate"} <= set(some.adapter.targets)
    with pytest.raises(RecipeError, match="^targets: no such matrix to adapt .seen 'q_porj'"):
        scenario(method="lora", targets=("q_porj",))


@pytest.mark.parametrize(
    ("name", "on", "published_gb"),
    [("qwen3-30b-a3b", "rtx-4090", 17.5), ("gpt-oss-20b", "rtx-4090", 14.0), ("gpt-oss-120b", "h100-sxm", 65.0)],
)
def test_a_mixture_is_tuned_in_the_memory_that_unsloth_publishes(name, on, published_gb):
    """Its documentation of QLoRA for these models (recall): 17.5, 14 and 65 GB; the prediction is 10 to 18 % above."""
    asked = Question(model=catalogue_model(name), on=on, method="qlora", stack="unsloth", layout={"micro_batch": 1})
    choice = choose(scenario_of(asked))
    assert choice.forecast.fits[0]
    assert float(choice.forecast.memory.needed_bytes[0]) / 1e9 == pytest.approx(published_gb, rel=0.2)


def test_rotary_positions_go_on_beyond_the_context():
    resolved = scenario(sequence_tokens=1 << 15, batch_tokens=1 << 20)
    assert resolved.run.model.context_tokens == resolved.run.workload.sequence_tokens == 1 << 15
    assert assumption(resolved, "rotary positions").source.startswith("4 times the 8,192 tokens")
    assert "rotary positions" not in {each.name for each in scenario(sequence_tokens=4096).assumptions}


def test_four_bits_have_their_rate_under_its_own_name():
    asked = Question(model=catalogue_model("llama3-8b"), on="8xb200-sxm", precision="nvfp4")
    assert scenario_of(asked).run.workload.precision == "nvfp4"
    with pytest.raises(RecipeError, match="no nvfp4 rate is known .seen h100-sxm"):
        scenario_of(replace(asked, on="8xh100-sxm"))


def test_blocks_for_further_tokens_are_trained_unless_the_user_or_adapters_say_otherwise():
    model = catalogue_model("deepseek-v3")
    assert scenario(model=model).run.model.further_layers == 1
    assert scenario(model=model, further_layers=0).run.model == model.deployed()
    assert scenario(model=model, further_layers=3).run.model.blocks == 64
    assert scenario(model=model, method="lora").run.model == model.deployed()
    assert scenario(further_layers=1).run.model.blocks == LLAMA.layers + 1
    with pytest.raises(RecipeError, match="further_layers.*0 or more, in a decoder"):
        scenario(further_layers=-1)
    with pytest.raises(RecipeError, match="further_layers: blocks that predict further tokens"):
        scenario(model=catalogue_model("bert-base"), further_layers=1)
    with pytest.raises(RecipeError, match="further_layers: this is for transformers, not for convolutional networks"):
        scenario(model=catalogue_model("resnet-50"), further_layers=1)


def test_how_uneven_experts_are_is_the_users_to_say():
    assert scenario().run.workload.expert_imbalance is None
    assert scenario(model=catalogue_model("mixtral-8x7b"), expert_imbalance=1.2).run.workload.expert_imbalance == 1.2
    with pytest.raises(RecipeError, match="^expert_imbalance: expert_imbalance must be at least 1, seen 0.5"):
        scenario(expert_imbalance=0.5)


@pytest.mark.parametrize(
    ("batch", "on", "sequences"),
    [
        (4_000_000, "64x8xh100-sxm", 512),
        (16_000_000, "64x8xh100-sxm", 2048),
        (4_000_000, "7xh100-sxm", 7 * 72),
        (4_194_304, "64x8xh100-sxm", 512),
        (480 * 8192, "64x8xh100-sxm", 480),
        (8192, "8xh100-sxm", 1),
    ],
)
def test_a_batch_near_what_was_asked_for_divides_over_the_devices(batch, on, sequences):
    resolved = scenario(batch_tokens=batch, on=on)
    assert resolved.run.workload.batch_sequences == sequences
    assert ("batch" in {each.name for each in resolved.assumptions}) == (sequences * 8192 != batch)


def test_more_blocks_for_further_tokens_than_a_model_has_are_refused():
    asked = Question(model=catalogue_model("llama3-8b"), on="8xh100-sxm", further_layers=99)
    with pytest.raises(RecipeError, match="seen 99, expected at most 32"):
        trained(asked)
    assert trained(replace(asked, further_layers=2)).further_layers == 2


# ------------------------------------------------------------------------------------------- what software implies
@pytest.mark.parametrize("name", ["pytorch", "hf-trainer"])
def test_what_software_implies_of_attention_moves_time_and_memory(monkeypatch, name):
    """Whatever its file says of it today: scores that are written to memory take time, and are kept."""

    def plan(fuses):
        software = replace(stack(name), fused_attention=fuses)
        monkeypatch.setattr("trainwright.planner.plan.scenario.stack", lambda _: software)
        layout = {"dp_shard": 8, "zero_stage": 3, "micro_batch": 1}
        asked = Question(model=LLAMA, on="8xh100-sxm", tokens=10**9, sequence_tokens=4096, stack=name)
        found = planned(scenario_of(replace(asked, layout=layout, recompute="none", precision="bf16")))
        forecast = found.choice.forecast
        return found.plan.workload.fused_attention, float(forecast.step_s[0]), found.plan.estimate.memory.total_bytes

    (fused, fast_s, small), (written, slow_s, large) = plan(True), plan(False)
    assert (fused, written) == (True, False)
    assert slow_s > 1.05 * fast_s and large > 1.05 * small


@pytest.mark.parametrize("fuses", [True, False])
@pytest.mark.parametrize("chunks", [True, False])
def test_plans_and_published_runs_have_the_kernels_that_their_software_implies(monkeypatch, fuses, chunks):
    software = replace(stack("torchtitan"), fused_attention=fuses, chunked_loss=chunks)
    monkeypatch.setattr("trainwright.planner.plan.scenario.stack", lambda _: software)
    mine = scenario(on="8xh100-sxm", stack="torchtitan", method="full").run.workload
    theirs = workload(record(flash_attention="", notes="task=full-ft"), software)
    kernels = implied_kernels(software, attention=None, loss=None)
    assert kernels == {"fused_attention": fuses, "fused_loss": chunks}
    assert (mine.fused_attention, mine.fused_loss) == (theirs.fused_attention, theirs.fused_loss) == (fuses, chunks)


def test_what_is_said_of_attention_stands_and_what_software_implies_is_noted():
    resolved = scenario(on="8xh100-sxm", stack="pytorch")
    assert not resolved.run.workload.fused_attention
    assert assumption(resolved, "attention").source == ("its scores are written to memory, as software 'pytorch' does")
    assert scenario(on="8xh100-sxm", stack="pytorch", fused_attention=True).run.workload.fused_attention
    # A recipe that drops attention's scores out has them written, whatever software trains it.
    written = replace(resolved.run.workload, fused_attention=False)
    again = scenario(on="8xh100-sxm", workload=written)
    assert not again.run.workload.fused_attention and "attention" not in {each.name for each in again.assumptions}
