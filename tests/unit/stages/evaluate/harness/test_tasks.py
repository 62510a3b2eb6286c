from __future__ import annotations

import pytest

from trainwright.core.errors import RecipeError
from trainwright.spec.sections.evaluate import BenchmarksSection
from trainwright.stages.evaluate.harness.tasks import tasks_of


def test_tasks_of_ones_own_stand_beside_the_harnesss_and_an_unknown_name_gets_the_nearest_one(tmp_path):
    (tmp_path / "mine.yaml").write_text("task: mine\ndataset_path: json\noutput_type: generate_until\n")
    manager = tasks_of(BenchmarksSection(tasks=("mine", "hellaswag", "mmlu"), include=str(tmp_path)))
    assert {"mine", "hellaswag"} <= set(manager.all_tasks)
    with pytest.raises(RecipeError) as caught:
        tasks_of(BenchmarksSection(tasks=("mine", "gsm8kk"), include=str(tmp_path)))
    assert (caught.value.where, caught.value.seen) == ("evaluate.benchmarks.tasks", "gsm8kk")
    assert "gsm8k" in caught.value.fix
