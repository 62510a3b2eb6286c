"""Training that begins with a base: its embedding and blocks, and the head that the task needs."""

from __future__ import annotations

import json
from random import Random

import pytest
import torch
from safetensors.torch import load_file, save_file

from fixtures import tiny_models as tiny
from trainwright.artifact.events import read_events
from trainwright.artifact.shards import TokenDataset
from trainwright.artifact.store import Artifact
from trainwright.core.errors import DataError, RecipeError, TrainingError
from trainwright.core.records import from_json
from trainwright.model import hf
from trainwright.model.build import build_network
from trainwright.model.network import Network
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.stages.train.base import begin_with, body_of, new_head
from trainwright.stages.train.checkpoints import write_bundle
from trainwright.stages.train.stage import settings_of
from trainwright.stages.train.weights.beginning import begin, fill
from trainwright.testing.artifacts import make_artifact, make_dataset

LABELS = ["ant", "bee", "cat"]


def as_classifier(recipe: Recipe, labels: list[str] = LABELS) -> Recipe:
    record = recipe.model_dump(mode="json")
    record["task"] = {"name": "classify", "labels": labels}
    record["data"]["sources"] = [{"kind": "jsonl", "paths": ["x.jsonl"], "label_key": "label"}]
    return Recipe.model_validate(record)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory) -> Artifact:
    """Documents with labels, whose texts and so whose tokenizer serve the base too."""
    random = Random(5)
    texts = [" ".join(random.choices(["alpha", "beta", "gamma", "(x)"], k=random.randint(9, 30))) for _ in range(30)]
    splits = {"train": texts[:24], "validation": texts[24:]}
    labels = {name: [LABELS[i % 3] for i in range(len(part))] for name, part in splits.items()}
    return make_dataset(tmp_path_factory.mktemp("labelled"), splits, labels=labels)


@pytest.fixture
def trained(train, inputs_for, labelled, tmp_path):
    """Trains, on the labelled documents; returns the folder and the model bundle as an artefact."""

    def make(recipe: Recipe, name: str, base: Artifact | None = None) -> Artifact:
        # A language model is trained on the same tokens; labels lie in a file of their own that it does not read.
        inputs = inputs_for(recipe) | {"dataset": labelled} | ({} if base is None else {"base": base})
        out = tmp_path / name
        train(recipe, inputs, out)
        files = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
        return make_artifact(tmp_path / f"{name}-artefact", "train", files)

    return make


def messages(artifact: Artifact) -> list[str]:
    return [event.text for event in read_events(artifact.path / "events.jsonl") if event.kind == "message"]


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_classifier_begins_with_the_embedding_and_blocks_of_its_base(make_recipe, trained, family) -> None:
    recipe = make_recipe(family=family)
    base = trained(recipe, "base")
    still = as_classifier(make_recipe(family=family, optimizer={"lr": 1e-12}, clip_norm=None))
    classifier = trained(still, "classifier", base)
    before, after = (load_file(artifact.path / "model.safetensors") for artifact in (base, classifier))
    kept = before.keys() - {"head.weight"}
    assert after.keys() == kept | {"head.weight"}
    for name in kept:
        torch.testing.assert_close(after[name], before[name], atol=1e-6, rtol=0)
    assert after["head.weight"].shape == (3, 32)
    assert messages(classifier).count("a new head for 3 labels") == 1


def test_the_new_head_is_a_function_of_the_seed_and_the_rest_of_the_base(
    make_recipe, trained, labelled, inputs_for
) -> None:
    base = trained(make_recipe(), "base")
    recipe = as_classifier(make_recipe())
    text = inputs_for(recipe)["plan"].file("plan.json").read_text()
    settings = settings_of(recipe, from_json(Plan, json.loads(text), where="plan"), TokenDataset.open(labelled.path))

    def weights(seed: int) -> dict[str, torch.Tensor]:
        seeded = recipe.model_copy(update={"seed": seed})
        begun = begin(seeded, settings, labelled.path / "tokenizer.json", base=base.path)
        assert begun.new_head == "3 labels"
        return dict(begun.fill(settings.device).named_parameters())

    first, again, other = weights(7), weights(7), weights(8)
    stored = load_file(base.path / "model.safetensors")
    for name in first.keys() - {"head.weight"}:
        assert torch.equal(first[name], stored[name]) and torch.equal(other[name], stored[name])
    assert torch.equal(first["head.weight"], again["head.weight"])
    assert not torch.equal(first["head.weight"], other["head.weight"])


def test_a_base_of_the_same_task_keeps_its_head(make_recipe, trained) -> None:
    first = trained(as_classifier(make_recipe()), "first")
    second = trained(as_classifier(make_recipe(optimizer={"lr": 1e-12}, clip_norm=None)), "second", first)
    before, after = (load_file(artifact.path / "model.safetensors")["head.weight"] for artifact in (first, second))
    torch.testing.assert_close(after, before, atol=1e-6, rtol=0)
    assert not [text for text in messages(second) if "head" in text]


@pytest.mark.parametrize("names", [["ant", "bee", "dog"], ["bee", "ant", "cat"]])
def test_a_base_that_tells_other_labels_gets_a_new_head(make_recipe, trained, labelled, inputs_for, names) -> None:
    first = trained(as_classifier(make_recipe()), "first")
    recipe = as_classifier(make_recipe(), names)
    text = inputs_for(recipe)["plan"].file("plan.json").read_text()
    settings = settings_of(recipe, from_json(Plan, json.loads(text), where="plan"), TokenDataset.open(labelled.path))
    begun = begin(recipe, settings, labelled.path / "tokenizer.json", base=first.path)
    network = begun.fill(settings.device)
    before = load_file(first.path / "model.safetensors")
    assert torch.equal(dict(network.named_parameters())["embedding"], before["embedding"])
    assert not torch.equal(network.head_weight, before["head.weight"])
    assert json.loads(first.file("model.json").read_text())["labels"] == LABELS
    assert begun.new_head == "3 labels; the base has one for other labels (ant, bee, cat)"


def test_a_base_of_another_width_is_refused_under_a_key_of_the_model(make_recipe, trained) -> None:
    base = trained(make_recipe(), "base")
    recipe = as_classifier(make_recipe())
    wide = recipe.model_copy(update={"model": recipe.model.model_copy(update={"width": 64})})
    with pytest.raises(RecipeError) as caught:
        trained(wide, "wide", base)
    assert caught.value.where == "model.width"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_base_with_a_weight_that_is_no_number_is_refused_by_its_name(make_recipe, trained, tmp_path, value) -> None:
    trained(make_recipe(), "base")
    folder = tmp_path / "base"
    weights = load_file(folder / "model.safetensors")
    weights["blocks.1.ffn.down.weight"][3, 5] = value
    save_file(weights, folder / "model.safetensors")
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with pytest.raises(DataError, match=r"a weight of the base is not finite .seen blocks\.1\.ffn\.down\.weight"):
        trained(make_recipe(), "tuned", make_artifact(tmp_path / "spoilt", "train", files))


def test_a_step_whose_loss_is_lost_is_told_to_lower_its_own_rates(make_recipe, trained) -> None:
    wild = make_recipe(optimizer={"lr": 1e30}, duration="30 steps", clip_norm=None, exec_checkpoint_every=1e-9)
    with pytest.raises(TrainingError, match=r"became .*; lower the rates in this step's own keys: train"):
        trained(wild, "tuned", trained(make_recipe(), "base"))


@pytest.mark.parametrize("damaged", ["model.safetensors", "tokenizer.json"])
def test_a_flipped_bit_of_a_checkpoint_is_never_trained_on(make_recipe, inputs_for, train, tmp_path, damaged) -> None:
    recipe = make_recipe(duration="2 steps")
    train(recipe, inputs_for(recipe), tmp_path / "first")
    (checkpoint,) = (tmp_path / "first" / "checkpoints").iterdir()
    begins = recipe.model_copy(update={"model": recipe.model.model_copy(update={"init_from": str(checkpoint)})})
    train(begins, inputs_for(recipe), tmp_path / "whole")
    data = bytearray((checkpoint / damaged).read_bytes())
    data[-5] ^= 1
    (checkpoint / damaged).write_bytes(data)
    named = "damaged tensor norm.weight" if damaged == "model.safetensors" else "damaged file"
    with pytest.raises(DataError, match=f"{checkpoint / damaged}: {named}: its sha256 does not match") as caught:
        train(begins, inputs_for(recipe), tmp_path / "second")
    assert caught.value.exit_code == 4
    assert not (tmp_path / "second" / "summary.json").exists()


def taken(network: Network, base: Network, *, seed: int) -> str | None:
    """Lets a network begin with the body of another one; returns what it has a new head for."""
    fill(network, body_of(network, base, base.stored(), seed=seed))
    return new_head(network, base)


@pytest.mark.parametrize(
    ("head", "pooler"),
    [
        ({}, False),
        ({"pooler": True, "language_head": False}, True),
        ({"classes": 2, "pooler": True, "language_head": False}, True),
    ],
    ids=["language", "bare", "other classes"],
)
def test_an_encoder_begins_with_all_but_the_head_of_its_base_and_with_its_pooler_where_it_has_one(head, pooler):
    """From a masked language model, from one without a head, and from a classifier of other classes."""
    base = tiny.encoder(seed=1, **head)
    network = tiny.encoder(seed=2, classes=3, pooler=True, language_head=False)
    before = dict(network.initial(2))
    assert taken(network, base, seed=2) is not None
    stored = dict(base.named_parameters())
    for name, parameter in network.named_parameters():
        fresh = name.startswith("head.") or (name.startswith("pooler.") and not pooler)
        assert torch.equal(parameter, before[name] if fresh else stored[name]), name
    language = tiny.encoder(seed=3)
    assert taken(language, network, seed=3) == "the vocabulary"


def test_modernberts_classes_begin_with_the_layer_before_the_logits_of_their_base():
    """As transformers loads a classifier from a masked language model: that layer has the same name in both."""
    base = tiny.encoder("modernbert", seed=1)
    network = tiny.encoder("modernbert", seed=2, classes=3, pooler=True, language_head=False)
    before = dict(network.initial(2))
    assert taken(network, base, seed=2) == "3 labels"
    stored = dict(base.named_parameters())
    assert "transform.weight" in stored
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, before[name] if name.startswith("head.") else stored[name]), name


def numbers_recipe(family: str, **train) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "tiny",
            "task": {"name": "regress"},
            "model": {"family": family, "layers": 2, "width": 16, "heads": 2, "context_tokens": 16},
            "data": {"sources": [{"kind": "jsonl", "paths": ["x"], "label_key": "y", "label_kind": "number"}]},
            "train": {"sequence_tokens": 12, "batch_tokens": 48} | train,
        }
    )


@pytest.fixture
def scales(tmp_path) -> tuple[TokenDataset, TokenDataset]:
    """Two datasets of the same texts, whose numbers lie elsewhere and spread wider."""
    texts = [f"alpha {'beta ' * number}" for number in range(1, 9)]
    return tuple(
        TokenDataset.open(make_dataset(tmp_path / f"{mean}", {"train": texts}, numbers={"train": numbers}).path)
        for mean, spread in ((1000.0, 30.0), (20.0, 5.0))
        for numbers in ([mean + spread * (place - 3.5) for place in range(8)],)
    )


def begun(
    recipe: Recipe, scales: tuple[TokenDataset, TokenDataset], folder, *, exported: dict[str, object] | None = None
) -> tuple[Network, Network]:
    """A network that learnt the first numbers, and one for the second that begins with it; as it was exported."""
    first, second = scales
    base = tiny.distinct(build_network(recipe.model_spec(vocabulary=first.vocabulary), dtype=torch.float32), 1)
    folder.mkdir()
    if exported is None:
        write_bundle(folder, base, dict(base.stored()), first.tokenizer_path)
    else:
        hf.write(folder, base.spec, dict(base.stored()), dtype=torch.float32, extra=exported)
        (folder / "tokenizer.json").write_bytes(first.tokenizer_path.read_bytes())
    network = build_network(base.spec, dtype=torch.float32)
    values, other = begin_with(network, recipe, second.tokenizer_path, folder)
    assert other is None
    fill(network, values)
    return base, network


@pytest.mark.parametrize(
    ("told", "mean", "std"),
    [({"target_mean": 7.0, "target_std": 3.0}, 7.0, 3.0), ({}, 0.0, 1.0)],
    ids=["ours", "anybody's"],
)
def test_a_base_in_hugging_face_form_tells_numbers_as_its_configuration_says(scales, tmp_path, told, mean, std) -> None:
    exported = {"problem_type": "regression", "id2label": {0: "LABEL_0"}, "label2id": {"LABEL_0": 0}} | told
    base, network = begun(numbers_recipe("bert"), scales, tmp_path / "base", exported=exported)
    hidden, now = torch.randn(6, 16, generator=torch.Generator().manual_seed(2)), scales[1].scale
    torch.testing.assert_close(
        network.logits(hidden) * now.std + now.mean, base.logits(hidden) * std + mean, rtol=1e-5, atol=1e-5
    )


def test_a_head_tells_the_same_numbers_in_the_scale_of_another_dataset(scales, tmp_path) -> None:
    base, network = begun(numbers_recipe("bert"), scales, tmp_path / "base")
    hidden = torch.randn(6, 16, generator=torch.Generator().manual_seed(2))
    told = [
        each.logits(hidden) * dataset.scale.std + dataset.scale.mean
        for each, dataset in zip((base, network), scales, strict=True)
    ]
    torch.testing.assert_close(told[1], told[0], rtol=1e-5, atol=0)
    assert not torch.equal(base.head_weight, network.head_weight)


def test_adapters_cannot_move_a_head_to_another_scale(scales, tmp_path) -> None:
    recipe = numbers_recipe("bert", method={"name": "lora"})
    with pytest.raises(RecipeError, match="another scale, and adapters leave its head .*seen mean 1000 and deviation"):
        begun(recipe, scales, tmp_path / "base")
