from dataclasses import replace

import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.plan.sizes import passes_of


def work(name="llama3-8b", on="rtx-4090", **asked):
    return scenario_of(Question(model=model(name), on=on, **asked)).run.workload


def test_tuning_has_the_sizes_of_tuning_software():
    tuned = work(method="qlora")
    assert (tuned.sequence_tokens, tuned.batch_sequences, tuned.fused_loss) == (2048, 16, True)
    # 50,000 examples of 200 tokens, three times, in whole steps.
    assert 0 <= tuned.total_tokens - 50_000 * 200 * 3 < tuned.batch_tokens
    anew = work()
    assert (anew.sequence_tokens, anew.fused_loss, anew.adapter) == (8192, False, None)
    assert work(method="full").adapter is None and work(method="full").sequence_tokens == 2048
    assert work(method="lora", on="4x8xh100-sxm").batch_sequences == 32
    assert not work(method="lora", fused_loss=False).fused_loss


def test_a_classifier_sees_its_examples_so_often():
    asked = work("bert-base", task="classify", examples=67_000, epochs=3.0)
    assert (asked.sequence_tokens, asked.batch_sequences) == (128, 32)
    assert asked.steps == -(-67_000 * 3 // 32)
    run = scenario_of(Question(model=model("bert-base"), on="rtx-3080", task="classify")).run
    # BertForSequenceClassification has 109,483,778 parameters (transformers, bert-base-uncased, two labels).
    assert total_parameters(run.model) == 109_483_778


def test_data_is_seen_once_where_its_tokens_are_said():
    asked = Question(model=model("llama3-8b"), on="rtx-4090")
    assert passes_of(asked) == passes_of(replace(asked, tokens=10**9, method="lora")) == 1
    assert passes_of(replace(asked, method="lora")) == 3
    assert passes_of(replace(asked, examples=1000, epochs=2.0)) == 2
    assert passes_of(replace(asked, model=model("resnet-50"))) == 90


def test_images_are_counted_by_epochs():
    asked = work("resnet-50", on="8xa100-80gb", examples=50_000, epochs=10.0)
    assert 0 <= asked.total_tokens - 500_000 < asked.batch_tokens
    assert 0 <= work("resnet-50", on="8xa100-80gb").total_tokens - 90 * 1_281_167 < 8192


def test_a_network_for_images_tells_classes_apart_anyway():
    assert work("resnet-50", on="a10g", task="classify", examples=1000, epochs=1.0).fused_loss is False


def test_what_is_said_of_the_data_is_an_assumption_with_its_origin():
    scenario = scenario_of(Question(model=model("llama3-8b"), on="rtx-4090", method="lora", examples=2_000, epochs=1.0))
    (length,) = [each for each in scenario.assumptions if each.key == "length"]
    assert length.value == 2_000 * 200 and length.origin == "given"
    assert "2,000 examples of 200 tokens, once" in length.source


@pytest.mark.parametrize(("examples", "each"), [(1000, 512), (3, 8192)])
def test_examples_are_read_once_where_a_model_is_trained_anew(examples, each):
    asked = work(examples=examples, example_tokens=each)
    assert 0 <= asked.total_tokens - examples * each < asked.batch_tokens


def test_the_loss_is_in_chunks_where_the_software_has_it_so():
    has = {name: work(method="lora", stack=name).fused_loss for name in ("torchtune", "axolotl", "hf-trainer")}
    assert has == {"torchtune": True, "axolotl": False, "hf-trainer": True}
    assert work(method="lora", stack="axolotl", fused_loss=True).fused_loss
    assert not work(method="lora", stack="torchtune", fused_loss=False).fused_loss


def test_updates_in_the_backward_pass_are_asked_for():
    assert work(method="full", update_in_backward=True).update_in_backward
    assert not work(method="full").update_in_backward


def test_examples_that_are_not_packed_make_steps_of_examples():
    asked = work(method="qlora", packing="off", examples=48_000, epochs=2.0, example_tokens=250, sequence_tokens=1024)
    assert (asked.sequence_tokens, asked.batch_sequences, asked.example_tokens) == (1024, 16, 250)
    assert asked.steps == 48_000 * 2 / 16 and asked.total_tokens == 48_000 * 2 * 250
    assert 0 < asked.example_spread < 1
    assert work(method="qlora", packing="on").example_tokens is None


@pytest.mark.parametrize(
    ("name", "asked", "text"),
    [
        ("llama3-8b", {}, "how long are the examples"),
        ("llama3-8b", {"method": "lora", "example_tokens": 4000}, "longer than a sequence"),
        ("vit-b-16", {}, "images are not packed"),
    ],
)
def test_lengths_that_nobody_knows_or_that_cannot_be_are_refused(name, asked, text):
    with pytest.raises(RecipeError, match=text):
        work(name, packing="off", **asked)


def test_moments_are_the_softwares_in_tuning():
    """Unsloth's configurations of every trainer have adamw_8bit; the others keep what their states say."""
    scenario = scenario_of(Question(model=model("llama3-8b"), on="rtx-4090", method="qlora", stack="unsloth"))
    assert scenario.run.workload.moments == "int8"
    (note,) = [each for each in scenario.assumptions if each.key == "moments"]
    assert note.origin == "default" and "'unsloth'" in note.source
    assert work(method="lora", stack="unsloth", moments="fp32").moments == "fp32"
    assert work(method="lora", stack="unsloth", optimizer="sgd").moments is None
    assert work(method="lora", stack="llama-factory").moments is None


@pytest.mark.parametrize(
    ("asked", "field", "text"),
    [
        ({"method": "lora", "epochs": 1e6, "examples": 10**9}, "epochs", "more than any run has"),
        ({"examples": 10**12}, "examples", "more than any run has"),
        ({"epochs": 3.0}, "epochs", "of how many examples"),
        ({"example_tokens": 300}, "example_tokens", "of how many examples"),
    ],
)
def test_a_length_that_no_run_has_is_refused_under_what_was_asked(asked, field, text):
    with pytest.raises(RecipeError, match=text) as refusal:
        work(on="8xh100-sxm", **asked)
    assert refusal.value.field == field


@pytest.mark.parametrize(("tokens", "end"), [(15, "; did you mean 15B or 15T?"), (4096, "a sequence)")])
def test_a_run_of_less_than_a_sequence_is_a_forgotten_unit(tokens, end):
    with pytest.raises(RecipeError, match="a run of less than a step .*at least the 8,192 of a sequence") as caught:
        scenario_of(Question(model=model("llama3-8b"), on="h100-sxm", tokens=tokens))
    assert str(caught.value).endswith(end)


def test_a_rank_beyond_the_models_width_is_refused():
    assert work(method="lora", rank=4096).adapter.rank == 4096
    with pytest.raises(
        RecipeError, match=r"rank: .*higher rank than the model is wide.*seen 4,097, expected at most 4,096"
    ):
        work(method="lora", rank=4097)


@pytest.mark.parametrize(("devices", "sequences"), [(1, 16), (3, 18), (6, 18), (8, 16), (24, 24)])
def test_a_tuned_batch_gives_each_device_as_many_sequences(devices, sequences):
    asked = Question(model=model("llama3-8b"), on=f"{devices}xa100-sxm-80gb", method="lora")
    assert scenario_of(asked).run.workload.batch_sequences == sequences


def test_images_come_in_batches_as_people_have_them():
    assert work("resnet-50", on="v100").batch_sequences == 256 == work("resnet-50", on="8xh100").batch_sequences
    assert work("resnet-50", on="6xh100-sxm").batch_sequences == 192
    assert work("vit-b-16", on="50x8xh100-sxm").batch_sequences == 400 * 16
    # Tuned or not: 16 sequences of a chat are no batch of images.
    assert work("resnet-50", on="8xh100", method="full", examples=50_000).batch_sequences == 256
    asked = Question(model=model("vit-b-16"), on="v100", examples=1000, epochs=2)
    known = {each.key: each for each in scenario_of(asked).assumptions}
    assert (known["length"].name, known["length"].value) == ("images", 2000)
    assert "2% more epochs" in known["batch"].source


def test_a_batch_that_is_longer_than_the_run_is_refused():
    with pytest.raises(RecipeError, match="a batch is longer than the run") as refusal:
        work(batch_tokens=10**12)
    assert refusal.value.field == "batch_tokens"
    with pytest.raises(RecipeError, match="a batch is longer than the run"):
        work(tokens=10**6, batch_tokens=4 * 10**6)


def test_a_small_run_has_the_usual_batch_and_examples_count_with_their_padding():
    few = {"method": "lora", "on": "a100-80gb", "epochs": 1}
    usual = work(examples=5, **few)
    assert work(examples=5, batch_tokens=usual.batch_tokens, **few).batch_sequences == 16
    # 64 sequences of 500 examples, each of 200 tokens in the mean and counted with 2,048.
    assert work(examples=500, batch_tokens=64 * 2048, **few).batch_sequences == 64
    with pytest.raises(RecipeError, match="a batch is longer than the run"):
        work(examples=50, batch_tokens=128 * 2048, **few)


def test_an_optimizer_without_moments_keeps_none_in_other_bits():
    with pytest.raises(RecipeError, match="no moments to keep in other bits"):
        work(method="full", optimizer="adafactor", moments="int8")
    assert work(method="full", moments="int8").moments == "int8"


def test_quantised_weights_are_not_multiplied_in_eight_bits():
    for precision in ("fp8", "nvfp4"):
        with pytest.raises(RecipeError) as refusal:
            work(method="qlora", on="b200", precision=precision)
        assert refusal.value.field == "precision"
    assert work(method="lora", on="b200", precision="fp8").precision == "fp8"


def test_examples_are_cut_to_the_sequence():
    short = work(method="lora", examples=1000, epochs=1, sequence_tokens=16, on="h100-sxm")
    assert (short.batch_sequences, short.steps) == (16, -(-1000 // 16))


@pytest.mark.parametrize(
    ("batch", "devices", "sequences"),
    [
        (256_000_000, 512, 32_768),  # 31,250 = 2 x 5^6 sequences, which 512 devices do not divide
        (256_000_000, 50, 31_250),
        (1000 * 8192, 512, 1000),  # no round number of tokens is chance
    ],
)
def test_round_millions_that_are_whole_sequences_by_chance_divide_over_many_devices_too(batch, devices, sequences):
    asked = work(on=f"{devices // 2}x2xh100-sxm", tokens=10**11, batch_tokens=batch, sequence_tokens=8192)
    assert asked.batch_sequences == sequences


@pytest.mark.parametrize(
    ("fields", "ranks"),
    [({"layout": {"dp_shard": 8}}, 8), ({"stack": "fsdp1-eager"}, 8), ({"layout": {"cp": 8}}, 1), ({}, 1)],
)
def test_a_default_batch_divides_over_the_data_parallel_ranks_that_are_asked_for(fields, ranks):
    asked = work(on="8xh100-sxm", sequence_tokens=131_072, tokens=10**9, **fields)
    assert asked.batch_sequences % ranks == 0 and asked.batch_sequences < 2 * max(ranks, 2)
