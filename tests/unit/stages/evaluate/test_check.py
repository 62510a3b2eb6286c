"""An evaluation of splits that will not be there is refused, with advice that the recipe takes."""

from __future__ import annotations

import re

from fixtures.planned_recipe import planned_recipe
from trainwright.stages.evaluate import check
from trainwright.stages.evaluate.check import problems


def test_the_usual_splits_are_there(tmp_path) -> None:
    assert list(problems(planned_recipe(tmp_path), None)) == []


def test_the_advice_can_be_followed(tmp_path) -> None:
    shares = "data.split={train: 0.9, validation: 0.0, test: 0.1}"
    (problem,) = problems(planned_recipe(tmp_path, shares), None)
    assert problem.where == "evaluate.splits" and problem.seen == "data.split.validation: 0"
    advice = re.search(r"evaluate\.splits: (\[.*?\])", problem.fix)
    assert list(problems(planned_recipe(tmp_path, shares, f"evaluate.splits={advice[1]}"), None)) == []


def test_questions_are_read_before_anything_runs(tmp_path) -> None:
    path = tmp_path / "questions.jsonl"
    (problem,) = problems(planned_recipe(tmp_path, f"evaluate.questions={{path: {path}}}"), None)
    assert (problem.where, problem.what) == ("evaluate.questions", "cannot read the questions")
    assert problem.seen == f"{path} No such file or directory"
    path.write_text('{"question": "1+1?", "answer": "2"}\n{"question": "2+2?"}\n')
    (problem,) = problems(planned_recipe(tmp_path, f"evaluate.questions={{path: {path}}}"), None)
    assert problem.seen == f"{path}:2 keys question"
    path.write_text('{"question": "1+1?", "answer": "2"}\n')
    assert list(problems(planned_recipe(tmp_path, f"evaluate.questions={{path: {path}}}"), None)) == []


def test_a_model_that_writes_no_text_is_asked_nothing(tmp_path) -> None:
    (tmp_path / "q.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n')
    asked = f"evaluate={{questions: {{path: {tmp_path}/q.jsonl}}, prompts: [a], benchmarks: {{tasks: [piqa]}}}}"
    classes = ("task={name: classify, labels: [a, b]}", "data.sources=[{kind: jsonl, paths: [x], label_key: y}]")
    found = [str(each) for each in problems(planned_recipe(tmp_path, asked, *classes), None)]
    assert [line.partition(" (")[0] for line in found] == [
        f"evaluate.{key}: {key} are for a model that writes text" for key in ("prompts", "questions", "benchmarks")
    ]


def test_benchmarks_are_known_by_name_before_anything_runs(tmp_path, monkeypatch) -> None:
    text = "task: mine\ndataset_path: json\noutput_type: generate_until\ngeneration_kwargs: {max_gen_toks: 8}\n"
    (tmp_path / "mine.yaml").write_text(text)
    mine = f"evaluate.benchmarks={{tasks: [mine, hellaswag], include: {tmp_path}}}"
    assert list(problems(planned_recipe(tmp_path, mine), None)) == []
    (problem,) = problems(planned_recipe(tmp_path, mine.replace("hellaswag", "hellaswagg")), None)
    assert (problem.where, problem.what) == ("evaluate.benchmarks.tasks", "unknown benchmark")
    (problem,) = problems(planned_recipe(tmp_path, "evaluate.benchmarks={tasks: [mine], include: nowhere}"), None)
    assert (problem.where, problem.seen) == ("evaluate.benchmarks.include", "nowhere")
    (tmp_path / "mine.yaml").write_text(text.replace("max_gen_toks: 8", "max_gen_toks: 100000"))
    (problem,) = problems(planned_recipe(tmp_path, mine), None)
    assert problem.seen == "mine: answers of 100000 tokens"
    (tmp_path / "empty").mkdir()
    empty = f"evaluate.benchmarks={{tasks: [mine], include: {tmp_path}/empty}}"
    (problem,) = problems(planned_recipe(tmp_path, empty), None)
    assert (problem.where, problem.what) == ("evaluate.benchmarks.include", "no task is here")
    monkeypatch.setattr(check, "installed", lambda package: False)
    (problem,) = problems(planned_recipe(tmp_path, mine), None)
    assert problem.fix == "run: pip install 'trainwright[benchmarks]'"


def test_an_empty_prompt_is_named_by_its_place(tmp_path) -> None:
    (problem,) = problems(planned_recipe(tmp_path, "evaluate.prompts=[a, '']"), None)
    assert problem.where == "evaluate.prompts.1"
