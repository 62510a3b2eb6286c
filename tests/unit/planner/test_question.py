from dataclasses import replace

import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.models import model as catalogue_model
from trainwright.planner.parameters import total_parameters
from trainwright.planner.question import Question, resolve

LLAMA = catalogue_model("llama3-8b")


def asked(**options):
    return resolve(Question(**{"model": LLAMA, "on": "8xh100-sxm", **options}))


def said(scenario, name):
    return next(entry for entry in scenario.assumptions if entry.name == name)


def test_what_is_given_is_kept():
    found = asked(tokens=10**9, batch_tokens=1 << 20, sequence_tokens=4096, precision="fp8", stack="torchtitan")
    assert found.workload.batch_tokens == 1 << 20
    assert found.workload.steps == -(-(10**9) // (1 << 20))
    assert (found.workload.sequence_tokens, found.workload.precision) == (4096, "fp8")
    assert found.stack.name == "torchtitan"
    assert not any(entry.name in ("batch", "sequence", "tokens") for entry in found.assumptions)


def test_what_is_not_is_chosen_and_said():
    found = asked()
    assert found.workload.sequence_tokens == 8192
    assert abs(found.workload.total_tokens - 20 * total_parameters(LLAMA)) < found.workload.batch_tokens
    assert said(found, "batch").origin == "default"
    assert "Zhang" in said(found, "batch").source
    assert said(found, "tokens").value == 20 * total_parameters(LLAMA)


def test_a_short_run_has_a_small_batch_and_a_long_one_no_more_than_published_ones():
    assert asked(tokens=10**7).workload.batch_tokens < 1 << 17
    assert asked(tokens=15 * 10**12).workload.batch_tokens == 1 << 22
    assert asked(model=catalogue_model("llama3.1-405b"), tokens=15 * 10**12).workload.batch_tokens == 1 << 24


def test_a_batch_in_round_tokens_means_whole_sequences():
    assert asked(batch_tokens=4_000_000).workload.batch_tokens == 512 * 8192
    with pytest.raises(RecipeError, match="whole sequences"):
        asked(batch_tokens=1000)


def test_a_batch_fills_devices_that_are_no_power_of_two():
    found = asked(on="6x8xh100-sxm")
    assert found.workload.batch_sequences % 48 == 0


@pytest.mark.parametrize(("device", "precision"), [("h100-sxm", "bf16"), ("v100-sxm-32gb", "fp16"), ("t4", "fp16")])
def test_precision_follows_the_device(device, precision):
    assert asked(on=device).workload.precision == precision


def test_adapters_are_on_all_matrices_of_a_block():
    assert asked(method="lora").workload.adapter.frozen == "bf16"
    qlora = asked(method="qlora", rank=64).workload
    assert (qlora.adapter.frozen, qlora.adapter.rank) == ("nf4", 64)
    assert set(qlora.adapter.targets) == {"query", "key", "value", "output", "gate", "up", "down"}
    assert "query_up" in asked(model=catalogue_model("deepseek-v3"), method="lora").workload.adapter.targets


def test_prices_come_from_the_list_or_from_the_user():
    assert asked(price=2.5).price.usd_per_device_hour == 2.5
    assert asked().price.usd_per_device_hour > 0
    assert said(asked(), "price (on-demand)").origin == "catalog"
    assert asked(clouds=("aws",), price_kind="spot").settings.spot_provider == "aws"
    assert asked().settings.spot_provider is None
    unknown = asked(on="8xh800-sxm")
    assert unknown.price is None
    assert said(unknown, "price").value == "unknown"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": "8xh10"}, r"unknown device .*did you mean"),
        ({"on": "0xh100-sxm"}, "not a number of devices"),
        ({"tokens": 0}, "--tokens: must be at least 1"),
        ({"sequence_tokens": -1}, "--sequence: must be at least 1"),
        (
            {"model": catalogue_model("gpt2"), "sequence_tokens": 1 << 20, "batch_tokens": 1 << 20},
            "exceeds the model's",
        ),
        ({"stack": "torchtitn"}, r"unknown software stack .*did you mean"),
        ({"scale_out": "400"}, "cannot read a rate"),
        ({"clouds": ("awz",)}, "unknown cloud"),
        ({"price": -1.0}, "a price is above zero"),
        ({"rank": 0}, "--rank: must be at least 1"),
    ],
)
def test_bad_questions_are_refused_in_one_line(options, message):
    with pytest.raises(RecipeError, match=message):
        asked(**options)


def test_rotary_positions_go_on_beyond_the_context():
    found = asked(sequence_tokens=1 << 15, batch_tokens=1 << 20)
    assert found.model.context_tokens == found.workload.sequence_tokens == 1 << 15
    assert said(found, "rotary positions").source.startswith("4 times the 8,192 tokens")
    assert "rotary positions" not in {each.name for each in asked(sequence_tokens=4096).assumptions}


def test_stages_that_waste_much_are_allowed_and_said():
    """32 layers on 5 ranks: the slowest has 7, and 3 of 35 turns are idle."""
    note = said(asked(on="5xh100-sxm", layout={"pp": 5}), "idle share of uneven stages")
    assert note.value == pytest.approx(3 / 35)
    assert "4 or 8" in note.source
    for layout in ({}, {"pp": 4}, {"pp": 33}):
        assert not any("uneven" in entry.name for entry in asked(layout=layout).assumptions)


def test_four_bits_have_their_rate_under_its_own_name():
    asked = Question(model=catalogue_model("llama3-8b"), on="8xb200-sxm", precision="nvfp4")
    assert resolve(asked).workload.precision == "nvfp4"
    with pytest.raises(RecipeError, match="no nvfp4 rate of h100-sxm is known"):
        resolve(replace(asked, on="8xh100-sxm"))


def test_blocks_for_further_tokens_are_trained_unless_the_user_or_adapters_say_otherwise():
    model = catalogue_model("deepseek-v3")
    assert asked(model=model).model.further_layers == 1
    assert asked(model=model, further_layers=0).model == model.deployed()
    assert asked(model=model, further_layers=3).model.blocks == 64
    assert asked(model=model, method="lora").model == model.deployed()
    assert asked(further_layers=1).model.blocks == LLAMA.layers + 1
    with pytest.raises(RecipeError, match="--mtp.*0 or more, in a decoder"):
        asked(further_layers=-1)
    with pytest.raises(RecipeError, match="--mtp: blocks that predict further tokens"):
        asked(model=catalogue_model("bert-base"), further_layers=1)
    with pytest.raises(RecipeError, match="a convolutional network predicts no tokens"):
        asked(model=catalogue_model("resnet-50"), further_layers=1)


def test_how_uneven_experts_are_is_the_users_to_say():
    assert asked().workload.expert_imbalance is None
    assert asked(model=catalogue_model("mixtral-8x7b"), expert_imbalance=1.2).workload.expert_imbalance == 1.2
    with pytest.raises(RecipeError, match="^--expert-imbalance: expert_imbalance must be at least 1, seen 0.5"):
        asked(expert_imbalance=0.5)


@pytest.mark.parametrize(
    ("batch", "on", "sequences"),
    [(4_000_000, "64x8xh100-sxm", 512), (16_000_000, "64x8xh100-sxm", 2048), (4_000_000, "7xh100-sxm", 7 * 72),
     (4_194_304, "64x8xh100-sxm", 512), (480 * 8192, "64x8xh100-sxm", 480), (8192, "8xh100-sxm", 1)],
)  # fmt: skip
def test_a_batch_near_what_was_asked_for_divides_over_the_devices(batch, on, sequences):
    found = asked(batch_tokens=batch, on=on)
    assert found.workload.batch_sequences == sequences
    assert ("batch" in {each.name for each in found.assumptions}) == (sequences * 8192 != batch)
