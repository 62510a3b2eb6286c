"""Stop, leave out, go back: against runs that never saw the faulty batch, and against runs that were killed."""

from __future__ import annotations

import json
import re
import statistics

import pytest
import torch
from safetensors.torch import load_file

from fixtures.told_training import train
from trainwright.artifact.checkpoint.index import checkpoints_in
from trainwright.artifact.events import read_events
from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import TrainingError
from trainwright.core.records import from_json
from trainwright.model.tasks.windows import Windows
from trainwright.runtime.timing import time_limit as clock
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.runtime.timing.time_limit import time_limit
from trainwright.spec.measures import MemoryUse, PhaseTimes
from trainwright.spec.summary import TrainSummary
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train.faults import policy
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.stage import result_of
from trainwright.stages.train.trainer import Trainer

NAN = float("nan")
EACH = 1e-9
"""Seconds between checkpoints: one after every step."""


def killing(step: int):
    def kill(event) -> None:
        if event.kind == "progress" and event.name == "train" and event.value == step:
            raise SystemExit(137)

    return kill


def weights(out):
    return load_file(out / "model.safetensors")


def same(one, other) -> bool:
    return all((one[name] == other[name]).all() for name in one)


@pytest.fixture
def make(make_recipe):
    def made(*, faults, duration="10 steps", **train):
        how = {"exec_micro_batch": 2, "exec_log_every_steps": 3} | train
        return make_recipe(faults=faults, duration=duration, **how)

    return made


def test_a_stop_names_the_module_and_the_sequence(make, inputs_for, poison, tmp_path) -> None:
    poison(NAN)
    recipe = make(faults={}, exec_checkpoint_every=EACH)
    with pytest.raises(TrainingError) as raised:
        train(recipe, inputs_for(recipe), tmp_path / "out")
    said = str(raised.value)
    assert "became nan by step 6" in said
    assert "first blocks.1, in batch 5 of the data, sequences 2 (which begin at tokens" in said
    newest = max((tmp_path / "out" / "checkpoints").glob("step-*"))
    assert newest.name == "step-00000005", "no update was made from it"
    good = re.search(r"the last good checkpoint is (\S+); go on .* model\.init_from=(\S+) train\.optimizer\.lr=", said)
    assert {*good.groups()} == {str(newest.with_name("step-00000004"))}, "one from which an update was made"


def test_what_compiled_code_alone_gets_wrong_is_no_fault_of_the_rates(
    make, inputs_for, poison, tmp_path, monkeypatch
) -> None:
    """As GCC did (``runtime.gcc``): the step that is computed again runs uncompiled, and is finite."""
    monkeypatch.setattr(torch, "compile", lambda network, **_: network)
    monkeypatch.setattr(policy, "first_not_finite", lambda step, batch: None)
    poison(NAN)
    recipe = make(faults={}, exec_compile=True)
    with pytest.raises(TrainingError) as raised:
        train(
            recipe, inputs_for(recipe, parallel=ParallelPlan(micro_batch_sequences=2, compile=True)), tmp_path / "out"
        )
    assert "(seen batch 5 of the data; without torch.compile all numbers of the step are finite" in str(raised.value)
    assert "set train.exec.compile=false" in str(raised.value) and "lr=" not in str(raised.value)


def test_a_forward_pass_that_is_not_finite_is_no_overflow_of_a_scaled_gradient(
    make, inputs_for, poison, tmp_path
) -> None:
    poison(NAN)
    recipe = make(faults={}, precision="fp16")
    with pytest.raises(TrainingError, match=r"became nan by step 6.*first blocks\.1") as raised:
        train(recipe, inputs_for(recipe, precision="fp16"), tmp_path / "out")
    assert "loss scale" not in str(raised.value)


def test_what_is_left_out_is_as_if_the_optimizer_had_not_been_called(
    make, inputs_for, poison, tmp_path, monkeypatch
) -> None:
    recipe = make(faults={"not_finite": "skip"})
    inputs = inputs_for(recipe)
    with monkeypatch.context() as patched:
        calls = iter(range(100))
        step = Optimizers.step
        patched.setattr(Optimizers, "step", lambda self, share: None if next(calls) == 5 else step(self, share))
        train(recipe, inputs, tmp_path / "expected")
    poison(NAN)
    said = train(recipe, inputs, tmp_path / "out")
    assert same(weights(tmp_path / "expected"), weights(tmp_path / "out"))
    (told,) = (text for text in said if "is left out" in text)
    assert "first blocks.1" in told
    summary, quiet = (
        from_json(TrainSummary, json.loads((tmp_path / each / "summary.json").read_text()), where=each)
        for each in ("out", "expected")
    )
    assert (summary.faults, quiet.faults) == (1, 0)
    assert result_of(summary, recipe).summary["left_out"] == "1 of 10 updates"
    assert "left_out" not in result_of(quiet, recipe).summary
    back = result_of(summary, make(faults={"spike": "rollback"})).summary
    assert back["left_out_or_rolled_back"] == 1 and "left_out" not in back
    losses = [event.value for event in read_events(tmp_path / "out" / "events.jsonl") if event.name == "train/loss"]
    assert all(abs(loss) < 10 for loss in losses)


@pytest.mark.parametrize("batches", [1, 3])
def test_after_a_rollback_the_run_is_one_without_those_batches(
    batches, make, inputs_for, poison, tmp_path, monkeypatch
) -> None:
    recipe = make(
        faults={"not_finite": "rollback", "rollback_steps": batches},
        exec_checkpoint_every=EACH,
        exec_keep_checkpoints=5,
    )
    inputs = inputs_for(recipe)
    left_out = set(range(6 - batches, 6))
    order = [number for number in range(20) if number not in left_out]
    with monkeypatch.context() as patched:
        read = Windows.batch
        patched.setattr(Windows, "batch", lambda self, step, rows=None: read(self, order[step], rows))
        train(recipe, inputs, tmp_path / "expected")
    poison(NAN)
    said = train(recipe, inputs, tmp_path / "out")
    assert same(weights(tmp_path / "expected"), weights(tmp_path / "out"))
    assert any(f"back to step {6 - batches}, and on without {batches} batches" in text for text in said)


def test_a_batch_of_a_ramp_that_is_left_out_takes_its_size_along(make, inputs_for, poison, tmp_path) -> None:
    """Sequence 10 of the run is bad: the third of full batch 2, and the first of the two of the ramp's eighth."""
    ramp = [{"batch_tokens": 16, "until": "4 steps"}, {"batch_tokens": 32, "until": "12 steps"}]
    poison(NAN, batches=(2,))
    recipe = make(faults={"not_finite": "rollback"}, duration="15 steps", batch_ramp=ramp, exec_checkpoint_every=EACH)
    inputs = inputs_for(recipe, micro_batch=1)
    said = train(recipe, inputs, tmp_path / "out")
    (told,) = (text for text in said if "back to step" in text)
    split = TokenDataset.open(inputs["dataset"].path).splits["train"]
    begins = Windows(split, sequence_tokens=16, batch_sequences=4, seed=7).starts(2)[2]
    assert f"in batch 7 of the data, sequences 0 (which begin at tokens {begins} of" in told
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["tokens"] == 4 * 16 + 7 * 32 + 4 * 64


def test_a_rollback_before_any_checkpoint_goes_back_to_the_start(make, inputs_for, poison, tmp_path) -> None:
    poison(NAN)
    recipe = make(faults={"not_finite": "rollback"}, exec_checkpoint_every=0)
    assert any("back to step 0" in text for text in train(recipe, inputs_for(recipe), tmp_path / "out"))


def test_a_rollback_goes_back_at_the_other_place_too(make, inputs_for, poison, tmp_path) -> None:
    """What was made of the faulty batches lies there as well, and would come back as a newer checkpoint."""
    faults = {"not_finite": "rollback", "rollback_steps": 3}
    keys = {"exec_checkpoint_every": EACH, "exec_keep_checkpoints": 5}
    poison(NAN)
    here = make(faults=faults, **keys)
    both = make(faults=faults, exec_checkpoint_to=str(tmp_path / "there"), **keys)
    expected = train(here, inputs_for(here), tmp_path / "expected")
    said = train(both, inputs_for(both), tmp_path / "out")
    for texts in (expected, said):
        assert any("back to step 3, and on without 3 batches" in text for text in texts)
    assert not any("comes from where checkpoints go" in text for text in said)
    assert same(weights(tmp_path / "expected"), weights(tmp_path / "out"))
    names = [[path.name for path in checkpoints_in(tmp_path / at)] for at in ("out/checkpoints", "there/out")]
    assert names[0] == names[1] == [f"step-{step:08d}" for step in range(6, 11)]


def test_steps_that_were_thrown_away_count_nowhere(make, inputs_for, poison, tmp_path, monkeypatch) -> None:
    """By a clock of which each reading is a second more: one for each step that counts, and one for the end."""
    monkeypatch.setattr(PhaseClock, "stop", lambda _: PhaseTimes.from_mapping({"forward": 1.0}))
    poison(NAN)
    faults = {"not_finite": "rollback", "rollback_steps": 3}
    recipe = make(faults=faults, exec_checkpoint_every=EACH, exec_keep_checkpoints=5, exec_log_every_steps=1)
    inputs, trainers, begun = inputs_for(recipe), [], Trainer.run
    with pytest.raises(SystemExit):
        train(recipe, inputs, tmp_path / "out", killing(5))
    monkeypatch.setattr(Trainer, "run", lambda self, *rest, **by: trainers.append(self) or begun(self, *rest, **by))
    said = train(recipe, inputs, tmp_path / "out")
    assert any("back to step 3" in text for text in said), "before step 4, from which this process went on"
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["goodput"]["steps_s"] == 11
    use = trainers[0].rank_use(MemoryUse())
    assert (use.steps, use.phases.forward) == (7, 8)


@pytest.mark.parametrize("sigma", [8.0, 1e3])
def test_what_leapt_is_told_with_its_limit(sigma, make, inputs_for, poison, tmp_path) -> None:
    """Mean and deviation are those of the eight updates before it, as the log has them."""
    recipe = make(
        faults={"spike": "skip", "spike_sigma": sigma, "window": 8},
        duration="16 steps",
        optimizer={"name": "adamw", "lr": 1e-5},
        exec_log_every_steps=1,
    )
    poison(1e3 if sigma < 100 else 1e5, batches=(14,))
    (told,) = (text for text in train(recipe, inputs_for(recipe), tmp_path / "out") if "leapt at step 15" in text)
    found = re.findall(r"the ([\w' ]+) \((\S+); before it (\S+) in the mean, (\S+) at most\)", told)
    assert {name for name, *_ in found} <= {"loss", "gradient's norm"} and found
    for name, value, mean, most in found:
        metric = "train/loss" if name == "loss" else "train/grad_norm"
        logged = [event for event in read_events(tmp_path / "out" / "events.jsonl") if event.name == metric]
        before = [event.value for event in logged if 7 <= event.step <= 14]
        assert len(before) == 8
        assert float(mean) == pytest.approx(statistics.fmean(before), rel=1e-3)
        assert float(most) == pytest.approx(statistics.fmean(before) + sigma * statistics.stdev(before), rel=1e-3)
        assert float(value) > float(most)


def test_the_weights_at_the_start_are_no_advice(make, inputs_for, poison, tmp_path) -> None:
    poison(NAN, batches=(5, 6))
    recipe = make(faults={"not_finite": "rollback", "most": 1})
    with pytest.raises(TrainingError, match="became nan") as raised:
        train(recipe, inputs_for(recipe), tmp_path / "out")
    assert [each.name for each in checkpoints_in(tmp_path / "out" / "checkpoints")] == ["step-00000000"]
    assert "the last good checkpoint has the weights that the run began with; begin again with" in str(raised.value)
    assert "train.optimizer.lr=" in str(raised.value) and "init_from" not in str(raised.value)


@pytest.mark.parametrize("action", ["skip", "rollback"])
def test_a_killed_run_decides_as_one_that_was_not(action, make, inputs_for, poison, tmp_path) -> None:
    """The window of the spike's detector and the batches that are passed over stand in the checkpoint."""
    recipe = make(
        faults={"spike": action, "spike_sigma": 8, "window": 8},
        duration="24 steps",
        exec_checkpoint_every=EACH,
        optimizer={"name": "adamw", "lr": 1e-5},
    )
    inputs = inputs_for(recipe)
    poison(1e3, batches=(14,))
    whole = train(recipe, inputs, tmp_path / "whole")
    assert sum("leapt at step 15" in text for text in whole) == 1
    for step in (3, 12, 17):
        with pytest.raises(SystemExit):
            train(recipe, inputs, tmp_path / "parts", killing(step))
    train(recipe, inputs, tmp_path / "parts")
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))


def test_too_many_faults_stop_the_run(make, inputs_for, poison, tmp_path) -> None:
    poison(NAN, batches=(3, 5))
    recipe = make(faults={"not_finite": "skip", "most": 1}, duration="8 steps")
    with pytest.raises(TrainingError, match=r"by step 6 .*1 before it, as many as train\.faults\.most allows"):
        train(recipe, inputs_for(recipe), tmp_path / "out")


def test_a_run_most_of_whose_updates_are_left_out_is_no_success(make, inputs_for, poison, tmp_path) -> None:
    poison(NAN, batches=(1, 2, 4, 5, 6))
    recipe = make(faults={"not_finite": "skip"}, duration="8 steps")
    with pytest.raises(TrainingError, match=r"most of the run's 8 updates were left out .*seen 5 faults"):
        train(recipe, inputs_for(recipe), tmp_path / "out")


def test_other_bits_of_a_second_computation_are_the_device(make, inputs_for, poison, tmp_path) -> None:
    poison(NAN, times=1)
    recipe = make(faults={}, exec_rerun=True)
    with pytest.raises(TrainingError) as raised:
        train(recipe, inputs_for(recipe), tmp_path / "out")
    assert re.search(r"step 6 computed twice .* gives other numbers: cpu of \S+ computes wrongly", str(raised.value))


def test_equal_bits_of_a_second_computation_are_the_data(make, inputs_for, poison, tmp_path) -> None:
    poison(NAN)
    recipe = make(faults={}, exec_rerun=True)
    with pytest.raises(TrainingError, match=r"first blocks\.1, in batch 5"):
        train(recipe, inputs_for(recipe), tmp_path / "out")


def test_a_rollback_leaves_the_time_limit_as_it_was(make, inputs_for, poison, tmp_path, monkeypatch) -> None:
    begun: list[float] = []

    def limit(asked_s, began_s, *rest):
        begun.append(began_s)
        return time_limit(asked_s, began_s, *rest)

    monkeypatch.setattr(clock, "time_limit", limit)
    poison(NAN)
    recipe = make(faults={"not_finite": "rollback", "rollback_steps": 2}, exec_time_limit=3600)
    said = train(recipe, inputs_for(recipe), tmp_path / "out")
    assert any("back to step" in text for text in said)
    assert len(begun) == 1, "one limit, made when training began"
