"""A ResNet's step: autograd's own bytes, and images per second as others measured them."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import stack
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.forecast.forecast import forecast
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Adapter, ParallelPlan, Workload

BATCH = 256
# Images/s while nothing is fitted to any of them: ResNet-50 v1.5 of NVIDIA/DeepLearningExamples@729963d,
# PyTorch/Classification/ConvNets/resnet50v1.5/README.md, "Training performance results" (its rows on eight devices also
# wait for the loader and are left out), batch sizes from ConvNets/configs.yml; and
# huggingface/pytorch-image-models@aa4b585, results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv.
MEASURED = [
    ("resnet-50", "a100-sxm-80gb", "tf32", 256, 938),
    ("resnet-50", "a100-sxm-80gb", "fp16", 256, 2470),
    ("resnet-50", "v100-sxm-16gb", "fp32", 112, 367),
    ("resnet-50", "v100-sxm-16gb", "fp16", 256, 1200),
    ("resnet-50", "v100-sxm-32gb", "fp32", 256, 356),
    ("resnet-50", "v100-sxm-32gb", "fp16", 256, 1156),
    ("resnet-18", "rtx-3090", "fp16", 512, 3481.78),
    ("resnet-34", "rtx-3090", "fp16", 512, 2036.51),
    ("resnet-50", "rtx-3090", "fp16", 512, 1218.01),
    ("resnet-101", "rtx-3090", "fp16", 256, 747.89),
    ("resnet-152", "rtx-3090", "fp16", 192, 501.44),
]


def test_images_per_second_as_measured_on_one_device():
    errors = []
    for name, device, precision, batch, measured in MEASURED:
        prediction = _forecast(device, name=name, precision=precision, batch=batch)
        errors.append(abs(batch / prediction.step_s[0] / measured - 1))
        assert prediction.fits[0]  # it ran
    assert median(errors) < 0.13 and max(errors) < 0.3


def test_eight_devices_are_nearly_eight_times_as_fast():
    one, eight = _forecast("a100-sxm-80gb"), _forecast("8xa100-sxm-80gb", devices=8)
    assert 0.97 < one.step_s[0] / eight.step_s[0] < 1


def test_twice_the_images_take_twice_the_work_and_memory():
    one, two = _forecast("a100-sxm-80gb", batch=128), _forecast("a100-sxm-80gb", batch=256)
    works = [CATALOGUE.work(each.run, each.layouts) for each in (one, two)]
    for count in ("products_s", "traffic_s"):
        assert getattr(works[1], count)[0] == pytest.approx(2 * getattr(works[0], count)[0])
    assert two.memory.activations[0] == pytest.approx(2 * one.memory.activations[0], rel=0.01)


def test_states_are_those_of_the_optimizer():
    count = total_parameters(model("resnet-50"))
    for optimizer, moments in (("sgd", 1), ("adamw", 2)):
        prediction = _forecast("a100-sxm-80gb", optimizer=optimizer).memory
        assert prediction.weights[0] == 4 * count and prediction.optimizer[0] == 4 * moments * count
    mixed = _forecast("a100-sxm-80gb", states="mixed", precision="bf16").memory
    assert mixed.weights[0] == 2 * count and mixed.optimizer[0] == 8 * count
    pure = _forecast("a100-sxm-80gb", states="pure", precision="bf16").memory
    assert pure.weights[0] == 2 * count and pure.optimizer[0] == 2 * count


def test_a_small_batch_peaks_at_the_update():
    prediction = _forecast("a100-sxm-80gb", batch=1).memory
    assert prediction.moment[0] == 3 and prediction.activations[0] == 0
    assert prediction.gradients[0] == 4 * total_parameters(model("resnet-50"))


def test_sharding_divides_states_and_sends_weights():
    workload = _workload(batch=8 * BATCH)
    plans = [
        ParallelPlan(dp_replicate=8, micro_batch_sequences=BATCH),
        *(ParallelPlan(dp_shard=8, zero_stage=stage, micro_batch_sequences=BATCH) for stage in (1, 2, 3)),
    ]
    layouts = Layouts.of(plans, ["none"] * 4, workload)
    prediction = forecast(
        RunSpec(
            model=model("resnet-50"), workload=workload, cluster=cluster("8xa100-sxm-80gb"), stack=stack("default")
        ),
        layouts,
        CATALOGUE,
    )
    whole = 4 * total_parameters(model("resnet-50"))
    assert prediction.memory.optimizer == pytest.approx([whole, whole / 8, whole / 8, whole / 8])
    assert prediction.memory.weights == pytest.approx([whole, whole, whole, whole / 8])
    assert prediction.sent.gather_s[:3] == pytest.approx(0) and prediction.sent.gather_s[3] > 0
    assert prediction.sent.gradients_s[0] > 0 and prediction.sent.gradients_s[3] == 0
    assert (prediction.step.communicate > 0).all()


def test_accumulation_repeats_the_work_and_keeps_gradients():
    once, four = _forecast("a100-sxm-80gb"), _forecast("a100-sxm-80gb", batch=4 * BATCH, micro=BATCH)
    assert four.step.forward[0] == pytest.approx(4 * once.step.forward[0])
    assert once.memory.gradients[0] == 0
    assert four.memory.gradients[0] == 4 * total_parameters(model("resnet-50"))


@pytest.mark.parametrize(
    ("plan", "changes", "phrase"),
    [
        ({"tp": 2}, {}, "a convolutional network needs tp=1"),
        ({"pp": 2}, {}, "a convolutional network needs pp=1"),
        ({"offload": "optimizer"}, {}, "offload=none"),
        ({}, {"optimizer": "muon"}, "muon is for matrices"),
        ({}, {"recompute": "full"}, "recompute=none"),
        ({}, {"adapter": Adapter(rank=8)}, "adapters stand beside a transformer's matrices"),
    ],
)
def test_what_is_for_transformers_is_refused(plan, changes, phrase):
    workload = replace(_workload(batch=BATCH), **changes)
    layouts = Layouts.of([ParallelPlan(**plan)], [workload.recompute], workload)
    with pytest.raises(RecipeError, match=phrase):
        forecast(
            RunSpec(
                model=model("resnet-50"), workload=workload, cluster=cluster("2xa100-sxm-80gb"), stack=stack("default")
            ),
            layouts,
            CATALOGUE,
        )


def test_a_device_without_a_rate_is_refused():
    with pytest.raises(RecipeError, match="no peak rate for tf32"):
        _forecast("v100-sxm-16gb", precision="tf32", rates=False)


def _workload(*, batch, precision="fp16", optimizer="sgd", states="fp32"):
    return Workload(
        sequence_tokens=1, batch_tokens=batch, steps=1, precision=precision, optimizer=optimizer, states=states
    )


def _forecast(on, *, name="resnet-50", devices=1, batch=BATCH, micro=None, rates=True, **changes):
    machines = cluster(on)
    if not rates:
        bare = replace(machines.device, flops_per_s={})
        machines = replace(machines, node=replace(machines.node, device=bare))
    workload = _workload(batch=devices * batch, **changes)
    plan = ParallelPlan(dp_replicate=devices, micro_batch_sequences=micro or batch)
    return forecast(
        RunSpec(model=model(name), workload=workload, cluster=machines, stack=stack("default")),
        Layouts.of([plan], ["none"], workload),
        CATALOGUE,
    )
