"""Matrices in nf4: values by hand, bytes, what is saved; losses and gradients beside transformers and peft."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from fixtures import tiny_models
from trainwright.core.errors import MissingPackage
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.model.adapters import peft as form
from trainwright.model.adapters import quantised
from trainwright.model.adapters.attach import attach, initialise
from trainwright.model.adapters.linear import AdaptedLinear
from trainwright.model.adapters.quantised import (
    AS_TRANSFORMERS_SAYS,
    QuantisedLinear,
    pack,
    quantise,
    quantised_layers,
    rounded,
    unpack,
)
from trainwright.model.build import build_network
from trainwright.model.layers import Linear
from trainwright.planner.counts.adapters import linear
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.forecast.memory.states import case_of, kept
from trainwright.spec.parts.adaptation import LowRank
from trainwright.spec.workload import Adapter, ParallelPlan, Workload
from unit.model.adapters.test_linear import saved_bytes

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # what peft calls of transformers
functional = pytest.importorskip("bitsandbytes.functional")

HOW = LowRank(rank=3, scale=0.5)
LEVELS = (
    *(-1.0, -0.6961928, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0.0),
    *(0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0),
)
"""Dettmers et al., 2023, arXiv 2305.14314, appendix E."""


def matrix(outputs, inputs, seed=1):
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed))


def layer_of(outputs=16, inputs=24, *, bias=False, adapter=True, seed=1):
    base = Linear(inputs, outputs, bias=bias)
    torch.nn.init.normal_(base.weight, generator=torch.Generator().manual_seed(seed))
    if bias:
        torch.nn.init.normal_(base.bias, generator=torch.Generator().manual_seed(seed + 1))
    layer = QuantisedLinear(base.requires_grad_(False))
    if adapter:
        factors = layer.add("one", HOW, magnitude=False)
        with torch.no_grad():
            for number, parameter in enumerate(factors.parameters()):
                parameter.copy_(matrix(*parameter.shape, seed=number + 5))
        layer.active = ("one",)
    return layer


@pytest.mark.parametrize("sizes", [(32, 64), (33, 10), (48, 200)])
def test_values_are_the_papers_levels_times_a_scale_for_64(sizes) -> None:
    weight = matrix(*sizes)
    packed = pack(weight)
    pairs = packed.codes.flatten().long()
    levels = torch.tensor(LEVELS)[torch.stack([pairs >> 4, pairs & 15], dim=1).flatten()[: weight.numel()]]
    outer = packed.outer.repeat_interleave(256)[: len(packed.scales)]
    scales = packed.table[packed.scales.long()] * outer + packed.mean
    expected = levels * scales.repeat_interleave(64)[: weight.numel()]
    assert torch.allclose(unpack(packed, weight.shape).flatten(), expected, atol=1e-6)
    largest = [block.abs().max() for block in weight.flatten().split(64)]
    assert torch.allclose(scales, torch.stack(largest), rtol=0.05, atol=0.02)
    chosen = (weight.flatten() / torch.stack(largest).repeat_interleave(64)[: weight.numel()]).unsqueeze(1)
    nearest = (chosen - torch.tensor(LEVELS)).abs().amin(dim=1)
    assert torch.allclose((chosen.squeeze(1) - levels).abs(), nearest, atol=1e-6), "each element has the nearest level"


def test_it_is_what_the_library_makes_but_for_the_last_digit_of_the_mean() -> None:
    weight = matrix(512, 192)
    codes, state = functional.quantize_4bit(weight, quant_type="nf4", compress_statistics=True)
    packed = pack(weight)
    assert torch.equal(packed.codes, codes)
    assert torch.equal(packed.scales, state.absmax)
    assert torch.allclose(packed.outer, state.state2.absmax, rtol=1e-6, atol=0)
    assert torch.allclose(unpack(packed, weight.shape), functional.dequantize_4bit(codes, state), atol=1e-5)


def test_an_element_takes_half_a_byte_and_a_64th_and_a_4096th() -> None:
    weight = matrix(1024, 512)
    packed = pack(weight)
    nbytes = sum(each.nbytes for each in (packed.codes, packed.scales, packed.outer))
    assert nbytes / weight.numel() == 0.5 + 1 / 64 + 4 / (64 * 256)
    assert (packed.mean.nbytes, packed.table.nbytes) == (4, 1024)


def test_threads_change_no_bit_of_a_base() -> None:
    weight, threads = matrix(2048, 1100), torch.get_num_threads()
    try:
        found = []
        for number in (1, 2):
            torch.set_num_threads(number)
            found.append(pack(weight))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_computes_as_one_with_the_values_of_its_matrix(bias, dtype) -> None:
    layer = layer_of(bias=bias)
    whole = Linear(24, 16, bias=bias).requires_grad_(False)
    whole.weight.copy_(layer.matrix())
    if bias:
        whole.bias.copy_(layer.bias)
    plain = AdaptedLinear(whole)
    plain.add("one", HOW, magnitude=False).load_state_dict(layer.adapters["one"].state_dict())
    plain.active = ("one",)
    x = matrix(10, 24, seed=9).reshape(2, 5, 24).to(dtype).requires_grad_()
    results = [each(x) for each in (layer, plain)]
    assert torch.equal(*results)
    parts = [(x, *each.adapters["one"].parameters()) for each in (layer, plain)]
    grads = [torch.autograd.grad(y.square().sum(), wanted) for y, wanted in zip(results, parts, strict=True)]
    assert all(torch.allclose(one, other, rtol=1e-5, atol=1e-6) for one, other in zip(*grads, strict=True))


def test_packed_weights_and_one_input_wait_for_the_backward_pass() -> None:
    """Three layers on one bf16 input, as query, key and value; whole values of a matrix are kept by none."""
    tokens, width = 64, 128
    x = torch.randn(1, tokens, width, dtype=torch.bfloat16, requires_grad=True)
    layers = [layer_of(width, width, seed=seed) for seed in (1, 2, 3)]
    kept = saved_bytes(
        lambda: [layer(x) for layer in layers], [each for layer in layers for each in layer.parameters()]
    )
    assert kept == tokens * width * 2 + 3 * (2 * 3 * width * 2 + tokens * 3 * 2)
    layer = layer_of(width, width, adapter=False)
    node = layer(x).grad_fn
    while "4Bit" not in type(node).__name__:
        node = node.next_functions[0][0]
    held = [each for each in node.tensors if each is not None] + [node.state.absmax, node.state.state2.absmax]
    owned = {each.untyped_storage().data_ptr() for each in layer.buffers()}
    assert {each.untyped_storage().data_ptr() for each in held} <= owned


def test_merged_in_fp32_it_computes_the_same_and_comes_back_to_the_bit() -> None:
    layer, x = layer_of(bias=True), matrix(4, 24, seed=8)
    before, expected = [each.clone() for each in layer.buffers()], layer(x)
    base, factors = layer.matrix(), layer.adapters["one"]
    layer.merge()
    assert layer.merged
    assert torch.allclose(layer(x), expected, atol=1e-5)
    assert torch.allclose(layer(x), x @ (base + 0.5 * factors.b @ factors.a).T + layer.bias, atol=1e-5)
    layer.unmerge()
    assert torch.equal(layer(x), expected)
    assert all(torch.equal(one, other) for one, other in zip(before, layer.buffers(), strict=True))


COMPILED = """
import torch
from trainwright.model.adapters.quantised import QuantisedLinear
from trainwright.model.layers import Linear
from trainwright.spec.parts.adaptation import LowRank

base = Linear(64, 32, bias=True).requires_grad_(False)
torch.nn.init.normal_(base.weight), torch.nn.init.normal_(base.bias)
layer = QuantisedLinear(base)
torch.nn.init.normal_(layer.add("one", LowRank(rank=3, scale=0.5), magnitude=False).a)
torch.nn.init.normal_(layer.adapters["one"].b)
layer.active = ("one",)
x = torch.randn(8, 64, requires_grad=True)
compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
assert torch.allclose(compiled(x), layer(x), atol=1e-4)
parts = (x, *layer.adapters.parameters())
ours, plain = (torch.autograd.grad(each(x).square().sum(), parts) for each in (compiled, layer))
assert all(torch.allclose(one, other, rtol=1e-4, atol=1e-2) for one, other in zip(ours, plain))
"""


def test_compiled_code_has_no_break() -> None:
    """In a process without run-time shape checks, which torch.compile cannot see through."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_lengths_of_rows_ask_for_whole_ones() -> None:
    with pytest.raises(ValueError, match="lengths of rows"):
        layer_of(adapter=False).add("one", HOW, magnitude=True)


def test_without_the_library_the_line_that_installs_it_is_said(monkeypatch) -> None:
    monkeypatch.setattr(quantised, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"frozen=nf4 needs.*bitsandbytes.*pip install 'trainwright\[qlora\]'"):
        pack(matrix(2, 2))


def test_losses_and_gradients_are_those_of_transformers_and_peft(make_pair, tokens, tmp_path) -> None:
    """They read what is written here, over bitsandbytes' own layers; gradients are compared in PEFT's format too."""
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    ours, folder, _ = make_pair("llama")
    quantise(ours)
    modules = dict.fromkeys(quantised_layers(ours.spec), LowRank(rank=2, scale=0.75))
    attach(ours, modules)
    initialise(ours, 4)
    with torch.no_grad():
        for number, parameter in enumerate(ours.trained().values()):
            parameter.add_(matrix(*parameter.shape, seed=number), alpha=0.05)
    adapters, grads = tmp_path / "adapters", tmp_path / "grads"
    for path in (adapters, grads):
        path.mkdir()
    written = form.Adapters(modules=modules, tensors=dict(ours.trained()))
    form.write(adapters, ours.spec, written, base=str(folder), quantisation=AS_TRANSFORMERS_SAYS)
    how = transformers.BitsAndBytesConfig.from_dict(json.loads((adapters / form.QUANTISATION).read_text()))
    base = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, quantization_config=how, device_map="cpu"
    )
    # In training, as here: else bitsandbytes packs weights anew on processors with AVX512-BF16, in bf16.
    theirs = peft.PeftModel.from_pretrained(base, adapters, is_trainable=True).train()
    assert type(theirs.get_submodule("base_model.model.model.layers.0.mlp.up_proj.base_layer")).__name__ == "Linear4bit"
    losses = [
        torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        for logits in (ours.logits(ours(tokens)), theirs(tokens).logits)
    ]
    assert losses[0].item() == pytest.approx(losses[1].item(), abs=1e-5)
    for loss in losses:
        loss.backward()
    found = {name: parameter.grad for name, parameter in ours.trained().items()}
    form.write(grads, ours.spec, form.Adapters(modules=modules, tensors=found), base=str(folder))
    wanted = {name.replace(".default", ""): each.grad for name, each in theirs.named_parameters() if each.requires_grad}
    stored = load_file(grads / form.WEIGHTS)
    assert stored.keys() == wanted.keys()
    for name, gradient in wanted.items():
        assert torch.allclose(stored[name], gradient, rtol=1e-3, atol=1e-3 * gradient.abs().max()), name


def test_all_matrices_of_blocks_are_packed_and_nothing_else(make_pair) -> None:
    ours, _, _ = make_pair("llama")
    before = dict(ours.named_parameters())
    quantise(ours)
    gone = before.keys() - dict(ours.named_parameters()).keys()
    assert gone == {f"{path}.weight" for path in quantised_layers(ours.spec)}
    assert all(name.startswith("blocks.") and before[name].ndim == 2 for name in gone)
    kept = sum(each.nbytes for each in ours.held())
    assert kept < sum(each.nbytes for each in before.values())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_bytes_are_those_that_the_plan_counts(precision) -> None:
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    network = build_network(tiny_models.spec(width=256, heads=8, head_size=32, ffn_width=512, vocabulary=1000))
    network.initialise(1)
    spec = network.spec
    quantise(network)
    attach(network, dict.fromkeys(quantised_layers(spec), LowRank(rank=4, scale=1.0)))
    for parameter in network.parameters():
        if not parameter.requires_grad and parameter.ndim > 1:
            parameter.data = parameter.data.to(dtype)
    held = {each.untyped_storage().data_ptr(): each.nbytes for each in network.held()}
    adapter = Adapter(rank=4, targets=linear(spec), frozen="nf4")
    work = Workload(
        sequence_tokens=64, batch_tokens=64, steps=1, precision=precision, optimizer="adamw", adapter=adapter
    )
    layouts = Layouts.of([ParallelPlan()], ["none"], work)
    counted = kept(case_of(spec, work, layouts, read_stack("trainwright").memory)).weights
    assert sum(held.values()) == pytest.approx(float(counted[0, 0]), rel=0.015), "norms in fp32, and a table of 1 KiB"


def test_values_of_nothing_are_nothing() -> None:
    nothing = torch.empty(3, 4, device="meta")
    assert rounded(nothing) is nothing
    weight = matrix(6, 40)
    assert torch.equal(rounded(weight), unpack(pack(weight), weight.shape))
