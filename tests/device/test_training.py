"""What a first session on an accelerator must show; on the processor too, so that the tests are known to work.

Same bits twice and after an interruption, one rank over the device's collectives, torch.compile and fused attention
beside what they replace, memory and phases as planned and measured.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from trainwright.artifact.events import Events
from trainwright.artifact.reading import read_plan
from trainwright.artifact.stage import Context
from trainwright.core.records import to_json
from trainwright.model.build import build_network
from trainwright.model.tasks.next_token import NextToken
from trainwright.runtime.device import choose, synchronise
from trainwright.runtime.mesh import joined
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.updates.optimizer import AdamWSection
from trainwright.spec.workload import DatasetFacts, KernelChoice, ParallelPlan
from trainwright.stages.doctor.stage import examine
from trainwright.stages.plan.build import build_plan
from trainwright.stages.train import run
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.ranks.world import world_of
from trainwright.stages.train.step import TrainingStep
from trainwright.stages.train.world import ALONE, World
from trainwright.testing.artifacts import make_artifact, make_dataset, make_plan

END_OF_TEXT = 1
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
TEXTS = [f"the {n}th document says that {n} times {n} is {n * n}" for n in range(400)]
on_each_device = pytest.mark.parametrize("kind", DEVICES)


def recipe_of(**train: object) -> Recipe:
    section = {"sequence_tokens": 64, "batch_tokens": 512, "duration": "6 steps", **train}
    model = {"family": "gpt2", "layers": 2, "width": 64, "heads": 2, "context_tokens": 64}
    data = {"sources": [{"kind": "python-stdlib"}]}
    return Recipe.model_validate({"name": "tiny", "model": model, "data": data, "train": section})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory):
    return make_dataset(tmp_path_factory.mktemp("data"), {"train": TEXTS})


def train_on(kind: str, recipe: Recipe, dataset, root: Path, *, stop_at: int | None = None) -> dict[str, torch.Tensor]:
    """Trains, deterministically, and returns the weights; ``stop_at`` ends the process's work after that step."""
    planned = make_plan(root / f"plan-{stop_at}", recipe, vocabulary=300, steps=6, micro_batch=4)
    plan = read_plan(planned.file("plan.json"))
    device = replace(plan.cluster.node.device, kind=kind)
    plan = replace(plan, cluster=replace(plan.cluster, node=replace(plan.cluster.node, device=device)))
    made = make_artifact(root / f"planned-{stop_at}", "plan", {"plan.json": json.dumps(to_json(plan)).encode()})

    def listen(event) -> None:
        if event.kind == "progress" and event.name == "train" and event.value == stop_at:
            raise SystemExit(137)

    out = root / "out"
    out.mkdir(exist_ok=True)
    with Events(None, run="tiny", listeners=(listen,)) as events:
        run(Context(recipe=recipe, inputs={"dataset": dataset, "plan": made}, out=out, root=root, events=events))
    return load_file(out / "model.safetensors")


@on_each_device
def test_two_runs_have_the_same_bits(kind: str, dataset, tmp_path: Path) -> None:
    recipe = recipe_of(exec={"deterministic": True, "device": kind})
    one, other = (train_on(kind, recipe, dataset, tmp_path / name) for name in ("one", "other"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@on_each_device
def test_an_interrupted_run_ends_with_the_same_bits(kind: str, dataset, tmp_path: Path) -> None:
    recipe = recipe_of(exec={"deterministic": True, "device": kind, "checkpoint_every": 1e-9})
    whole = train_on(kind, recipe, dataset, tmp_path / "whole")
    with pytest.raises(SystemExit):
        train_on(kind, recipe, dataset, tmp_path / "cut", stop_at=3)
    resumed = train_on(kind, recipe, dataset, tmp_path / "cut")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def batch_of(number: int, *, sequences: int = 7) -> dict[str, torch.Tensor]:
    """Sequences of several documents, one of them without a target."""
    tokens = torch.randint(2, 300, (sequences, 65), generator=torch.Generator().manual_seed(number))
    tokens[::2, 9] = END_OF_TEXT
    tokens[1, 1:] = -100
    return {"tokens": tokens}


def step_in(world: World, device: torch.device, *, compiled: bool = False, attention: str = "auto") -> TrainingStep:
    """A step of a small network that is shared as the world says."""
    spec = recipe_of().model_spec(vocabulary=300)
    network = build_network(spec, dtype=torch.float32, kernels=KernelChoice(attention=attention))
    network.initialise(3)
    network = network.to(device)
    world.share(network, compiled=compiled)
    clock = PhaseClock(device)
    clock.start()
    task, optimizers = NextToken(sequence_tokens=64, end_of_text=END_OF_TEXT), Optimizers(network, AdamWSection())
    return world.step(task, network, optimizers, clock, micro_batch=3, clip_norm=1.0, compiled=compiled)


def gradients(world: World, device: torch.device) -> dict[str, torch.Tensor]:
    """Returns the whole gradient of one batch."""
    step = step_in(world, device)
    step.gradient(step.on_device(batch_of(0)))
    step.clip()
    named = ((name, parameter.grad) for name, parameter in step.network.named_parameters())
    return {name: tensor.cpu().clone() for name, tensor in world.whole((n, g) for n, g in named if g is not None)}


@on_each_device
@pytest.mark.parametrize("layout", [{"dp_shard": 1}, {"dp_replicate": 1}], ids=str)
def test_one_rank_over_the_device_s_collectives_has_the_gradient_of_none(
    kind: str, layout: dict[str, int], tmp_path: Path
) -> None:
    device, store = choose(kind).torch_device, dist.FileStore(str(tmp_path / "store"), 1)
    with joined(ParallelPlan(**layout), device, (store, 0, 1)) as mesh:
        ours = gradients(world_of(mesh, batch_sequences=7), device)
    alone = gradients(ALONE, device)
    assert ours.keys() == alone.keys()
    for name, gradient in alone.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-5, atol=1e-7, msg=name)


def losses(kind: str, **options: Any) -> list[float]:
    """Returns the loss of each of a few updates of a small network; every phase of them took time."""
    step = step_in(ALONE, choose(kind).torch_device, **options)
    found = [float(step(batch_of(number), 1.0).loss_sum) for number in range(3)]
    times = step.clock.stop()
    assert min(times.forward, times.backward, times.update) > 0
    return found


@on_each_device
def test_compiled_passes_lose_as_much(kind: str) -> None:
    if kind == "cpu":
        pytest.skip("the processor's compiled step is held in tests/unit/stages/train/test_step.py")
    assert losses(kind, compiled=True) == pytest.approx(losses(kind), rel=1e-3)


@on_each_device
def test_fused_attention_loses_as_much_as_whole_scores(kind: str) -> None:
    fused, whole = (losses(kind, attention=name) for name in ("sdpa", "math"))
    assert fused == pytest.approx(whole, rel=1e-4)


@pytest.mark.cuda
def test_memory_is_what_the_plan_says_to_five_percent(tmp_path: Path) -> None:
    model = {"family": "gpt2", "layers": 12, "width": 768, "heads": 12, "context_tokens": 1024}
    train = {"sequence_tokens": 1024, "batch_tokens": 16384, "duration": "4 steps", "exec": {"micro_batch": 8}}
    train["exec"] |= {"compile": False, "layout": {}, "tensorboard": False}
    data = {"sources": [{"kind": "python-stdlib"}]}
    recipe = Recipe.model_validate({"name": "gpt2", "model": model, "data": data, "train": train})
    dataset = make_dataset(tmp_path / "data", {"train": TEXTS * 20}, vocabulary=400)
    facts = json.loads(dataset.file("dataset.json").read_text())
    counted = DatasetFacts(vocabulary=facts["vocabulary"], train_tokens=10**6, counted=True)
    with Events(None, run="gpt2") as events:
        plan = build_plan(recipe, examine(tmp_path, events, fallback=tmp_path), counted)
        made = make_artifact(tmp_path / "plan", "plan", {"plan.json": json.dumps(to_json(plan)).encode()})
        (out := tmp_path / "out").mkdir()
        run(Context(recipe=recipe, inputs={"dataset": dataset, "plan": made}, out=out, root=tmp_path, events=events))
    memory = json.loads((out / "summary.json").read_text())["memory"]
    measured = sum(memory.values()) - memory["reserved_unused"]
    predicted = plan.estimate.memory.total_bytes - plan.estimate.memory.reserved_unused
    assert predicted == pytest.approx(measured, rel=0.05)


@pytest.mark.cuda
def test_events_time_what_the_device_did_and_not_what_the_host_asked() -> None:
    device = torch.device("cuda")
    clock, x = PhaseClock(device), torch.randn(8192, 8192, device=device)
    synchronise(device)
    clock.start()
    with clock.phase("forward"):
        for _ in range(50):
            x = x @ x / 8192
    with clock.phase("update"):
        x.add_(1)
    times = clock.stop()
    assert times.forward > 10 * times.update > 0
