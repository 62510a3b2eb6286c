from __future__ import annotations

import sys

from trainwright.artifact.events import Events
from trainwright.stages.train.metrics import TrainingMetrics
from trainwright.stages.train.observe.board import open_board


def test_tensorboard_files_hold_the_metrics(tmp_path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Events(None, run="r") as events:
        board = open_board(tmp_path / "board", first_step=0, events=events)
        metrics = TrainingMetrics(events, board, unit="nats/token", flops_per_token=1.0, peak_flops_per_s=None)
        metrics.metric("train/loss", 1.25, step=3)
        board.close()
    reader = EventAccumulator(str(tmp_path / "board"))
    reader.Reload()
    assert [(point.step, point.value) for point in reader.Scalars("train/loss")] == [(3, 1.25)]


def test_without_tensorboard_the_pip_line_is_said_once_and_training_goes_on(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setattr("trainwright.stages.train.observe.board.find_spec", lambda name: None)
    said: list[str] = []
    with Events(None, run="r", listeners=(lambda event: said.append(event.text),)) as events:
        assert open_board(tmp_path, first_step=0, events=events) is None
    assert len(said) == 1 and "pip install 'trainwright[" in said[0]
