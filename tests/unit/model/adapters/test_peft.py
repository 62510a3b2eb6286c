"""PEFT's files both ways: what peft itself computes with them, its gradients, and adapters of another base."""

from __future__ import annotations

import json
import math

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from trainwright.core.errors import DataError, RecipeError
from trainwright.model.adapters.attach import adapted_layers, attach, fill, initialise
from trainwright.model.adapters.peft import Adapters, read, write
from trainwright.planner.counts.adapters import placed
from trainwright.spec.parts.adaptation import LowRank

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # what peft calls of transformers

NAMES = {
    "llama": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "gpt2": ["c_attn", "c_proj", "c_fc"],
}


def ours_with(network, adapters: Adapters):
    """Our network with adapters that were read."""
    attach(network, adapters.modules, magnitude=adapters.magnitude)
    fill(network, adapters.tensors)
    return network


def trained(network) -> Adapters:
    """What stands beside our network."""
    modules, tensors, magnitude = {}, {}, False
    for path, layer in adapted_layers(network):
        factors = layer.adapters["default"]
        modules[path] = LowRank(rank=factors.a.shape[0], scale=factors.scale)
        magnitude = factors.magnitude is not None
        tensors |= {f"{path}.adapters.default.{name}": p.detach() for name, p in factors.named_parameters()}
    return Adapters(modules=modules, tensors=tensors, magnitude=magnitude)


def scattered(module) -> None:
    """Gives every trained parameter values that matter."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)


def loss_of(logits, tokens):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


@pytest.mark.parametrize("settings", [{}, {"use_rslora": True}, {"use_dora": True}], ids=["lora", "rslora", "dora"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_what_peft_wrote_computes_and_trains_as_in_peft(make_pair, tokens, tmp_path, family, settings) -> None:
    ours, _, theirs = make_pair(family)
    config = peft.LoraConfig(
        r=4,
        lora_alpha=6,
        target_modules=NAMES[family],
        fan_in_fan_out=family == "gpt2",
        task_type="CAUSAL_LM",
        **settings,
    )
    model = peft.get_peft_model(theirs, config)
    scattered(model)
    model.save_pretrained(tmp_path / "adapter")
    ours_with(ours, read(tmp_path / "adapter", ours.spec))
    logits = ours.logits(ours(tokens))
    expected = model(tokens).logits
    assert torch.allclose(logits, expected, atol=1e-5, rtol=1e-5)
    loss_of(logits, tokens).backward()
    loss_of(expected, tokens).backward()
    gradients = {name: p.grad for name, p in ours.named_parameters() if p.requires_grad}
    assert all(p.grad is None for p in ours.parameters() if not p.requires_grad)
    theirs_by_name = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    for name, gradient in theirs_by_name.items():
        assert torch.allclose(ours_in_their_form(gradients, name), gradient, atol=1e-5, rtol=1e-5), name


def ours_in_their_form(gradients, name):
    """The gradient of a tensor of PEFT from ours: parts of c_attn have an equal ``a``, whose gradients add up."""
    parts = {
        "q_proj": "attention.query",
        "k_proj": "attention.key",
        "v_proj": "attention.value",
        "o_proj": "attention.out",
        "gate_proj": "ffn.gate",
        "up_proj": "ffn.up",
        "down_proj": "ffn.down",
        "attn.c_proj": "attention.out",
        "mlp.c_fc": "ffn.up",
        "mlp.c_proj": "ffn.down",
    }
    layer = next(part for part in name.split(".") if part.isdigit())
    kind = "a" if "lora_A" in name else "b" if "lora_B" in name else "magnitude"
    if "c_attn" in name:
        three = [
            gradients[f"blocks.{layer}.attention.{part}.adapters.default.{kind}"] for part in ("query", "key", "value")
        ]
        return sum(three) if kind == "a" else torch.cat(three)
    ours = next(ours for theirs, ours in parts.items() if f".{theirs}." in name)
    return gradients[f"blocks.{layer}.{ours}.adapters.default.{kind}"]


@pytest.mark.parametrize("magnitude", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("llama", ["all-linear"]),
        ("llama", ["blocks.1.*.query", "down"]),
        ("gpt2", ["all-linear"]),
        ("gpt2", ["query", "value"]),
    ],
)
def test_what_we_write_computes_in_peft_as_here(make_pair, tokens, tmp_path, family, words, magnitude) -> None:
    ours, folder, theirs = make_pair(family)
    attach(ours, dict.fromkeys(placed(ours.spec, words), LowRank(rank=3, scale=math.sqrt(3))), magnitude=magnitude)
    initialise(ours, 7)
    scattered(ours)
    out = tmp_path / "written"
    out.mkdir()
    if magnitude and words == ["query", "value"]:
        with pytest.raises(RecipeError, match="all rows of a module"):
            write(out, ours.spec, trained(ours), base=str(folder))
        return
    write(out, ours.spec, trained(ours), base=str(folder))
    model = peft.PeftModel.from_pretrained(theirs, out)
    with torch.no_grad():
        assert torch.allclose(ours.logits(ours(tokens)), model(tokens).logits, atol=1e-5, rtol=1e-5)
    again = read(out, ours.spec)
    if family == "llama":
        assert set(again.modules) == {path for path, _ in adapted_layers(ours)}
        assert all(torch.equal(values, trained(ours).tensors[name]) for name, values in again.tensors.items())


def test_an_adapter_of_gpt2_comes_back_with_its_own_rank(make_pair, tmp_path) -> None:
    ours, folder, theirs = make_pair("gpt2")
    model = peft.get_peft_model(theirs, peft.LoraConfig(r=4, target_modules=NAMES["gpt2"], fan_in_fan_out=True))
    scattered(model)
    model.save_pretrained(tmp_path / "adapter")
    (tmp_path / "again").mkdir()
    write(tmp_path / "again", ours.spec, read(tmp_path / "adapter", ours.spec), base=str(folder))
    first, second = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("adapter", "again"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture
def written(make_pair, tmp_path):
    """A folder with adapters of a small llama, and its network."""
    ours, folder, _ = make_pair("llama")
    attach(ours, dict.fromkeys(placed(ours.spec, ["all-linear"]), LowRank(rank=2, scale=1.0)))
    initialise(ours, 7)
    out = tmp_path / "written"
    out.mkdir()
    write(out, ours.spec, trained(ours), base=str(folder))
    return out, ours


def test_adapters_of_another_base_are_refused_by_name(written) -> None:
    from dataclasses import replace

    out, ours = written
    with pytest.raises(
        DataError, match=r"another base.*down_proj.lora_B.weight of shape \(32, 2\), expected shape \(64, 2\)"
    ):
        read(out, replace(ours.spec, width=64))
    with pytest.raises(DataError, match=r"another base.*model.layers.1"):
        read(out, replace(ours.spec, layers=1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peft_type": "LOHA"}, "only LoRA"),
        ({"bias": "all"}, "bias=all"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"init_lora_weights": "pissa"}, "a base that PEFT changed .*init_lora_weights=pissa"),
        ({"init_lora_weights": "pissa_niter_4"}, "a base that PEFT changed"),
        ({"init_lora_weights": "olora"}, "a base that PEFT changed"),
        ({"init_lora_weights": "corda"}, "a base that PEFT changed"),
        ({"init_lora_weights": "loftq"}, "a base that PEFT changed"),
        ({"layer_replication": [[0, 2], [1, 2]]}, "layer_replication"),
        ({"use_qalora": True}, "use_qalora"),
        ({"of_a_later_version": 3}, "of_a_later_version=3, expected of_a_later_version=null"),
    ],
)
def test_what_is_not_read_is_refused_by_its_key(written, change, message) -> None:
    out, ours = written
    config = out / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    with pytest.raises(DataError, match=message):
        read(out, ours.spec)


@pytest.mark.parametrize(
    "settings", [{"init_lora_weights": "gaussian"}, {"init_lora_weights": False}, {"lora_dropout": 0.1}]
)
def test_all_that_peft_stores_of_plain_adapters_is_read(make_pair, tokens, tmp_path, settings) -> None:
    ours, _, theirs = make_pair("llama")
    model = peft.get_peft_model(theirs, peft.LoraConfig(r=4, target_modules=["q_proj"], **settings)).eval()
    scattered(model)
    model.save_pretrained(tmp_path)
    ours_with(ours, read(tmp_path, ours.spec))
    assert torch.allclose(ours.logits(ours(tokens)), model(tokens).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("initial", ["pissa", "olora"])
def test_a_base_that_peft_changes_is_not_taken_for_the_one_on_disk(make_pair, tokens, tmp_path, initial) -> None:
    ours, _, theirs = make_pair("llama")
    config = peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=initial)
    before = theirs.model.layers[0].self_attn.q_proj.weight.detach().clone()
    model = peft.get_peft_model(theirs, config)
    assert not torch.equal(theirs.model.layers[0].self_attn.q_proj.weight, before)
    model.save_pretrained(tmp_path)
    with pytest.raises(DataError, match=f"init_lora_weights={initial}"):
        read(tmp_path, ours.spec)


def test_a_tensor_that_is_missing_or_unknown_is_named(written) -> None:
    out, ours = written
    path = out / "adapter_model.safetensors"
    tensors = load_file(path)
    save_file({name: values for name, values in tensors.items() if "layers.0.mlp.up_proj.lora_B" not in name}, path)
    with pytest.raises(DataError, match=r"missing.*layers.0.mlp.up_proj.lora_B"):
        read(out, ours.spec)
    save_file({**tensors, "base_model.model.lm_head.weight": torch.ones(2, 2)}, path)
    with pytest.raises(DataError, match=r"lm_head"):
        read(out, ours.spec)
