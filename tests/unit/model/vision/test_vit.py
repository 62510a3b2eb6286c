"""ViT against transformers' own, in logits and in every gradient; and what it does not compute, it refuses."""

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
from trainwright.model.families import vit
from trainwright.model.losses import IGNORE
from trainwright.model.vision.vit import _BUILT, patches
from trainwright.planner.counts.flops import count_flops
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.counts.saved.activations import loss_bytes, saved_bytes
from trainwright.planner.counts.saved.micro_batch import MicroBatch
from trainwright.runtime.device import DTYPES
from trainwright.runtime.memory import LiveBytes, SavedBytes
from trainwright.spec.model import Dropout, ModelSpec
from trainwright.spec.workload import KernelChoice

SHAPE = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "image_size": 24,
    "patch_size": 8,
    "num_labels": 7,
}
IMAGES = torch.randn(5, 3, 24, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
MATRICES = ("attention.query", "attention.key", "attention.value", "attention.out", "ffn.up", "ffn.down")
CLASSES = torch.tensor([3, 0, 6, 1, 3])


def theirs_of(**changes) -> transformers.ViTForImageClassification:
    torch.manual_seed(1)
    config = transformers.ViTConfig(**(SHAPE | changes), attn_implementation="eager")
    model = transformers.ViTForImageClassification(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.double()


def ours_of(tmp_path, theirs, dtype):
    """Their network as we read it from their files, and its shape."""
    theirs.save_pretrained(tmp_path)
    spec = read_shape(tmp_path)
    network = build_network(spec, dtype=dtype)
    network.load_state_dict(hf.read_weights(tmp_path, spec), assign=True)
    return network.to(dtype)


def whole_softmax(monkeypatch) -> None:
    """Their eager attention casts its weights to fp32; here it keeps the dtype."""

    def attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **_):
        weights = torch.softmax(query @ key.transpose(2, 3) * scaling, dim=-1)
        return (weights @ value).transpose(1, 2).contiguous(), weights

    monkeypatch.setattr("transformers.models.vit.modeling_vit.eager_attention_forward", attention)


@pytest.mark.parametrize(
    ("changes", "kernel", "dtype", "bound"),
    [
        ({}, "math", torch.float64, 1e-9),
        ({}, "sdpa", torch.float64, 1e-9),
        ({"qkv_bias": False, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3}, "auto", torch.float64, 1e-9),
        ({"image_size": 24, "patch_size": 4}, "auto", torch.float32, 1e-4),
    ],
    ids=["whole scores", "fused", "other settings", "fp32"],
)
def test_logits_and_all_gradients_are_those_of_transformers(tmp_path, monkeypatch, changes, kernel, dtype, bound):
    if dtype == torch.float64:
        whole_softmax(monkeypatch)
    theirs = theirs_of(**changes)
    ours = ours_of(tmp_path, theirs, dtype).train()
    ours.use(KernelChoice(attention=kernel))
    output = theirs(pixel_values=IMAGES)
    torch.nn.functional.cross_entropy(output.logits, CLASSES, reduction="sum").backward()
    hidden = ours(IMAGES.to(dtype))[:, 0]
    torch.testing.assert_close(ours.logits(hidden).double(), output.logits, atol=bound, rtol=bound)
    loss, weight = ours.head_loss(hidden, CLASSES)
    assert int(weight) == 5
    loss.backward()
    gradients = vit.from_hf(on_disk({name: p.grad for name, p in theirs.named_parameters()}), ours.spec)
    assert gradients.keys() == dict(ours.named_parameters()).keys()
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad.double(), gradients[name], atol=bound, rtol=bound, msg=name)


def on_disk(weights):
    """Names of transformers 5's modules as its files have them."""
    pairs = [
        ("vit.layers.", "vit.encoder.layer."),
        (".attention.q_proj.", ".attention.attention.query."),
        (".attention.k_proj.", ".attention.attention.key."),
        (".attention.v_proj.", ".attention.attention.value."),
        (".attention.o_proj.", ".attention.output.dense."),
        (".mlp.fc1.", ".intermediate.dense."),
        (".mlp.fc2.", ".output.dense."),
    ]
    renamed = {}
    for name, weight in weights.items():
        for old, new in pairs:
            name = name.replace(old, new)
        renamed[name] = weight
    return renamed


def test_a_target_that_does_not_count_adds_nothing(tmp_path):
    network = ours_of(tmp_path, theirs_of(), torch.float64)
    hidden = network(IMAGES)[:, 0]
    targets = torch.where(torch.arange(5) == 2, IGNORE, CLASSES)
    loss, weight = network.head_loss(hidden, targets)
    others = [0, 1, 3, 4]
    expected = torch.nn.functional.cross_entropy(network.logits(hidden)[others], CLASSES[others], reduction="sum")
    assert int(weight) == 4
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(network.token_losses(hidden, targets).sum().double(), expected, atol=1e-4, rtol=1e-5)


def test_patches_are_cut_as_a_convolution_sees_them():
    filters = torch.randn(6, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = torch.nn.functional.conv2d(IMAGES, filters, stride=8).flatten(2).transpose(1, 2)
    torch.testing.assert_close(patches(IMAGES, 8) @ filters.flatten(1).T, expected)


def spec(**changes) -> ModelSpec:
    """The shape of ``SHAPE``."""
    return replace(vit.from_config(transformers.ViTConfig(**SHAPE).to_dict(), where="test"), **changes)


@pytest.mark.parametrize("recompute", ["full", "selective"])
def test_recomputation_leaves_every_gradient(recompute):
    results = []
    for how in ("none", recompute):
        network = build_network(spec(), recompute=how)
        network.initialise(3)
        loss, _ = network.head_loss(network(IMAGES.float())[:, 0], CLASSES)
        loss.backward()
        results.append([parameter.grad for parameter in network.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_the_planner_counts_parameters_and_operations_exactly():
    shape = spec()
    with torch.device("meta"):
        network = build_network(shape, kernels=KernelChoice(attention="math"))
        images, classes = torch.zeros(4, 3, 24, 24), torch.zeros(4, dtype=torch.long)
    assert total_parameters(shape) == sum(parameter.numel() for parameter in network.parameters())
    with FlopCounterMode(display=False) as forward:
        network.logits(network(images)[:, 0])
    with FlopCounterMode(display=False) as training:  # the loss makes its gradients in the forward pass
        network.head_loss(network(images)[:, 0], classes)[0].backward()
    expected = count_flops(shape, sequences=4, sequence_tokens=shape.context_tokens)
    assert (forward.get_total_flops(), training.get_total_flops()) == (expected.forward, expected.training)


def test_dropout_draws_by_image_alone_and_rests_in_evaluation():
    network = build_network(spec(dropout=Dropout(residual=0.3, embedding=0.2)))
    network.initialise(0)
    samples = torch.tensor([11, 12, 13, 14, 15])
    whole = network(IMAGES.float(), samples=samples)
    torch.testing.assert_close(network(IMAGES.float()[3:], samples=samples[3:]), whole[3:])
    assert not torch.allclose(network(IMAGES.float(), samples=samples + 10), whole)
    with pytest.raises(RecipeError, match="dropout needs the keys"):
        network(IMAGES.float())
    network.eval()
    assert torch.equal(network(IMAGES.float()), network(IMAGES.float(), samples=samples))


def test_weights_are_a_function_of_the_seed():
    one, other = build_network(spec()), build_network(spec())
    one.initialise(7)
    torch.manual_seed(0)
    other.initialise(7)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert one.matrices().keys() == {f"blocks.{layer}.{name}.weight" for layer in range(3) for name in MATRICES}
    assert one.head_name() == "head.weight"


@pytest.mark.parametrize("attention", ["flex", "fa3"])
def test_a_kernel_for_masks_is_refused(attention):
    with pytest.raises(RecipeError, match=rf"train\.exec\.attention: .*math, sdpa, not attention={attention}"):
        build_network(spec(), kernels=KernelChoice(attention=attention))


def test_what_is_for_texts_is_refused():
    network = build_network(spec())
    network.initialise(0)
    with pytest.raises(ValueError, match="no positions, documents"):
        network(IMAGES.float(), part=range(1))


def test_every_field_of_the_spec_is_computed_or_refused():
    sizes = ("layers", "width", "heads", "kv_heads", "head_size", "ffn_width", "image_size", "patch_size", "classes")
    computed = {*sizes, "family", "norm_epsilon", "bias", "qkv_bias", "activation", "labels", "dropout", "rope_theta"}
    refused = {*_BUILT, "output_bias", "context_tokens"}
    assert computed | refused == {field.name for field in fields(ModelSpec)}
    assert not computed & refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pooler": True}, "pooler=False, not pooler=True"),
        ({"norm": "rmsnorm"}, "norm=layernorm, not norm=rmsnorm"),
        ({"context_tokens": 11}, "context_tokens=10, not context_tokens=11"),
        ({"dropout": Dropout(attention=0.1)}, r"dropout\.attention=0, not 0\.1"),
        ({"patch_size": 7}, r"image_size \(24\) must be a multiple of patch_size \(7\)"),
    ],
)
def test_what_is_not_computed_is_refused_by_its_field(changes, message):
    with pytest.raises(RecipeError, match=message):
        build_network(spec(**changes))


@pytest.mark.parametrize("kernel", ["math", "sdpa"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_planner_counts_what_is_kept_for_the_backward_pass(dtype, kernel):
    shape = spec()
    kernels = KernelChoice(attention=kernel)
    network = build_network(shape, dtype=DTYPES[dtype], kernels=kernels)
    network.initialise(0)
    batch = MicroBatch(sequences=5, sequence_tokens=10, dtype=dtype, device_kind="cpu", kernels=kernels)
    saved = SavedBytes(network.parameters())
    with saved.counting():
        hidden = network(IMAGES.to(DTYPES[dtype]))
    assert hidden.requires_grad  # alive until counted
    assert saved.total_bytes == saved_bytes(shape, batch)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_planner_counts_about_what_the_loss_holds(dtype):
    shape = spec(classes=1000)
    network = build_network(shape, dtype=DTYPES[dtype])
    network.initialise(0)
    hidden = torch.randn(1024, shape.width, dtype=DTYPES[dtype], requires_grad=True)
    with LiveBytes() as live:
        network.head_loss(hidden, torch.zeros(1024, dtype=torch.long))
    batch = MicroBatch(sequences=1024, sequence_tokens=10, dtype=dtype, device_kind="cpu")
    assert loss_bytes(shape, batch) == pytest.approx(live.peak_bytes, rel=0.3)
