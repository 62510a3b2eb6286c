"""Trainings in fp16 against fp32, after overflows that a huge factor forces, and after kills."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from fixtures.told_training import train
from trainwright.artifact.events import read_events
from trainwright.core.errors import TrainingError
from trainwright.stages.train.optimizer import Optimizers

HUGE = 2.0**40


def summary(out) -> dict:
    return json.loads((out / "summary.json").read_text())


def metrics(out, name: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in read_events(out / "events.jsonl") if event.name == name]


@pytest.fixture
def half(make_recipe, inputs_for):
    """A recipe in fp16 and its inputs."""

    def made(**keys):
        scale = {name.removeprefix("scale_"): keys.pop(name) for name in list(keys) if name.startswith("scale_")}
        recipe = make_recipe(**{"precision": "fp16", "loss_scale": scale, "exec_log_every_steps": 1} | keys)
        return recipe, inputs_for(recipe, precision="fp16")

    return made


def test_fp16_learns_what_fp32_learns(make_recipe, inputs_for, half, tmp_path) -> None:
    recipe = make_recipe()
    train(recipe, inputs_for(recipe), tmp_path / "whole")
    train(*half(), tmp_path / "half")
    one, other = summary(tmp_path / "whole"), summary(tmp_path / "half")
    assert other["precision"] == "fp16"
    assert other["overflows"] == 0
    assert other["train_loss"] == pytest.approx(one["train_loss"], rel=1e-3)
    weights, truth = (load_file(tmp_path / name / "model.safetensors") for name in ("half", "whole"))
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    for name, tensor in truth.items():
        assert float((weights[name] - tensor).norm() / tensor.norm()) < 1e-2, name
    assert metrics(tmp_path / "half", "train/loss_scale")[-1][1] == 65536


def test_logs_are_of_unscaled_losses_and_gradients(half, tmp_path) -> None:
    for initial in (1024, 65536):
        train(*half(scale_initial=initial, clip_norm=1e-3), tmp_path / str(initial))
    for name in ("train/loss", "train/grad_norm"):
        small, large = (metrics(tmp_path / str(initial), name) for initial in (1024, 65536))
        assert [value for _, value in small] == pytest.approx([value for _, value in large], rel=1e-3), name
    assert metrics(tmp_path / "1024", "train/grad_norm")[0][1] < 100


def test_an_overflow_leaves_the_update_out_and_halves_the_factor(half, tmp_path, monkeypatch) -> None:
    shares = []
    step = Optimizers.step
    monkeypatch.setattr(Optimizers, "step", lambda self, share: (shares.append(share), step(self, share))[1])
    said = train(*half(scale_initial=HUGE, duration="40 steps"), tmp_path / "out")
    left_out = summary(tmp_path / "out")["overflows"]
    assert 10 < left_out < 30
    assert len(shares) == 40 - left_out
    factors = dict(metrics(tmp_path / "out", "train/loss_scale"))
    assert factors[40] == HUGE / 2**left_out
    assert [value for _, value in metrics(tmp_path / "out", "train/overflows")] == list(range(1, left_out + 1))
    assert sum("left the range of fp16" in text for text in said) == left_out
    # The schedule counts steps of the run, the optimizer updates that were made.
    newest = max((tmp_path / "out" / "checkpoints").glob("step-*"))
    states = load_file(newest / "optimizer.safetensors")
    assert {float(value) for name, value in states.items() if name.endswith(".step")} == {40 - left_out}
    rates = dict(metrics(tmp_path / "out", "train/lr"))
    train(*half(duration="40 steps"), tmp_path / "quiet")
    quiet = dict(metrics(tmp_path / "quiet", "train/lr"))
    assert rates == {number: quiet[number] for number in rates}


def test_resume_is_exact_with_the_factor_and_its_counter(half, tmp_path) -> None:
    keys = {"scale_initial": HUGE, "scale_growth_steps": 3, "duration": "36 steps", "exec_checkpoint_every": 1e-9}

    def killing(event) -> None:
        if event.kind == "progress" and event.name == "train" and event.value in kills:
            kills.remove(event.value)
            raise SystemExit(137)

    train(*half(**keys), tmp_path / "quiet")
    recipe, inputs = half(**keys)
    kills = [5, 23, 29, 30, 34]
    while kills:
        with pytest.raises(SystemExit):
            train(recipe, inputs, tmp_path / "killed", killing)
    train(recipe, inputs, tmp_path / "killed")
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("quiet", "killed"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    states = []
    for name in ("quiet", "killed"):
        newest = max((tmp_path / name / "checkpoints").glob("step-*"))
        state = json.loads((newest / "state.json").read_text())
        states.append([state[key] for key in ("loss_scale", "steady_updates", "overflows", "recent")])
    assert states[0] == states[1]
    assert summary(tmp_path / "quiet")["overflows"] == summary(tmp_path / "killed")["overflows"] > 10


def test_an_overflow_at_the_least_factor_is_a_fault(half, tmp_path) -> None:
    recipe, inputs = half(scale_initial=HUGE, scale_least=HUGE / 4)
    with pytest.raises(TrainingError) as raised:
        train(recipe, inputs, tmp_path / "out")
    said = str(raised.value)
    assert "by step 3" in said
    assert "the loss scale is at its least (2.74878e+11)" in said
    assert "first the gradient of" in said


def test_a_run_without_one_update_says_so(half, tmp_path) -> None:
    for _ in range(2):  # the same command finds the end of the run, and says it again
        with pytest.raises(TrainingError, match=r"none of the run's 6 updates was made.*6 overflows.*65536") as caught:
            train(*half(scale_initial=1e30, duration="6 steps"), tmp_path / "out")
        assert caught.value.exit_code == 5
    assert not (tmp_path / "out" / "summary.json").exists()


def test_an_average_begins_by_steps_of_the_run(half, tmp_path) -> None:
    ema = {"start": "6 steps", "decay": 0.5}
    train(*half(scale_initial=1e8, duration="8 steps", ema=ema), tmp_path / "out")
    found = summary(tmp_path / "out")
    assert 0 < found["overflows"] < 8
    newest = max((tmp_path / "out" / "checkpoints").glob("step-*"))
    states, weights = load_file(newest / "optimizer.safetensors"), load_file(newest / "model.safetensors")
    assert found["weights"] == "averaged"
    for name, tensor in load_file(tmp_path / "out" / "model.safetensors").items():
        assert torch.equal(tensor, states[f"{name}.average"])
        assert not torch.equal(tensor, weights[name])
