"""A model of adapters and a base elsewhere: what is wrong with its files is named; test_method trains such."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from fixtures import tiny_models
from trainwright.artifact.weight_headers import model_digest
from trainwright.core.errors import DataError
from trainwright.core.records import to_json
from trainwright.model.adapters.quantised import rounded
from trainwright.model.bundle import check_bundle, load_bundle
from trainwright.spec.parts.adaptation import Adaptation, BaseModel, LowRank

PATH = "blocks.1.ffn.down"


@pytest.fixture
def folder(tmp_path):
    """A trained model of one adapter of rank 2."""
    made = tiny_models.tokenizer()
    network = tiny_models.decoder()
    base = tiny_models.write_trained(tmp_path / "base", network, made)
    out = tiny_models.write_trained(tmp_path / "out", network, made)
    tensors = {f"{PATH}.adapters.default.a": torch.ones(2, 48), f"{PATH}.adapters.default.b": torch.ones(32, 2)}
    save_file(tensors, out / "model.safetensors")
    source = BaseModel(path=str(base), digest=model_digest(base))
    said = Adaptation(modules={PATH: LowRank(rank=2, scale=0.25)}, base=source)
    (out / "adapters.json").write_text(json.dumps(to_json(said)))
    return out


def test_base_and_adapter_are_merged(folder) -> None:
    check_bundle(folder, None, where="x")
    base, whole = (dict(load_bundle(path)[0].named_parameters()) for path in (folder.parent / "base", folder))
    assert torch.equal(whole[f"{PATH}.weight"], base[f"{PATH}.weight"] + 0.5)
    assert all(torch.equal(whole[name], base[name]) for name in base if name != f"{PATH}.weight")


def test_a_base_in_nf4_is_what_nf4_makes_of_it(folder) -> None:
    pytest.importorskip("bitsandbytes")
    said = json.loads((folder / "adapters.json").read_text())
    (folder / "adapters.json").write_text(json.dumps(said | {"frozen": "nf4"}))
    check_bundle(folder, None, where="x")
    base, whole = (dict(load_bundle(path)[0].named_parameters()) for path in (folder.parent / "base", folder))
    for name, weight in base.items():
        packed = name.startswith("blocks.") and weight.ndim == 2
        expected = rounded(weight) if packed else weight
        assert torch.equal(whole[name], expected + 0.5 * (name == f"{PATH}.weight")), name


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"a": torch.ones(2, 48)}, r"missing.*default\.b"),
        ({"a": torch.ones(2, 47), "b": torch.ones(32, 2)}, r"default\.a has another shape.*2, 47.*2, 48"),
        ({"a": torch.ones(2, 48), "b": torch.ones(32, 2), "c": torch.ones(1)}, r"no place.*default\.c"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(folder, tensors, message) -> None:
    path = folder / "model.safetensors"
    assert load_file(path)
    save_file({f"{PATH}.adapters.default.{name}": values for name, values in tensors.items()}, path)
    with pytest.raises(DataError, match=message):
        load_bundle(folder)


def test_a_layer_that_the_base_lacks_is_named(folder) -> None:
    said = json.loads((folder / "adapters.json").read_text())
    said["modules"] = {"blocks.7.ffn.down": {"rank": 2, "scale": 0.25}}
    (folder / "adapters.json").write_text(json.dumps(said))
    with pytest.raises(DataError, match=r"blocks\.7\.ffn\.down"):
        load_bundle(folder)
