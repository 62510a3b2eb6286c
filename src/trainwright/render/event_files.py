"""A run's events as files of other tools, written after the fact: nothing of them runs while training does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from trainwright.artifact.events import read_events
from trainwright.core.errors import DataError, MissingPackage

PREFIXES = {"metric": "", "phase": "phase/", "memory": "memory/"}
"""Kinds of events that are numbers, and what is put before their names."""
MLFLOW_FILES = "MLFLOW_ALLOW_FILE_STORE"
"""Without it MLflow 3.12 and later refuse folders: they want a database, and no server is meant to run here."""
BATCH = 1000
"""Metrics that MLflow takes in one call."""


class Point(NamedTuple):
    """A number of a run at a step, ``t_s`` seconds (Unix time) into the world."""

    name: str
    value: float
    step: int
    t_s: float


def points(path: Path) -> list[Point]:
    """Returns every number that still holds, in the order in which they were told.

    Raises:
        DataError: the file does not exist, or has no number.
    """
    found = [
        Point(PREFIXES[event.kind] + event.name, event.value, event.step or 0, event.t_s)
        for event in read_events(path)
        if event.kind in PREFIXES
    ]
    if not found:
        fix = "name the folder of a training, train-..., or its events.jsonl"
        raise DataError("no numbers in these events", where=path, fix=fix)
    return found


def to_tensorboard(told: Sequence[Point], out: Path, *, run: str) -> Path:
    """Writes a folder that ``tensorboard --logdir`` shows; returns it."""
    folder = out / run
    writing = _package("tensorboard", "tensorboard.summary", extra="train")
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in folder.glob("events.out.tfevents.*"):
        earlier.unlink()  # TensorBoard would show both
    writer = writing.Writer(str(folder))
    for point in told:
        writer.add_scalar(point.name, point.value, point.step, wall_time=point.t_s)
    writer.close()
    return folder


def to_mlflow(told: Sequence[Point], out: Path, *, run: str) -> Path:
    """Writes a run into a folder of MLflow's, ``mlruns``; returns the folder."""
    folder = out / "mlruns"
    with _environment(MLFLOW_FILES, "true"):
        mlflow = _package("mlflow", "mlflow", extra="mlflow")
        folder.mkdir(parents=True, exist_ok=True)
        client = mlflow.MlflowClient(tracking_uri=folder.absolute().as_uri())
        known = client.get_experiment_by_name("trainwright")
        experiment = client.create_experiment("trainwright") if known is None else known.experiment_id
        begun = client.create_run(experiment, run_name=run, start_time=round(1e3 * told[0].t_s)).info.run_id
        for start in range(0, len(told), BATCH):
            batch = [
                mlflow.entities.Metric(point.name, point.value, round(1e3 * point.t_s), point.step)
                for point in told[start : start + BATCH]
            ]
            client.log_batch(begun, metrics=batch)
        client.set_terminated(begun, end_time=round(1e3 * told[-1].t_s))
    return folder


def to_wandb(told: Sequence[Point], out: Path, *, run: str) -> Path:
    """Writes an offline run, which ``wandb sync`` would send; returns its folder."""
    wandb = _package("wandb", "wandb", extra="wandb")
    out.mkdir(parents=True, exist_ok=True)
    settings = wandb.Settings(console="off", silent=True, x_disable_stats=True)
    begun = wandb.init(mode="offline", dir=str(out), project="trainwright", name=run, settings=settings)
    folder = Path(begun.dir).parent
    # Steps must not fall, and what was told of one step is one row.
    rows: dict[int, dict[str, float]] = {}
    for point in told:
        rows.setdefault(point.step, {})[point.name] = point.value
    for step in sorted(rows):
        begun.log(rows[step], step=step)
    begun.finish()
    return folder


FORMS: Mapping[str, Callable[..., Path]] = {"tensorboard": to_tensorboard, "mlflow": to_mlflow, "wandb": to_wandb}


def _package(name: str, module: str, *, extra: str) -> Any:
    if find_spec(name) is None:
        raise MissingPackage(name, needed_for="this form of events", extra=extra)
    return import_module(module)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
