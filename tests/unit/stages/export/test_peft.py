"""The exporter ``peft``: what it refuses; what it writes is held against peft where the format is (model/adapters)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from trainwright.artifact.weight_headers import model_digest
from trainwright.core.errors import RecipeError
from trainwright.core.records import to_json
from trainwright.model.bundle import load_bundle
from trainwright.spec.parts.adaptation import Adaptation, BaseModel, LowRank
from trainwright.stages.export.check import problems
from trainwright.stages.export.exporter import Exporter
from trainwright.stages.export.peft import Peft


@pytest.mark.parametrize("frozen", ["auto", "nf4"])
def test_it_writes_the_adapters_and_reads_the_same_logits(tiny, make_trained, recipe, tmp_path, frozen) -> None:
    if frozen == "nf4":
        pytest.importorskip("bitsandbytes")
    network = tiny.decoder()
    base = tiny.write_trained(tmp_path / "base", network, tiny.tokenizer())
    trained = make_trained(network)
    path = "blocks.0.attention.value"
    b = torch.full((16, 2), 0.5)
    save_file(
        {f"{path}.adapters.default.a": torch.ones(2, 32), f"{path}.adapters.default.b": b},
        trained.path / "model.safetensors",
    )
    source = BaseModel(path=str(base), digest=model_digest(base))
    said = Adaptation(modules={path: LowRank(rank=2, scale=0.25)}, base=source, frozen=frozen)
    (trained.path / "adapters.json").write_text(json.dumps(to_json(said)))
    merged, _ = load_bundle(trained.path)
    exporter, out = Peft(), tmp_path / "out"
    assert isinstance(exporter, Exporter)
    out.mkdir()
    exporter.write(out, merged, recipe=recipe, trained=trained, dtype=torch.float32)
    written = load_file(out / "adapter_model.safetensors")
    assert torch.equal(written["base_model.model.model.layers.0.self_attn.v_proj.lora_B.weight"], b)
    assert (out / "quantization_config.json").is_file() == (frozen == "nf4")
    tokens = torch.arange(24).reshape(1, 24)
    with torch.no_grad():
        assert torch.allclose(exporter.read(out)(tokens), merged.logits(merged(tokens)), atol=1e-5)


def test_adapters_of_a_network_without_a_head_are_read_as_hidden_states(tiny, make_trained, recipe, tmp_path) -> None:
    network = tiny.encoder("bert", language_head=False)
    base = tiny.write_trained(tmp_path / "base", network, tiny.tokenizer())
    trained, path = make_trained(network), "blocks.0.attention.value"
    kept = {f"{path}.adapters.default.a": torch.ones(2, 32), f"{path}.adapters.default.b": torch.full((32, 2), 0.5)}
    save_file(kept, trained.path / "model.safetensors")
    source = BaseModel(path=str(base), digest=model_digest(base))
    said = Adaptation(modules={path: LowRank(rank=2, scale=0.25)}, base=source, frozen="auto")
    (trained.path / "adapters.json").write_text(json.dumps(to_json(said)))
    merged, _ = load_bundle(trained.path)
    out = tmp_path / "out"
    out.mkdir()
    Peft().write(out, merged, recipe=recipe, trained=trained, dtype=torch.float32)
    assert json.loads((out / "adapter_config.json").read_text())["task_type"] == "FEATURE_EXTRACTION"
    tokens = torch.arange(24).reshape(1, 24)
    with torch.no_grad():
        told = Peft().read(out)(tokens)
        assert told.shape == (1, 24, 32)
        assert torch.allclose(told, merged(tokens), atol=1e-5)
        assert not torch.allclose(told, network(tokens), atol=1e-2)


def test_a_model_that_was_trained_whole_has_no_adapters(tiny, make_trained, recipe, tmp_path) -> None:
    network = tiny.decoder()
    with pytest.raises(RecipeError, match="has no adapters"):
        Peft().write(tmp_path, network, recipe=recipe, trained=make_trained(network), dtype=torch.float32)


def test_what_cannot_be_is_known_before(recipe) -> None:
    record = recipe.model_dump(mode="json")
    record["export"] = {"formats": ["peft"], "dtype": "bf16"}
    found = [str(problem) for problem in problems(type(recipe).model_validate(record), None)]
    assert any("whole weights are trained" in text for text in found)
    assert any("export.dtype" in text for text in found)


def adapting(recipe, family="gpt2", *, init_from=None, **method):
    record = recipe.model_dump(mode="json", exclude_unset=True)
    record["export"] = {"formats": ["peft"]}
    record["model"] = {"family": family, "layers": 2, "width": 32, "heads": 4, "context_tokens": 96}
    record["model"] |= {} if init_from is None else {"init_from": str(init_from)}
    record["train"] = record.get("train", {}) | {"method": method}
    return type(recipe).model_validate(record)


@pytest.mark.parametrize(
    ("family", "targets", "message"),
    [
        ("gpt2", ["query"], "query of blocks.0.attention"),
        ("gpt2", ["attention", "blocks.1.ffn.*"], None),
        ("phi3", ["all-linear"], None),
        ("phi3", ["attention", "up_proj"], "up of blocks.0.ffn"),
        ("llama", ["query"], None),
    ],
)
def test_lengths_of_a_part_of_a_module_are_refused_before(recipe, family, targets, message) -> None:
    found = [str(each) for each in problems(adapting(recipe, family, name="dora", targets=targets), None)]
    assert len(found) == (message is not None)
    assert all(message in text and "export.formats.0" in text for text in found)
    assert not list(problems(adapting(recipe, family, name="lora", targets=targets), None))


def test_a_new_head_beside_adapters_is_refused_before(tiny, recipe, tmp_path) -> None:
    base = tiny.write_trained(tmp_path / "base", tiny.decoder("gpt2"), tiny.tokenizer())
    assert not list(problems(adapting(recipe, init_from=base, name="lora"), None))
    classes = replace(tiny.spec("gpt2"), classes=2, labels=("a", "b"), language_head=False)
    (base / "model.json").write_text(json.dumps(to_json(classes)))
    found = [str(each) for each in problems(adapting(recipe, init_from=base, name="lora"), None)]
    assert len(found) == 1
    assert "this form has adapters alone" in found[0] and "a new head" in found[0]
