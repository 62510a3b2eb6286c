from __future__ import annotations

from types import SimpleNamespace

import pytest

from trainwright.artifact.events import Events
from trainwright.stages.report.blocks import Figure, Missing, Sample
from trainwright.stages.report.learning import learning, samples


def test_curves_run_over_tokens(record):
    figures = [block for block in learning(record).blocks if isinstance(block, Figure)]
    assert [figure.title for figure in figures] == [
        "Loss",
        "Learning rate",
        "Gradient norm",
        "Throughput",
        "Model FLOPs utilisation",
    ]
    rates = figures[1].views[0][1]
    assert [(series.name, max(series.ys)) for series in rates.series] == [
        ("AdamW", pytest.approx(3e-3, rel=0.05)),
        ("Muon, the blocks' matrices", pytest.approx(0.02, rel=0.05)),
    ]
    loss = figures[0].views[0][1]
    assert {series.name for series in loss.series} == {"each report", "training", "validation"}
    assert loss.series[0].xs[-1] == 1000 * 4096
    assert [view for view, _ in figures[0].views] == ["linear", "logarithmic"]


def test_the_axis_has_the_losses_own_unit_and_a_tasks_metrics_are_drawn(tmp_path, fake):
    record = fake.run(tmp_path, fake.recipe())
    with Events(record.artifacts["train"].path / "events.jsonl", run="r") as events:
        for step in (10, 20):
            events.metric("train/loss", 1.0, step=step, unit="nats/document")
            events.metric("validation/accuracy", 0.5 + step / 100, step=step)
    charts = {block.title: block.views[0][1] for block in learning(record).blocks if isinstance(block, Figure)}
    assert charts["Loss"].y_title == "nats per document"
    assert [(series.name, list(series.ys)) for series in charts["Validation"].series] == [("accuracy", [0.6, 0.7])]


def test_parts_of_a_loss_are_drawn_apart(tmp_path, fake):
    record = fake.run(tmp_path, fake.recipe())
    with Events(record.artifacts["train"].path / "events.jsonl", run="r") as events:
        events.metric("train/cross_entropy", 2.0, step=10)
        events.metric("train/kl", 0.5, step=10)
    charts = {block.title: block.views[0][1] for block in learning(record).blocks if isinstance(block, Figure)}
    parts = [(series.name, list(series.ys)) for series in charts["Parts of the loss"].series]
    assert parts == [("cross-entropy", [2.0]), ("divergence from the teacher", [0.5])]


def test_samples_are_completions_and_the_served_answer(record):
    first, second = (block for block in samples(record).blocks if isinstance(block, Sample))
    assert first.overlap in first.completion
    assert "24 bytes" in first.note
    assert second.completion == "    return a + b\n"


def test_a_task_whose_models_write_no_text_has_no_samples(record):
    task = SimpleNamespace(kind=SimpleNamespace(makes="classes"))
    assert samples(SimpleNamespace(recipe=SimpleNamespace(task=task))) is None


def test_without_text_the_recipe_keys_are_named(tmp_path, fake):
    record = fake.run(tmp_path, fake.recipe(), without=("evaluate", "serve"))
    (missing,) = samples(record).blocks
    assert isinstance(missing, Missing)
    assert "evaluate.prompts" in missing.text
