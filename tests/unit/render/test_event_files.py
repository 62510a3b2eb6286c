"""What other tools read back of a run is what it told, and holds."""

from __future__ import annotations

import os
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trainwright.artifact.events import Events
from trainwright.core.errors import DataError, MissingPackage
from trainwright.render import event_files
from trainwright.render.event_files import FORMS, MLFLOW_FILES, points, to_mlflow, to_tensorboard, to_wandb


@pytest.fixture
def log(tmp_path) -> Path:
    """A run that was interrupted: what it told of step 2 at first is undone."""
    path = tmp_path / "run" / "events.jsonl"
    with Events(path, run="r") as events:
        events.message("hello")
        for step, loss in ((1, 3.0), (2, 99.0)):
            events.metric("train/loss", loss, step=step)
        events.emit("resume", "train", 1, step=1)
        events.metric("train/loss", 2.5, step=2)
        events.emit("phase", "forward", 0.25, unit="s", step=2)
        events.emit("memory", "weights", 4096, unit="bytes", step=2)
    return path


def test_numbers_that_hold_are_points(log) -> None:
    told = points(log)
    assert [(point.name, point.value, point.step) for point in told] == [
        ("train/loss", 3.0, 1),
        ("train/loss", 2.5, 2),
        ("phase/forward", 0.25, 2),
        ("memory/weights", 4096, 2),
    ]
    assert all(one.t_s <= other.t_s for one, other in pairwise(told))


def test_events_without_numbers_are_refused(tmp_path) -> None:
    with Events(tmp_path / "e.jsonl", run="r") as events:
        events.message("hello")
    with pytest.raises(DataError, match="no numbers in these events"):
        points(tmp_path / "e.jsonl")


def test_tensorboard_reads_them_back(log, tmp_path) -> None:
    told = points(log)
    for _ in range(2):  # again, in place of what was written
        folder = to_tensorboard(told, tmp_path / "out", run="tiny")
    read = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    read.Reload()
    back = [
        (name, float(event.tensor_proto.float_val[0]), event.step, event.wall_time)
        for name in read.Tags()["tensors"]
        for event in read.Tensors(name)
    ]
    assert sorted(back) == sorted((point.name, point.value, point.step, point.t_s) for point in told)


def test_mlflow_reads_them_back(log, tmp_path, monkeypatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    told = points(log)
    folder = to_mlflow(told, tmp_path / "out", run="tiny")
    assert MLFLOW_FILES not in os.environ
    monkeypatch.setenv(MLFLOW_FILES, "true")
    client = mlflow.MlflowClient(tracking_uri=folder.absolute().as_uri())
    experiment = client.get_experiment_by_name("trainwright")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("tiny", "FINISHED")
    for name in {point.name for point in told}:
        history = [(each.value, each.step) for each in client.get_metric_history(run.info.run_id, name)]
        assert history == [(point.value, point.step) for point in told if point.name == name]


def test_wandb_reads_them_back(log, tmp_path) -> None:
    """Its file is a log of protocol buffers behind seven bytes; one block is enough for these."""
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    folder = to_wandb(points(log), tmp_path / "out", run="tiny")
    (file,) = folder.glob("run-*.wandb")
    data, place, rows = file.read_bytes(), 7, []
    assert len(data) < 1 << 15
    while place < len(data):
        _, length, _ = struct.unpack("<IHB", data[place : place + 7])
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data[place + 7 : place + 7 + length])
        if record.HasField("history"):
            items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            rows.append({name: float(value) for name, value in items.items()})
        place += 7 + length
    assert [(row["_step"], row["train/loss"]) for row in rows] == [(1, 3.0), (2, 2.5)]
    assert rows[1]["phase/forward"] == 0.25


@pytest.mark.parametrize(("tool", "extra"), [("tensorboard", "train"), ("mlflow", "mlflow"), ("wandb", "wandb")])
def test_a_package_that_is_missing_is_named_with_its_line(tool, extra, log, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(event_files, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage) as raised:
        FORMS[tool](points(log), tmp_path / "out", run="tiny")
    assert f"pip install 'trainwright[{extra}]'" in str(raised.value)
    assert MLFLOW_FILES not in os.environ
