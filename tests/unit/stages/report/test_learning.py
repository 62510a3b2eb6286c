from __future__ import annotations

from trainwright.stages.report.blocks import Figure, Missing, Sample, Table
from trainwright.stages.report.learning import learning, quality, samples


def test_curves_run_over_tokens(record):
    figures = [block for block in learning(record).blocks if isinstance(block, Figure)]
    assert [figure.title for figure in figures] == [
        "Loss", "Learning rate", "Gradient norm", "Throughput", "Model FLOPs utilisation"
    ]  # fmt: skip
    loss = figures[0].views[0][1]
    assert {series.name for series in loss.series} == {"each report", "training", "validation"}
    assert loss.series[0].xs[-1] == 1000 * 4096
    assert [view for view, _ in figures[0].views] == ["linear", "logarithmic"]


def test_the_model_stands_among_the_baselines_by_rank(record):
    chart = next(block for block in quality(record).blocks if isinstance(block, Figure)).views[0][1]
    assert [label for label, _ in chart.groups] == ["8-gram", "this model", "xz -6", "gzip -9", "5-gram", "3-gram"]


def test_document_sizes_are_open_at_the_top(record):
    table = [block for block in quality(record).blocks if isinstance(block, Table)][-1]
    assert [row[1] for row in table.rows[:3]] == ["0 B to 1 KiB", "1 KiB to 64 KiB", "64 KiB and more"]


def test_samples_are_completions_and_the_served_answer(record):
    first, second = (block for block in samples(record).blocks if isinstance(block, Sample))
    assert first.overlap in first.completion
    assert "24 bytes" in first.note
    assert second.completion == "    return a + b\n"


def test_without_text_the_recipe_keys_are_named(tmp_path, fake):
    record = fake.run(tmp_path, fake.recipe(), without=("evaluate", "serve"))
    (missing,) = samples(record).blocks
    assert isinstance(missing, Missing)
    assert "evaluate.prompts" in missing.text
