"""A training whose batch grows: to the bit what it is said to be, however it is interrupted."""

from __future__ import annotations

import json

import pytest

from trainwright.artifact.events import read_events

RAMP = [{"batch_tokens": 16, "until": "3 steps"}, {"batch_tokens": 32, "until": "112 tokens"}]
SIZES = [16] * 3 + [32] * 2 + [64] * 4
"""Of nine updates: 368 tokens."""


def weights(out) -> bytes:
    return (out / "model.safetensors").read_bytes()


def test_a_ramp_of_one_size_is_no_ramp(make_recipe, inputs_for, train, tmp_path):
    for name, ramp in (("plain", []), ("ramped", [{"batch_tokens": 64, "until": "5 steps"}])):
        recipe = make_recipe(duration="512 tokens", batch_ramp=ramp, exec_micro_batch=2)
        train(recipe, inputs_for(recipe), tmp_path / name)
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("plain", "ramped")]
    assert weights(tmp_path / "plain") == weights(tmp_path / "ramped")
    assert [each["tokens"] for each in summaries] == [512, 512]
    assert summaries[0]["train_loss"] == summaries[1]["train_loss"]


def test_every_update_is_told_and_counted_with_its_size(make_recipe, inputs_for, train, tmp_path):
    recipe = make_recipe(duration="368 tokens", batch_ramp=RAMP, exec_log_every_steps=1)
    train(recipe, inputs_for(recipe), tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["steps"], summary["tokens"]) == (9, 368)
    told = {name: [] for name in ("train/batch_tokens", "train/tokens", "train/tokens_per_s", "train/steps_per_s")}
    for event in read_events(tmp_path / "out" / "events.jsonl"):
        if event.name in told:
            told[event.name].append(event.value)
    assert told["train/batch_tokens"] == SIZES
    assert told["train/tokens"] == [sum(SIZES[:done]) for done in range(1, 10)]
    speeds = [size * steps_per_s for size, steps_per_s in zip(SIZES, told["train/steps_per_s"], strict=True)]
    assert told["train/tokens_per_s"] == pytest.approx(speeds)
    seconds = sum(value for name, value in summary["step_phases"].items()) * 9
    assert summary["tokens_per_s"] == pytest.approx(368 / seconds)


def test_a_killed_run_ends_in_the_same_bits(make_recipe, inputs_for, train, tmp_path):
    recipe = make_recipe(
        duration="9 steps", batch_ramp=RAMP, exec_checkpoint_every=1e-9, ema={"start": "4 steps"}, family="gpt2"
    )

    def killing(step: int):
        def kill(event) -> None:
            if event.kind == "progress" and event.name == "train" and event.value == step:
                raise SystemExit(137)

        return kill

    train(recipe, inputs_for(recipe), tmp_path / "quiet")
    for step in (2, 3, 4, 5, 8):
        with pytest.raises(SystemExit):
            train(recipe, inputs_for(recipe), tmp_path / "killed", (killing(step),))
    train(recipe, inputs_for(recipe), tmp_path / "killed")
    assert weights(tmp_path / "killed") == weights(tmp_path / "quiet")
    assert json.loads((tmp_path / "killed" / "summary.json").read_text())["tokens"] == 368
