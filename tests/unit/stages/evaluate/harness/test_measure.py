"""A task of one's own, whose right answers are worked out by hand; nothing is downloaded."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from fixtures import tiny_models
from trainwright.artifact.events import Events
from trainwright.core.errors import DataError
from trainwright.model.chats.template import BUILT_IN, ChatTemplate
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.evaluate import BenchmarksSection
from trainwright.stages.evaluate.harness import measure, tasks
from trainwright.stages.evaluate.harness.measure import measured
from trainwright.stages.evaluate.harness.model import HarnessModel

QUESTIONS = ["def add(left", "for index", "return left", "value", "total +=", "naïve", "text too"]
CHOICES = [" left", " right", " value"]
TASK = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {data}}}
test_split: train
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
doc_to_choice: "{{{{choices}}}}"
target_delimiter: ""
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
metadata: {{version: 3}}
"""


@dataclass
class Told:
    """What a listener heard, by kind."""

    metrics: dict[str, float] = field(default_factory=dict)
    progress: list[tuple[float, float]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    def __call__(self, event):
        if event.kind == "metric":
            self.metrics[event.name] = event.value
        elif event.kind == "progress":
            self.progress.append((event.value, event.total))
        elif event.kind == "message":
            self.messages.append(event.text)


@pytest.fixture
def evaluate(tmp_path, monkeypatch):
    """Measures a tiny network by a task of the folder, which has its tokenizer too."""
    monkeypatch.setattr(tasks, "TaskManager", partial(tasks.TaskManager, include_defaults=False))  # saves seconds
    network, tokenizer = tiny_models.decoder(), tiny_models.tokenizer()
    tokenizer.save(str(tmp_path / "tokenizer.json"))

    def run(name="mine", *, chats=None, **section):
        recipe = Recipe.model_validate(
            {
                "name": "tiny",
                "model": {"layers": 3, "width": 32, "heads": 4},
                "data": {"sources": [{"kind": "python-stdlib"}]},
                "evaluate": {"benchmarks": {"tasks": [name], "include": str(tmp_path)} | section},
            }
        )
        events = Events(None, run="tiny", listeners=(run.told,))
        return measured(recipe, network, tmp_path / "tokenizer.json", chats, name, events=events)

    run.network, run.tokenizer, run.told = network, tokenizer, Told()
    return run


def likeliest(network, tokenizer, question):
    """The number of the choice whose tokens, by a pass over question and choice, are the likeliest."""
    scores = []
    for choice in CHOICES:
        context, whole = tokenizer.encode(question).ids, tokenizer.encode(question + choice).ids
        with torch.no_grad():
            logits = network.logits(network(torch.tensor([whole[:-1]])))[0].log_softmax(dim=-1)
        scores.append(sum(float(logits[place - 1, whole[place]]) for place in range(len(context), len(whole))))
    return scores.index(max(scores))


def test_the_share_of_right_choices_is_the_one_by_hand_and_a_task_without_data_is_named(evaluate, tmp_path):
    right = [likeliest(evaluate.network, evaluate.tokenizer, question) for question in QUESTIONS]
    told = [right[0], right[1], (right[2] + 1) % 3, right[3], (right[4] + 1) % 3, right[5], right[6]]
    rows = [
        {"question": question, "choices": CHOICES, "answer": answer}
        for question, answer in zip(QUESTIONS, told, strict=True)
    ]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name in ("mine", "gone"):
        (tmp_path / f"{name}.yaml").write_text(TASK.format(name=name, data=tmp_path / f"{name}.jsonl"))
    found = evaluate()["mine"]
    share = 5 / 7
    assert (found["count"], found["version"]) == (7, "3")
    assert found["metrics"]["acc"]["value"] == pytest.approx(share)
    assert found["metrics"]["acc"]["stderr"] == pytest.approx((share * (1 - share) / 6) ** 0.5)
    assert evaluate.told.metrics == {"evaluate/mine/acc": pytest.approx(share)}
    assert evaluate.told.progress[-1] == (21, 21)
    assert evaluate(limit=4)["mine"]["count"] == 4
    with pytest.raises(
        DataError, match=r"^evaluate\.benchmarks\.tasks: the data of a benchmark cannot be read \(seen gone: "
    ) as caught:
        evaluate("gone")
    assert "\n" not in str(caught.value)


GROUP = """\
group: ours
task: [first, second]
aggregate_metric_list: [{metric: acc, aggregation: mean, weight_by_size: true}]
"""


def test_a_group_has_its_own_number_before_those_of_its_tasks(evaluate, tmp_path):
    right = likeliest(evaluate.network, evaluate.tokenizer, QUESTIONS[0])
    for name, answers in {"first": [right], "second": [right, (right + 1) % 3, (right + 1) % 3]}.items():
        rows = [{"question": QUESTIONS[0], "choices": CHOICES, "answer": answer} for answer in answers]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        (tmp_path / f"{name}.yaml").write_text(TASK.format(name=name, data=tmp_path / f"{name}.jsonl"))
    (tmp_path / "ours.yaml").write_text(GROUP)
    found = evaluate("ours")
    shares = {name: (task["count"], task["metrics"]["acc"]["value"]) for name, task in found.items()}
    assert list(shares) == ["ours", "first", "second"]
    assert shares == {"ours": (4, 0.5), "first": (1, 1.0), "second": (3, pytest.approx(1 / 3))}


@pytest.mark.parametrize(
    ("own", "asked", "shown"), [(None, None, 0), (None, 2, 2), (0, 2, 0), (1, None, 1), (1, 2, 2), (1, 0, 0)]
)
def test_as_many_solved_examples_are_shown_as_the_recipe_says_unless_the_task_forbids_them(
    evaluate, tmp_path, monkeypatch, own, asked, shown
):
    rows = [{"question": f"question {number}", "choices": CHOICES, "answer": 0} for number in range(4)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    text = TASK.format(name="mine", data=tmp_path / "mine.jsonl")
    (tmp_path / "mine.yaml").write_text(text + ("" if own is None else f"num_fewshot: {own}\n"))
    prompts = []
    monkeypatch.setattr(
        HarnessModel,
        "loglikelihood",
        lambda self, requests, **_: [prompts.append(each.args[0]) or (0.0, True) for each in requests],
    )
    evaluate(limit=1, few_shot=asked)
    assert {prompt.count("question") for prompt in prompts} == {shown + 1}


def test_a_model_of_chats_is_shown_solved_examples_as_earlier_turns(evaluate, tmp_path, monkeypatch):
    rows = [{"question": f"question {number}", "choices": CHOICES, "answer": 0} for number in range(4)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "mine.yaml").write_text(TASK.format(name="mine", data=tmp_path / "mine.jsonl"))
    template, prompts = ChatTemplate(text=BUILT_IN["chatml"], source="here"), []
    monkeypatch.setattr(measure, "_template", lambda chats: template.renderer())
    monkeypatch.setattr(
        HarnessModel,
        "loglikelihood",
        lambda self, requests, **_: [prompts.append(each.args[0]) or (0.0, True) for each in requests],
    )
    evaluate(chats=object(), limit=1, few_shot=2)
    roles = [part.partition("\n")[0] for part in prompts[0].split("<|im_start|>")[1:]]
    assert roles == ["user", "assistant"] * 3 and prompts[0].endswith("<|im_start|>assistant\n")


def test_a_number_that_is_not_finite_is_named_and_left_out(evaluate, tmp_path, monkeypatch):
    (tmp_path / "mine.jsonl").write_text(json.dumps({"question": QUESTIONS[0], "choices": CHOICES, "answer": 0}))
    (tmp_path / "mine.yaml").write_text(TASK.format(name="mine", data=tmp_path / "mine.jsonl"))
    values = {"sample_len": 1, "acc,none": 1.0, "acc_stderr,none": "N/A", "f1,none": float("nan")}
    monkeypatch.setattr(measure, "evaluate", lambda **_: {"results": {"mine": values}, "versions": {"mine": 3}})
    assert evaluate()["mine"]["metrics"] == {"acc": {"value": 1.0}}
    assert evaluate.told.messages == ["benchmark mine: f1 is no finite number, and is left out"]


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (KeyError("country"), DataError),  # a task's own template names what its rows lack
        (MemoryError(), MemoryError),
        (torch.OutOfMemoryError("no room"), torch.OutOfMemoryError),
    ],
)
def test_a_fault_within_a_task_is_told_and_no_room_stays_what_it_is(monkeypatch, raised, expected):
    def failing(**_):
        raise raised

    monkeypatch.setattr(measure, "evaluate", failing)
    monkeypatch.setattr(measure, "_loaded", lambda section, name: {"tasks": {}})
    section = BenchmarksSection(tasks=("mine",))
    model = SimpleNamespace(chats=False)
    with pytest.raises(expected) as caught:
        measure._evaluate(model, section, "mine")  # noqa: SLF001
    if expected is DataError:
        assert "mend the task" in caught.value.fix and "network" not in str(caught.value)
