import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.pipeline.question_fields import read_fields
from trainwright.planner.plan.cluster import plan_run
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of


def asked(on="rtx-4090", model="llama3-8b", **fields):
    return scenario_of(Question(model=catalogue_model(model), on=on, **read_fields(fields)))


@pytest.mark.parametrize(
    ("on", "fields", "text"),
    [
        ("mi300x", {"paged_moments": True}, "CUDA"),
        ("m3-max", {"activation_offload": True, "precision": "fp16"}, "no memory beside the host's"),
        ("rtx-4090", {"paged_moments": True, "optimizer": "sgd"}, "only AdamW"),
        ("rtx-4090", {"paged_moments": True, "layout": "offload=optimizer"}, "in host memory already"),
        ("rtx-4090", {"layout": "offload=frozen"}, "no weights are frozen"),
    ],
)
def test_what_cannot_be_moved_is_refused(on, fields, text):
    with pytest.raises(RecipeError, match=text):
        asked(on, **fields)


def test_images_of_convolutional_networks_are_not_offloaded():
    with pytest.raises(RecipeError, match="for transformers"):
        asked("8xa100-80gb", "resnet-50", activation_offload=True)


def test_a_plan_says_what_has_left_the_device():
    plan = plan_run(
        asked(
            method="full",
            states="pure",
            moments="int8",
            paged_moments=True,
            activation_offload=True,
            update_in_backward=True,
            batch_tokens="4096",
        )
    )
    notes = {each.key: each for each in plan.estimate.assumptions}
    assert "of 14.96 GiB have no room" in notes["paged_moments"].value
    assert notes["paged_moments"].origin == notes["activation_offload"].origin == "given"
    assert plan.estimate.needs.host_memory_bytes > 8 << 30
    assert plan.estimate.memory.total_bytes <= plan.estimate.memory_available_bytes


def test_paged_moments_are_32_bits_unless_that_is_said():
    scenario = asked(method="full", states="pure", paged_moments=True)
    assert scenario.run.workload.moments == "fp32"
    assert next(each for each in scenario.assumptions if each.key == "moments").origin == "default"
    assert asked(method="full", states="pure", paged_moments=True, moments="int8").run.workload.moments == "int8"


def test_a_plan_says_how_much_of_its_work_is_padding():
    asked_for = {"method": "qlora", "packing": "off", "layout": "micro_batch=4"}
    plan = plan_run(asked(**asked_for))
    (note,) = [each for each in plan.estimate.assumptions if each.key == "padding"]
    share = float(note.value.partition("%")[0]) / 100
    assert "micro batch of 4" in note.source and 0.2 < share < 0.7
    # MFU counts examples' tokens, HFU padding and recomputation too.
    again = plan_run(asked(**asked_for | {"packing": "on"})).estimate
    whole = plan.estimate.hfu / plan.estimate.mfu * (again.mfu / again.hfu)
    assert 1 - 1 / whole == pytest.approx(share, abs=0.01)
