"""Training with adapters: what changes, what is stored, that it resumes to the same bits."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from trainwright.artifact.events import read_events
from trainwright.artifact.model_folder import read_shape
from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError, RecipeError
from trainwright.core.records import from_json
from trainwright.model import hf
from trainwright.model.adapters.attach import adapted_layers, fill
from trainwright.model.build import build_network
from trainwright.model.bundle import load_bundle
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.stages.train.base import begin_with
from trainwright.stages.train.stage import settings_of
from trainwright.stages.train.weights.beginning import begin
from trainwright.stages.train.weights.beginning import fill as fill_network
from trainwright.stages.train.weights.method import apply
from trainwright.testing.artifacts import make_dataset

VOCABULARY = 299  # of the fixture's tokenizer


@pytest.fixture
def make_base(make_recipe, dataset, tmp_path):
    """Returns a recipe that begins with a Hugging Face directory of random weights, and that directory."""

    def make(family="llama", *, model=None, **train):
        folder = tmp_path / f"{family}-base"
        record = make_recipe(**train).model_dump(mode="json", exclude_unset=True)
        record["model"] |= {"family": family} | (model or {})
        recipe = Recipe.model_validate(record)
        network = build_network(recipe.model_spec(vocabulary=VOCABULARY))
        network.initialise(3)
        folder.mkdir()
        hf.write(folder, network.spec, dict(network.stored()), dtype=torch.float32, extra={})
        (folder / "tokenizer.json").write_bytes((dataset.path / "tokenizer.json").read_bytes())
        record = recipe.model_dump(mode="json")
        record["model"]["init_from"] = str(folder)
        return Recipe.model_validate(record), folder

    return make


def test_a_frozen_router_keeps_its_biases_and_they_are_not_stored(make_base, inputs_for, train, tmp_path) -> None:
    experts = {"count": 4, "active": 2, "ffn_width": 16, "bias_rate": 0.5}
    keys = {"duration": "2 steps", "method": {"name": "lora", "rank": 2}}
    recipe, base = make_base("glm4_moe", model={"experts": experts}, **keys)
    train(recipe, inputs_for(recipe), tmp_path / "out")
    assert all(".adapters.default." in name for name in load_file(tmp_path / "out" / "model.safetensors"))
    before, after = (dict(load_bundle(path)[0].stored()) for path in (base, tmp_path / "out"))
    biases = [name for name in before if name.endswith("correction")]
    assert biases
    assert all(torch.equal(before[name], after[name]) for name in biases)


class KillAt:
    def __init__(self, step):
        self.step = step

    def __call__(self, event):
        if event.kind == "progress" and event.value == self.step:
            raise SystemExit(137)


SHORT = {"duration": "6 steps", "exec_checkpoint_every": 1e-9}


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize(
    "method",
    [
        {"name": "lora", "rank": 4},
        {"name": "lora", "rank": 4, "scaling": "alpha/sqrt(rank)", "targets": ["query", "value"]},
        {"name": "dora", "rank": 2, "targets": ["blocks.1.*"]},
    ],
)
def test_adapters_are_trained_stored_and_merged(make_base, inputs_for, train, tmp_path, family, method) -> None:
    recipe, base = make_base(family, method=method, optimizer={"lr": 3e-3}, **SHORT)
    train(recipe, inputs_for(recipe), tmp_path / "out")
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert stored
    assert all(".adapters.default." in name for name in stored)
    said = json.loads((tmp_path / "out" / "adapters.json").read_text())
    assert said["base"]["path"] == str(base)
    network, _ = load_bundle(tmp_path / "out")
    before, _ = load_bundle(base)
    weights, former = dict(network.named_parameters()), dict(before.named_parameters())
    changed = {name for name in weights if not torch.equal(weights[name], former[name])}
    assert changed == {f"{path}.weight" for path in said["modules"]}
    for path, how in said["modules"].items():
        a, b = (stored[f"{path}.adapters.default.{name}"] for name in "ab")
        whole = former[f"{path}.weight"] + how["scale"] * b @ a
        if method["name"] == "dora":
            lengths = stored[f"{path}.adapters.default.magnitude"]
            whole = (lengths / torch.linalg.vector_norm(whole, dim=1)).unsqueeze(1) * whole
        assert torch.allclose(weights[f"{path}.weight"], whole, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_interrupted_training_ends_in_the_same_bits(make_base, inputs_for, train, tmp_path, optimizer) -> None:
    average = {"decay": 0.9, "use": True}
    recipe, _ = make_base(method={"name": "lora", "rank": 2}, optimizer={"name": optimizer}, ema=average, **SHORT)
    inputs = inputs_for(recipe)
    train(recipe, inputs, tmp_path / "whole")
    with pytest.raises(SystemExit):
        train(recipe, inputs, tmp_path / "parts", (KillAt(4),))
    newest = max((tmp_path / "parts" / "checkpoints").glob("step-*"))
    assert (
        sum(path.stat().st_size for path in newest.iterdir())
        < (tmp_path / "llama-base/model.safetensors").stat().st_size
    )
    half, _ = load_bundle(newest)  # a checkpoint is a model too: its base is found and merged
    assert half.spec.family == "llama"
    train(recipe, inputs, tmp_path / "parts")
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def storage_bytes(tensors):
    return {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors}


def test_a_base_in_nf4_is_trained_beside_resumed_and_merged(make_base, inputs_for, train, tmp_path) -> None:
    pytest.importorskip("bitsandbytes")
    method = {"name": "lora", "rank": 4, "targets": ["query", "down"], "frozen": "nf4"}
    recipe, base = make_base(method=method, optimizer={"lr": 3e-3}, **SHORT)
    inputs = inputs_for(recipe)
    train(recipe, inputs, tmp_path / "whole")
    with pytest.raises(SystemExit):
        train(recipe, inputs, tmp_path / "parts", (KillAt(4),))
    train(recipe, inputs, tmp_path / "parts")
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one), "the base is packed again, to the same bits"
    assert json.loads((tmp_path / "whole" / "adapters.json").read_text())["frozen"] == "nf4"
    planned = from_json(Plan, json.loads(inputs["plan"].file("plan.json").read_text()), where="plan")
    settings = settings_of(recipe, planned, TokenDataset.open(inputs["dataset"].path))
    beside = begin(recipe, settings, inputs["dataset"].path / "tokenizer.json", base=base).network
    fill(beside, one)
    merged, _ = load_bundle(tmp_path / "whole")
    tokens = torch.arange(32).reshape(2, 16)
    with torch.no_grad():
        expected, plain = beside.eval().logits(beside(tokens)), load_bundle(base)[0]
        assert torch.allclose(merged.logits(merged(tokens)), expected, atol=1e-5)
        assert not torch.allclose(plain.logits(plain(tokens)), expected, atol=1e-2)
    memory = {e.name: e.value for e in read_events(tmp_path / "whole" / "events.jsonl") if e.kind == "memory"}
    assert memory["weights"] == sum(storage_bytes(beside.held()).values())


def test_memory_and_optimizer_are_of_what_is_trained(make_base, inputs_for, train, tmp_path) -> None:
    recipe, _ = make_base(method={"name": "lora", "rank": 2, "targets": ["query"]}, **SHORT)
    train(recipe, inputs_for(recipe), tmp_path / "out")
    memory = {e.name: e.value for e in read_events(tmp_path / "out" / "events.jsonl") if e.kind == "memory"}
    trained = 2 * 2 * (32 + 32)
    assert memory["gradients"] == 4 * trained
    assert memory["optimizer"] == pytest.approx(8 * trained, rel=0.05)


def test_an_adapted_result_is_a_base_again(make_base, inputs_for, train, tmp_path) -> None:
    recipe, _ = make_base(method={"name": "lora", "rank": 2}, **SHORT)
    train(recipe, inputs_for(recipe), tmp_path / "first")
    record = recipe.model_dump(mode="json")
    record["model"]["init_from"] = str(tmp_path / "first")
    again = Recipe.model_validate(record)
    train(again, inputs_for(again), tmp_path / "second")
    first, second = (dict(load_bundle(tmp_path / name)[0].named_parameters()) for name in ("first", "second"))
    assert torch.equal(first["embedding"], second["embedding"])
    name = "blocks.0.attention.query.weight"
    assert not torch.equal(first[name], second[name])


def test_a_base_that_changed_or_went_is_refused(make_base, inputs_for, train, tmp_path) -> None:
    recipe, base = make_base(method={"name": "lora", "rank": 2}, **SHORT)
    train(recipe, inputs_for(recipe), tmp_path / "out")
    other = build_network(recipe.model_spec(vocabulary=VOCABULARY))
    other.initialise(4)
    hf.write(base, other.spec, dict(other.named_parameters()), dtype=torch.float32, extra={})
    with pytest.raises(DataError, match="belong to another base"):
        load_bundle(tmp_path / "out")
    base.rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="base of these adapters is not there"):
        load_bundle(tmp_path / "out")


def test_adapters_need_a_base(make_recipe, inputs_for, train, tmp_path) -> None:
    recipe = make_recipe(method={"name": "lora"})
    with pytest.raises(RecipeError, match="there is none"):
        train(recipe, inputs_for(recipe), tmp_path / "out")


def test_frozen_weights_are_kept_in_the_dtype_of_products(make_base, dataset) -> None:
    recipe, base = make_base(method={"name": "lora", "rank": 2})
    network = build_network(recipe.model_spec(vocabulary=VOCABULARY), dtype=torch.bfloat16)
    fill_network(network, begin_with(network, recipe, dataset.path / "tokenizer.json", base)[0])
    tokens = torch.arange(32).reshape(2, 16)
    with torch.no_grad():
        before = network(tokens)
        apply(network, recipe, base)
        assert torch.equal(network(tokens), before), "new adapters add nothing, and rounding earlier changes no bit"
    kept = {(each.ndim > 1, each.dtype) for each in network.parameters() if not each.requires_grad}
    trained = {parameter.dtype for parameter in network.parameters() if parameter.requires_grad}
    assert (kept, trained) == ({(True, torch.bfloat16), (False, torch.float32)}, {torch.float32})
    assert len(dict(adapted_layers(network))) == 2 * 7


def test_the_loss_beside_a_frozen_bias_of_the_head_is_that_of_the_base(make_base, dataset) -> None:
    recipe, base = make_base("phi", method={"name": "lora", "rank": 2})
    network = build_network(recipe.model_spec(vocabulary=VOCABULARY), dtype=torch.bfloat16)
    fill_network(network, begin_with(network, recipe, dataset.path / "tokenizer.json", base)[0])
    with torch.no_grad():
        network.logit_bias.normal_(generator=torch.Generator().manual_seed(2))
        hidden = network(torch.arange(32).reshape(2, 16)).flatten(0, 1)
        before = network.head_loss(hidden, torch.arange(32))[0]
        apply(network, recipe, base)
        assert torch.equal(network.head_loss(hidden, torch.arange(32))[0], before)


def test_a_group_of_frozen_weights_is_refused(make_base, inputs_for, train, tmp_path) -> None:
    groups = [{"match": "*.query.weight", "lr": "x0.1"}]
    recipe, _ = make_base(method={"name": "lora", "rank": 2}, optimizer={"lr": 1e-3, "groups": groups}, **SHORT)
    with pytest.raises(RecipeError, match=r"groups\.0\.match.*no parameter of this group is trained.*adapters"):
        train(recipe, inputs_for(recipe), tmp_path / "out")


LABELS = ["ant", "bee", "cat"]


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    random = Random(5)
    texts = [" ".join(random.choices(["alpha", "beta", "gamma", "(x)"], k=random.randint(9, 30))) for _ in range(30)]
    splits = {"train": texts[:24], "validation": texts[24:]}
    labels = {name: [LABELS[i % 3] for i in range(len(part))] for name, part in splits.items()}
    return make_dataset(tmp_path_factory.mktemp("labelled"), splits, labels=labels)


@pytest.fixture
def classifier_on(make_recipe, labelled, tmp_path):
    """Returns a recipe that classifies with adapters on a base with this head, and the base's folder."""

    def make(family, head):
        record = make_recipe(method={"name": "lora", "rank": 2}, optimizer={"lr": 1e-2}).model_dump(
            mode="json", exclude_unset=True
        )
        record["task"] = {"name": "classify", "labels": LABELS}
        record["data"]["sources"] = [{"kind": "jsonl", "paths": ["x.jsonl"], "label_key": "label"}]
        record["model"] |= {"family": family, "init_from": str(tmp_path / "base")}
        recipe = Recipe.model_validate(record)
        size = Tokenizer.from_file(str(labelled.path / "tokenizer.json")).get_vocab_size()
        network = build_network(replace(recipe.model.spec(vocabulary=size), **head))
        network.initialise(3)
        (tmp_path / "base").mkdir()
        hf.write(tmp_path / "base", network.spec, dict(network.stored()), dtype=torch.float32, extra={})
        (tmp_path / "base" / "tokenizer.json").write_bytes((labelled.path / "tokenizer.json").read_bytes())
        return recipe, tmp_path / "base"

    return make


@pytest.mark.parametrize(
    ("family", "head", "fresh"),
    [
        ("bert", {}, {"pooler.weight", "pooler.bias", "head.weight", "head.bias"}),
        ("bert", {"language_head": False, "pooler": True}, {"head.weight", "head.bias"}),
        ("bert", {"language_head": False, "pooler": True, "classes": 2}, {"head.weight", "head.bias"}),
        ("roberta", {}, {"pooler.weight", "pooler.bias", "head.weight", "head.bias"}),
        ("phi", {}, {"head.weight"}),
    ],
)
def test_all_that_the_base_lacks_is_trained_stored_and_read(
    classifier_on, labelled, inputs_for, train, tmp_path, family, head, fresh
) -> None:
    recipe, base = classifier_on(family, head)
    out, inputs = tmp_path / "out", inputs_for(recipe) | {"dataset": labelled}
    train(recipe, inputs, out)
    stored = load_file(out / "model.safetensors")
    assert {name for name in stored if ".adapters." not in name} == fresh
    settings = settings_of(
        recipe,
        from_json(Plan, json.loads(inputs["plan"].file("plan.json").read_text()), where="plan"),
        TokenDataset.open(labelled.path),
    )
    beside = begin(recipe, settings, labelled.path / "tokenizer.json", base=base).network
    assert set(beside.trained()) == set(stored)
    before = {name: beside.trained()[name].detach().clone() for name in fresh}
    fill(beside, stored)
    assert all(not torch.equal(stored[name], before[name]) for name in fresh), "all of them have a gradient"
    whole, _ = load_bundle(out)
    tokens = torch.arange(32).reshape(2, 16)
    with torch.no_grad():
        expected = beside.eval().logits(beside(tokens))
        assert torch.allclose(whole.logits(whole(tokens)), expected, atol=1e-5)


def test_a_masked_model_on_a_bare_encoder_trains_its_transform(classifier_on) -> None:
    recipe, base = classifier_on("bert", {"language_head": False, "pooler": True})
    network = build_network(replace(read_shape(base), language_head=None, pooler=False))
    apply(network, recipe, base)
    whole = {name for name in network.trained() if ".adapters." not in name}
    assert whole == {"head_bias"} | {
        f"{part}.{kind}" for part in ("transform", "transform_norm") for kind in ("weight", "bias")
    }
