from __future__ import annotations

from functools import partial

import pytest

from trainwright.core.errors import RecipeError
from trainwright.spec.sections.evaluate import BenchmarksSection
from trainwright.stages.evaluate.harness import tasks
from trainwright.stages.evaluate.harness.tasks import problems, tasks_of


def test_tasks_of_ones_own_stand_beside_the_harnesss_and_an_unknown_name_gets_the_nearest_one(tmp_path):
    (tmp_path / "mine.yaml").write_text("task: mine\ndataset_path: json\noutput_type: generate_until\n")
    manager = tasks_of(BenchmarksSection(tasks=("mine", "hellaswag", "mmlu"), include=str(tmp_path)))
    assert {"mine", "hellaswag"} <= set(manager.all_tasks)
    with pytest.raises(RecipeError) as caught:
        tasks_of(BenchmarksSection(tasks=("mine", "gsm8kk"), include=str(tmp_path)))
    assert (caught.value.where, caught.value.seen) == ("evaluate.benchmarks.tasks", "gsm8kk")
    assert "gsm8k" in caught.value.fix


def test_a_task_that_is_written_later_is_known_in_the_same_process(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "TaskManager", partial(tasks.TaskManager, include_defaults=False))  # saves seconds
    (tmp_path / "one.yaml").write_text("task: one_of_mine\n")
    tasks_of(BenchmarksSection(tasks=("one_of_mine",), include=str(tmp_path)))
    (tmp_path / "two.yaml").write_text("task: two_of_mine\n")
    tasks_of(BenchmarksSection(tasks=("two_of_mine",), include=str(tmp_path)))


def test_what_files_tell_of_a_task_is_known_before_anything_runs_in_groups_and_tags_too(tmp_path):
    files = {
        "short": "task: short_answers\noutput_type: generate_until\ngeneration_kwargs: {max_gen_toks: 8}\n",
        "long": "task: long_answers\ntag: some\noutput_type: generate_until\n",
        "picture": "task: pictures\noutput_type: generate_until\ndoc_to_image: [image]\n",
        "group": "group: several\ntask: [short_answers, {task: long_answers}, pictures, several, nothing]\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)

    def found(*names, context=128):
        section = BenchmarksSection(tasks=names, include=str(tmp_path))
        return [(each.what, each.seen) for each in problems(section, context_tokens=context)]

    long, pictures = "a benchmark's answer leaves no room for its question", "this benchmark is not of text alone"
    assert found("short_answers", "hellaswag", "mmlu") == []
    assert found("short_answers", context=8) == [(long, "short_answers: answers of 8 tokens")]
    assert found("long_answers", "several", "some") == [
        (long, "long_answers: answers of 256 tokens"),
        (long, "long_answers of several: answers of 256 tokens"),
        (long, "long_answers of some: answers of 256 tokens"),
    ]
    assert found("several", context=257) == [(pictures, "pictures of several: doc_to_image")]
    runs = ("this benchmark runs code that the model writes", "humaneval: unsafe_code")
    assert found("humaneval", context=4096) == [runs]


def test_a_file_that_is_no_yaml_is_named_where_its_task_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "TaskManager", partial(tasks.TaskManager, include_defaults=False))  # saves seconds
    (tmp_path / "good.yaml").write_text("task: good\nfewshot_config: !function utils.few\n")
    (tmp_path / "mine.yaml").write_text("task: mine\ndoc_to_text: {{question}\n")
    section = BenchmarksSection(tasks=("mine",), include=str(tmp_path))
    with pytest.raises(RecipeError, match=r"include: this file is no YAML \(seen .*mine\.yaml: ") as caught:
        tasks_of(section)
    assert "\n" not in str(caught.value)


def test_lengths_that_are_no_numbers_are_left_to_the_harness(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "TaskManager", partial(tasks.TaskManager, include_defaults=False))
    text = "task: mine\noutput_type: generate_until\ngeneration_kwargs: {max_gen_toks: many}\n"
    (tmp_path / "mine.yaml").write_text(text)
    section = BenchmarksSection(tasks=("mine",), include=str(tmp_path))
    assert list(problems(section, context_tokens=1024)) == []
