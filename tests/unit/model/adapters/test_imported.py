"""PEFT's folder becomes a model: it computes what peft does, its base is checked, and nothing is left of what fails."""

from __future__ import annotations

import json

import pytest
import torch

from trainwright.cli.main import main
from trainwright.core.errors import DataError, RecipeError
from trainwright.model import hf
from trainwright.model.adapters.imported import import_adapters
from trainwright.model.bundle import check_bundle, load_bundle

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # what peft calls of transformers


@pytest.fixture
def made(make_pair, tokens, tmp_path):
    """Returns a folder of PEFT's beside a small base, and what peft computes of tokens."""

    def make(family="llama", **settings):
        _, _, theirs = make_pair(family)
        model = peft.get_peft_model(theirs, peft.LoraConfig(r=4, target_modules="all-linear", **settings)).eval()
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_" in name:
                    parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
        model.save_pretrained(tmp_path / "peft")
        return tmp_path / "peft", model(tokens).logits.detach()

    return make


@pytest.mark.parametrize(
    ("family", "settings"),
    [("llama", {"use_rslora": True}), ("llama", {"use_dora": True}), ("gpt2", {"fan_in_fan_out": True})],
)
def test_it_computes_what_peft_does(made, tokens, tmp_path, family, settings) -> None:
    folder, logits = made(family, **settings)
    written = import_adapters(folder, tmp_path / "model")
    assert written == sum(path.stat().st_size for path in (tmp_path / "model").iterdir())
    check_bundle(tmp_path / "model", None, where="x")
    network, _ = load_bundle(tmp_path / "model")
    with torch.no_grad():
        torch.testing.assert_close(network.logits(network(tokens)), logits, rtol=1e-4, atol=1e-4)


def test_a_base_that_moved_is_named_by_hand(made, tokens, tmp_path) -> None:
    folder, logits = made()
    base = (tmp_path / "llama-base").rename(tmp_path / "moved")
    with pytest.raises(DataError, match=r"the base of these adapters is not there .*llama-base.*--base"):
        import_adapters(folder, tmp_path / "model")
    import_adapters(folder, tmp_path / "model", base=str(base))
    network, _ = load_bundle(tmp_path / "model")
    with torch.no_grad():
        torch.testing.assert_close(network.logits(network(tokens)), logits, rtol=1e-4, atol=1e-4)


def test_adapters_that_name_no_base_ask_for_it(made, tmp_path) -> None:
    folder, _ = made()
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": None}))
    with pytest.raises(DataError, match=r"name no base .*--base"):
        import_adapters(folder, tmp_path / "model")


def test_a_name_of_the_hub_is_looked_for_there(made, tmp_path, monkeypatch) -> None:
    folder, _ = made()
    config = json.loads((folder / "adapter_config.json").read_text())
    told = {"base_model_name_or_path": "owner/name", "revision": "v2"}
    (folder / "adapter_config.json").write_text(json.dumps(config | told))
    asked = []

    def found(text, *, weights):
        asked.append((text, weights))
        return tmp_path / "llama-base"

    monkeypatch.setattr("trainwright.model.adapters.imported.base_folder", found)
    import_adapters(folder, tmp_path / "model")
    assert asked == [("hf://owner/name@v2", True)]


def test_another_base_is_refused_and_nothing_is_left(made, make_pair, tmp_path) -> None:
    folder, _ = made()
    ours, _, _ = make_pair("gpt2")
    other = tmp_path / "other"
    other.mkdir()
    hf.write(other, ours.spec, dict(ours.named_parameters()), dtype=torch.float32, extra={})
    with pytest.raises(DataError, match="another base"):
        import_adapters(folder, tmp_path / "model", base=str(other))
    assert not (tmp_path / "model").exists() and not (tmp_path / ".model.partial").exists()


def test_a_folder_that_is_there_stays_as_it_is(made, tmp_path) -> None:
    folder, _ = made()
    (tmp_path / "model").mkdir()
    with pytest.raises(RecipeError, match="there already"):
        import_adapters(folder, tmp_path / "model")
    assert not list((tmp_path / "model").iterdir())


def test_the_command_says_where_it_is_and_refuses_a_second_time(made, tmp_path, capsys) -> None:
    folder, _ = made()
    capsys.readouterr()
    told = ["checkpoint", "adapters", str(folder), str(tmp_path / "model"), "--base", str(tmp_path / "llama-base")]
    assert main([*told, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["size_bytes"] == sum(path.stat().st_size for path in (tmp_path / "model").iterdir())
    assert main(told) == 2
    assert "the folder is there already" in capsys.readouterr().err
