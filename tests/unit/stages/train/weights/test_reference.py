"""What the first weights say is asked once, kept, read again, and the same for full tuning, adapters and ranks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fixtures.pairs import SEQUENCE, VOCABULARY, made_recipe, pairs_artifact, sizes_of
from trainwright.artifact.reading import PLAN, read_plan
from trainwright.artifact.shards import TokenDataset
from trainwright.model import hf
from trainwright.model.adapters.attach import switched_off
from trainwright.model.build import build_network
from trainwright.model.bundle import load_bundle
from trainwright.model.tasks.preferences.preference import preference
from trainwright.model.tasks.preferences.references import read_references
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train.stage import settings_of
from trainwright.stages.train.weights.beginning import begin
from trainwright.testing.artifacts import make_plan

LORA = {"name": "lora", "rank": 2, "alpha": 8}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return pairs_artifact(tmp_path_factory.mktemp("pairs"), sizes_of(20))


def recipe_of(*, base=None, **train):
    section = {
        "sequence_tokens": SEQUENCE,
        "batch_tokens": 4 * SEQUENCE,
        "duration": "4 steps",
        "precision": "fp32",
        "optimizer": {"name": "adamw", "lr": 0.02},
        "exec": {"compile": False, "tensorboard": False, "checkpoint_every": 1e-9, "log_every_steps": 1, "threads": 1},
    } | train
    model = {"layers": 2, "width": 16, "heads": 2, "context_tokens": 48}
    return made_recipe(train=section, model=model | ({} if base is None else {"init_from": str(base)}))


@pytest.fixture
def inputs_of(pairs, tmp_path_factory):
    def make(recipe, **plan):
        shelf = tmp_path_factory.mktemp("plan")
        return {"dataset": pairs, "plan": make_plan(shelf, recipe, vocabulary=VOCABULARY, micro_batch=3, **plan)}

    return make


@pytest.fixture
def base(pairs, tmp_path):
    folder = tmp_path / "base"
    network = build_network(recipe_of().model_spec(vocabulary=VOCABULARY))
    network.initialise(9)
    folder.mkdir()
    hf.write(folder, network.spec, dict(network.stored()), dtype=torch.float32, extra={})
    (folder / "tokenizer.json").write_bytes((pairs.path / "tokenizer.json").read_bytes())
    return folder


def kept(out, pairs):
    found = read_references(out, TokenDataset.open(pairs.path))
    assert set(found) == {"train", "validation", "test"}
    return {name: np.array(values) for name, values in found.items()}


def asked(network, pairs):
    """What a network says now of the training split."""
    split = TokenDataset.open(pairs.path).splits["train"]
    task, found = preference(made_recipe(), TokenDataset.open(pairs.path)), np.zeros(split.tokens, np.float32)
    for places, values, _, _ in task.reference_parts(network, split, batch_sequences=5, rows=lambda _: None):
        found[places] = values
    return found


def test_full_tuning_and_adapters_have_the_same_reference(pairs, base, inputs_of, train, tmp_path):
    """Precomputed for both; and what the base says beneath adapters that were trained is the same again."""
    plain, adapted = recipe_of(base=base), recipe_of(base=base, method=LORA)
    for recipe, name in ((plain, "full"), (adapted, "lora")):
        train(recipe, inputs_of(recipe), tmp_path / name)
    full, lora = kept(tmp_path / "full", pairs), kept(tmp_path / "lora", pairs)
    for name, values in full.items():
        assert np.array_equal(values, lora[name])
        assert np.count_nonzero(values) > 50
    assert np.allclose(full["train"], asked(load_bundle(base)[0], pairs), atol=1e-5)
    assert not np.allclose(full["train"], asked(load_bundle(tmp_path / "lora")[0], pairs), atol=1e-2)
    settings = settings_of(adapted, *plan_and_dataset(adapted, inputs_of, pairs))
    network = begin(adapted, settings, pairs.path / "tokenizer.json", base=base).network
    with torch.no_grad():
        for parameter in network.trained().values():
            parameter.add_(0.3)
    with switched_off(network):
        assert np.allclose(full["train"], asked(network, pairs), atol=1e-5)
    assert not np.allclose(full["train"], asked(network, pairs), atol=1e-2)


def plan_and_dataset(recipe, inputs_of, pairs):
    return read_plan(inputs_of(recipe)["plan"].file(PLAN)), TokenDataset.open(pairs.path)


class Dies:
    """As from a signal that nobody handles, at the nth progress of this name."""

    def __init__(self, name, at):
        self.name, self.left = name, at

    def __call__(self, event):
        if event.kind == "progress" and event.name == self.name:
            self.left -= 1
            if not self.left:
                raise SystemExit(137)


def test_a_kill_at_any_moment_ends_in_the_same_bits(pairs, inputs_of, train, tmp_path):
    recipe = recipe_of()
    inputs = inputs_of(recipe)
    train(recipe, inputs, tmp_path / "whole")
    for name, at in (("reference of train", 2), ("reference of test", 1), ("train", 2), ("train", 1)):
        with pytest.raises(SystemExit):
            train(recipe, inputs, tmp_path / "parts", (Dies(name, at),))
    before = (tmp_path / "parts" / "train.references").stat().st_mtime_ns
    train(recipe, inputs, tmp_path / "parts")
    assert (tmp_path / "parts" / "train.references").stat().st_mtime_ns == before, "what is whole is read"
    for name in ("model.safetensors", "references.json", "train.references", "test.references"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes(), name


def test_what_is_damaged_is_asked_again_of_the_first_weights(pairs, inputs_of, train, tmp_path):
    recipe = recipe_of()
    inputs = inputs_of(recipe)
    with pytest.raises(SystemExit):
        train(recipe, inputs, tmp_path / "out", (Dies("train", 3),))
    path = tmp_path / "out" / "train.references"
    right = path.read_bytes()
    path.write_bytes(bytes(len(right)))
    train(recipe, inputs, tmp_path / "out")
    assert path.read_bytes() == right


def test_ranks_ask_each_for_a_part(pairs, inputs_of, train, tmp_path):
    """Of one process or two the same, to the rounding of sums in another order."""
    alone, shared = recipe_of(duration="1 steps"), recipe_of(duration="1 steps")
    train(alone, inputs_of(alone), tmp_path / "alone")
    parallel = ParallelPlan(dp_shard=2, micro_batch_sequences=3)
    train(shared, inputs_of(shared, parallel=parallel), tmp_path / "shared")
    one, two = kept(tmp_path / "alone", pairs), kept(tmp_path / "shared", pairs)
    for name, values in one.items():
        assert np.array_equal(values != 0, two[name] != 0)
        assert np.allclose(values, two[name], atol=1e-5)
