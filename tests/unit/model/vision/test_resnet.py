"""ResNet against transformers' own: logits, every gradient, running statistics; what batch norms see, and refusals."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from trainwright.artifact.model_folder import read_shape
from trainwright.core.errors import RecipeError
from trainwright.model import hf
from trainwright.model.build import build_network
from trainwright.model.families import resnet
from trainwright.model.vision.resnet import _BUILT, MOMENTUM
from trainwright.planner.counts.flops import count_flops
from trainwright.planner.counts.images import saved_bytes
from trainwright.planner.counts.parameters import total_parameters
from trainwright.runtime.device import DTYPES
from trainwright.runtime.memory import SavedBytes
from trainwright.spec.convnet import counted
from trainwright.spec.model import Dropout, ModelSpec
from trainwright.spec.workload import KernelChoice, Workload

SHAPE = {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 2], "image_size": 24, "num_labels": 7}
KINDS = {
    "basic": {"layer_type": "basic"},
    "bottleneck": {"layer_type": "bottleneck"},
    "stride first": {"downsample_in_bottleneck": True, "downsample_in_first_stage": True},
    "no first shortcut": {"layer_type": "basic", "embedding_size": 16},
}
IMAGES = torch.randn(5, 3, 24, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
CLASSES = torch.tensor([3, 0, 6, 1, 3])


def theirs_of(**changes) -> transformers.ResNetForImageClassification:
    torch.manual_seed(1)
    model = transformers.ResNetForImageClassification(transformers.ResNetConfig(**(SHAPE | changes)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def ours_of(tmp_path, theirs, dtype):
    """Their network as we read it from their files."""
    theirs.save_pretrained(tmp_path)
    spec = read_shape(tmp_path)
    network = build_network(spec, dtype=dtype)
    network.to(dtype).load_state_dict(hf.read_weights(tmp_path, spec), strict=False)
    return network


def spec_of(**changes) -> ModelSpec:
    """The shape of ``SHAPE``, of plain blocks."""
    config = transformers.ResNetConfig(**(SHAPE | KINDS["basic"])).to_dict() | {"image_size": 24}
    return replace(resnet.from_config(config, where="test"), **changes)


def no_sum(value: torch.Tensor) -> torch.Tensor:
    return value


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=["fp64", "fp32"])
def test_logits_gradients_and_statistics_are_those_of_transformers(tmp_path, kind, dtype, bound):
    theirs = theirs_of(**kind).double().train()
    ours = ours_of(tmp_path, theirs, dtype).train()
    ours.before_update(torch.tensor(0.2))
    output = theirs(pixel_values=IMAGES)
    torch.nn.functional.cross_entropy(output.logits, CLASSES, reduction="sum").backward()
    hidden = ours(IMAGES.to(dtype))[:, 0]
    torch.testing.assert_close(ours.logits(hidden).double(), output.logits, atol=bound, rtol=bound)
    loss, weight = ours.head_loss(hidden, CLASSES)
    assert int(weight) == 5
    loss.backward()
    ours.after_update(no_sum, made=True)
    known = {name: each.grad for name, each in theirs.named_parameters()} | dict(theirs.named_buffers())
    expected = resnet.from_hf(known, ours.spec)
    seen = {name: each.grad for name, each in ours.named_parameters()}
    seen = {name: seen.get(name, tensor) for name, tensor in ours.stored()}
    assert seen.keys() == expected.keys()
    for name, value in seen.items():
        torch.testing.assert_close(value.double(), expected[name].double(), atol=bound, rtol=bound, msg=name)


def test_evaluation_normalises_by_the_running_statistics(tmp_path):
    theirs = theirs_of().double().train()
    for _ in range(3):
        theirs(pixel_values=IMAGES)
    theirs.eval()
    ours = ours_of(tmp_path, theirs, torch.float64).eval()
    expected = theirs(pixel_values=IMAGES).logits
    torch.testing.assert_close(ours.logits(ours(IMAGES))[:, 0], expected, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(ours.logits(ours(IMAGES[:2]))[:, 0], expected[:2], atol=1e-9, rtol=1e-9)


def test_statistics_move_once_an_update_and_not_where_it_is_left_out():
    network = build_network(spec_of())
    network.initialise(0)
    norm = network.stem.norm
    network(IMAGES.float())  # a rehearsal
    network.before_update(torch.tensor(1.0))
    network(IMAGES.float())
    network.after_update(no_sum, made=False)
    assert torch.equal(norm.running_mean, torch.zeros(8))
    made = torch.nn.functional.conv2d(IMAGES.float(), network.stem.weight, stride=2, padding=3)
    network.after_update(no_sum, made=True)
    torch.testing.assert_close(norm.running_mean, MOMENTUM * made.mean((0, 2, 3)))
    torch.testing.assert_close(norm.running_var, 1 - MOMENTUM + MOMENTUM * made.transpose(0, 1).flatten(1).var(1))


def test_a_batch_in_several_passes_is_refused():
    network = build_network(spec_of())
    network.initialise(0)
    network.before_update(torch.tensor(1.0))
    for images in IMAGES.float().split(3):
        network(images)
    with pytest.raises(ValueError, match="seen 2 passes"):
        network.after_update(no_sum, made=True)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_planner_counts_parameters_and_operations_exactly(kind):
    config = transformers.ResNetConfig(**(SHAPE | kind)).to_dict() | {"image_size": 37}
    shape = resnet.from_config(config, where="test")
    with torch.device("meta"):
        network = build_network(shape)
        images, classes = torch.zeros(4, 3, 37, 37), torch.zeros(4, dtype=torch.long)
    assert total_parameters(shape) == sum(parameter.numel() for parameter in network.parameters())
    with FlopCounterMode(display=False) as forward:
        network.logits(network(images)[:, 0])
    with FlopCounterMode(display=False) as training:
        network.head_loss(network(images)[:, 0], classes)[0].backward()
    expected = count_flops(shape, sequences=4, sequence_tokens=1)
    assert (forward.get_total_flops(), training.get_total_flops()) == (expected.forward, expected.training)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_planner_counts_what_is_kept_for_the_backward_pass(dtype):
    shape = spec_of()
    network = build_network(shape, dtype=DTYPES[dtype])
    network.initialise(0)
    work = Workload(sequence_tokens=1, batch_tokens=5, steps=1, precision=dtype, optimizer="sgd")
    saved = SavedBytes((*network.parameters(), *network.buffers()))
    with saved.counting():
        hidden = network(IMAGES.to(DTYPES[dtype]))
    # The head stands behind: it keeps the mean over all places, and in 16 bits its own cast matrix.
    size = work.element_bytes
    head = size * 5 * shape.width + (2 * shape.classes * shape.width if size == 2 else 0)
    assert hidden.requires_grad
    assert saved.total_bytes == saved_bytes(counted(shape), work, 5) - head


def test_weights_are_a_function_of_the_seed():
    one, other = build_network(spec_of()), build_network(spec_of())
    one.initialise(7)
    torch.manual_seed(0)
    other.initialise(7)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert (one.matrices(), one.tables(), one.head_name()) == ({}, {}, "head.weight")


def test_what_is_not_for_images_is_refused():
    network = build_network(spec_of())
    with pytest.raises(ValueError, match="no positions, documents"):
        network(IMAGES.float(), part=range(1))
    with pytest.raises(RecipeError, match="no attention: leave attention=flex out"):
        build_network(spec_of(), kernels=KernelChoice(attention="flex"))
    with pytest.raises(RecipeError, match="recompute=none, not recompute=full"):
        build_network(spec_of(), recompute="full")


def test_every_field_of_the_spec_is_computed_or_refused():
    computed = {"family", "layers", "width", "classes", "labels", "image_size", "norm_epsilon", "convolutions"}
    unread = {"rope_theta"}
    assert computed | unread | set(_BUILT) == {field.name for field in fields(ModelSpec)}
    assert not computed & set(_BUILT)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation": "silu"}, "activation=relu, not activation=silu"),
        ({"dropout": Dropout(depth=0.1)}, "not dropout="),
        ({"layers": 4}, r"layers \(4\) is not the 3 of its stages"),
        ({"convolutions": None, "patch_size": 8}, "ResNet needs convolutions"),
    ],
)
def test_what_is_not_computed_is_refused_by_its_field(changes, message):
    with pytest.raises(RecipeError, match=message):
        build_network(spec_of(**changes))
