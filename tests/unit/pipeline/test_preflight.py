"""What can be known before anything runs is said before anything runs, all at once, each under its key."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from trainwright.artifact.stage import StageResult
from trainwright.core.config.load import load
from trainwright.core.errors import DataError, MissingPackage, RecipeError, RecipeErrors
from trainwright.core.records import to_json
from trainwright.pipeline import preflight, runner
from trainwright.pipeline.preflight import check, problems
from trainwright.pipeline.steps import steps
from trainwright.spec.recipe import Recipe
from trainwright.testing.artifacts import make_artifact, make_dataset

TEXT = """\
name: early
model: {layers: 2, width: 64, heads: 2, context_tokens: 32}
data:
  sources: [{kind: python-stdlib}]
  tokenizer: {vocabulary: 300}
train: {sequence_tokens: 32, batch_tokens: 64, duration: 10 steps}
"""


def test_a_problem_under_the_key_of_its_step_keeps_its_template_and_its_values(early, monkeypatch) -> None:
    problem = MissingPackage("pyarrow", needed_for="reading Parquet files", extra="data").at("data.sources.0.kind")
    monkeypatch.setattr(preflight, "load", lambda name, kind: lambda recipe, tokenizer: [problem])
    listed = "stages:\n  - {stage: train, data: {sources: [{kind: python-stdlib}]}}\n"
    line, _ = early(text=listed)
    placed = next(each for each in problems(line, line, {}) if each.where == "stages.0.data.sources.0.kind")
    assert (placed.template, placed.fields, placed.fix) == (problem.template, problem.fields, problem.fix)


@pytest.fixture
def early(tmp_path):
    """The steps of a recipe with these overrides, and how to place a problem."""

    def make(*overrides: str, text: str = ""):
        path = tmp_path / "early.yaml"
        path.write_text(TEXT + text)
        loaded = load(Recipe, files=[path], overrides=list(overrides), environ={})
        return steps(loaded.value), loaded

    return make


def said(early, *overrides: str, text: str = "") -> list[str]:
    line, loaded = early(*overrides, text=text)
    return [str(loaded.located(problem)) for problem in problems(line, line, {})]


def test_a_good_recipe_has_none(early) -> None:
    assert said(early) == []


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("data.split={train: 0.9, validation: 0, test: 0.1}", "there will be no validation split to measure"),
        ("data.sources=[{kind: files, paths: [/nowhere]}]", "no such file or directory"),
        ("model.init_from=/nowhere", "no such directory"),
        ("plan.rent_on=[h100-sxm, h1000]", "unknown device"),
        ("train.duration=0 steps", "the run is shorter than one update"),
        ("train.duration=63 tok", ""),
        ("train.duration=0 epochs", "the run is shorter than one update (seen 0 epochs, expected"),
        ("evaluate.prompts=['', x]", "an empty prompt cannot be completed"),
        ("serve.demo.prompt=''", "an empty prompt cannot be completed"),
    ],
)
def test_each_is_named_before_anything_runs(early, override, expected) -> None:
    key = override.partition("=")[0]
    lines = said(early, override)
    if not expected:
        assert lines == [], "63 tokens round to one update of 64"
        return
    (line,) = lines
    assert expected in line
    assert key.split(".")[0] in line


def test_a_device_that_torch_does_not_see_is_named_where_the_run_will_be(early, monkeypatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert said(early, "train.exec.device=cpu") == []
    (problem_line,) = said(early, "train.exec.device=cuda")
    assert "train.exec.device: no CUDA device here" in problem_line
    line, _ = early("train.exec.device=cuda")
    assert problems(line, line, {}, load_torch=False) == (), "who plans for another machine does not run here"


def test_a_task_that_cannot_be_made_is_refused_before_anything_runs(early) -> None:
    (line,) = said(early, "task.name=fixtures.plugged_task:BROKEN")
    assert "task.name: this is no task (seen textwrap:dedent" in line and "expected a function of (" in line


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("model.family=os.path:join", r"model\.family: this is no family \(seen os\.path:join"),
        ("task.name=textwrap:dedent", r"task\.name: this is no task \(seen textwrap:dedent, a function of .*TaskKind"),
        ("task.name=textwrap:indentation", r"task\.name: cannot find task \(seen 'textwrap:indentation'"),
        (
            "train.optimizer.name=os.path:join",
            r"train\.optimizer\.name: this is no optimizer \(seen os\.path:j",
        ),
        ("train.schedule.name=textwrap:dedent", r"train\.schedule\.name: this is no schedule \(seen textwrap:dedent"),
        ("export.formats=[huggingface, 'textwrap:dedent']", r"export\.formats\.1: this is no exporter \(seen textwrap"),
        ("serve.engine=textwrap:dedent", r"serve\.engine: this is no engine \(seen textwrap:dedent"),
        ("data.clean.filters=['math:pi']", r"data\.clean\.filters\.0: this is no filter \(seen math:pi, an object of"),
        ("data.clean.filters=['no_such_module:x']", r"data\.clean\.filters\.0: cannot import filter"),
    ],
)
def test_a_plug_in_that_is_none_is_refused_with_the_recipe(early, override, what) -> None:
    with pytest.raises(RecipeErrors, match=what):
        early(override)


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["evaluate.prompts=[a]", "evaluate.max_new_tokens=800"], "evaluate.max_new_tokens: no answer is so long"),
        (["serve.demo={prompt: a, max_tokens: 8000}"], "serve.demo.max_tokens: no answer is so long"),
        (["evaluate.prompts=['']"], "write a text, or take it out"),
        (["train.duration=0 tok"], "(seen 0 tok, expected"),
    ],
)
def test_what_no_context_holds_and_no_run_does_is_said_in_words_that_fit(early, overrides, line) -> None:
    (problem,) = said(early, *overrides)
    assert line in problem


@pytest.mark.parametrize("name", ["classify", "fixtures.plugged_task:SHAPES"])
def test_a_task_that_writes_no_text_cannot_be_served(early, name) -> None:
    task = f"task={{name: '{name}', labels: [a, b]}}"
    sources = f"data.sources=[{{kind: jsonl, paths: [{__file__}], label_key: label}}]"
    lines = said(early, task, sources, text="stages: [{stage: serve}]")
    assert sum(f"task.name: this task writes no text that could be served (seen {name})" in line for line in lines) == 1


def test_a_bundle_that_no_server_reads_cannot_be_served(early) -> None:
    pair = "contract.additions.exporters:Pair"
    (line,) = said(early, f"export.formats=['{pair}']")
    assert f"export.formats: no bundle that can be served (seen {pair}, expected huggingface among them" in line
    assert said(early, f"export.formats=['{pair}', huggingface]") == []
    assert said(early, f"export.formats=['{pair}']", text="stages: [{stage: export}]") == []


def test_a_completion_that_fits_and_the_default_are_taken(early) -> None:
    assert said(early, "evaluate.prompts=[a]", "serve.demo={prompt: a}") == []
    assert said(early, "evaluate.prompts=[a]", "evaluate.max_new_tokens=31") == []


@pytest.mark.parametrize("call", [runner.run, runner.find])
def test_a_single_stage_names_the_key_of_a_missing_corpus_and_writes_nothing(early, tmp_path, call) -> None:
    line, _ = early("data.sources=[{kind: files, paths: [/nowhere]}]")
    with pytest.raises(DataError) as caught:
        call(line[0].recipe, root=tmp_path / "runs", upto="data")
    assert caught.value.where == "data.sources.0.paths.0"
    assert not (tmp_path / "runs").exists()


def test_the_advice_about_splits_is_legal(early) -> None:
    (line,) = said(early, "data.split={train: 0.9, validation: 0, test: 0.1}")
    assert "write evaluate.splits: [test]" in line
    assert said(early, "data.split={train: 0.9, validation: 0, test: 0.1}", "evaluate.splits=[test]") == []
    lines = said(early, "data.split={train: 1, validation: 0, test: 0}")
    assert all("write evaluate.splits: [train]" in line for line in lines)
    assert said(early, "data.split={train: 1, validation: 0, test: 0}", "evaluate.splits=[train]") == []


def test_all_come_at_once_with_their_lines(early, tmp_path) -> None:
    text = "plan: {rent_on: [h1000]}\nevaluate:\n  prompts:\n    - fine\n    - ''\n"
    lines = said(early, "train.duration=0 steps", text=text)
    places = {line.split(": ")[0] for line in lines}
    assert places == {f"{tmp_path}/early.yaml:7:18", f"{tmp_path}/early.yaml:11:7", "override train.duration"}


def test_a_problem_of_a_step_is_placed_at_the_step(early, tmp_path) -> None:
    text = (
        "stages:\n  - {name: base, stage: train}\n  - {name: b, stage: train, from: base, train: {duration: 0 steps}}\n"
    )
    (line,) = said(early, text=text)
    assert line.startswith(f"{tmp_path}/early.yaml:9:49: stages.1.train.duration: the run is shorter than one update")


def test_a_step_that_cannot_begin_with_its_base_is_named_at_its_line(early, tmp_path) -> None:
    text = "stages:\n  - {name: base, stage: train}\n  - {name: b, stage: train, from: base, model: {width: 128}}\n"
    (line,) = said(early, text=text)
    assert line.startswith(f"{tmp_path}/early.yaml:9:49: stages.1.model.width: the base has width 64, this step asks")
    assert said(early, text=text.replace("{width: 128}", "{width: 64}")) == []


def test_the_shape_of_a_base_elsewhere_is_read_from_its_folder(early, tmp_path) -> None:
    spec = early()[1].value.model_spec(vocabulary=300)
    wider = {"model.json": json.dumps(to_json(replace(spec, context_tokens=64))).encode()}
    base = make_artifact(tmp_path / "other", "train", wider)
    text = f"stages:\n  - {{name: b, stage: train, from: {base.path}}}\n"
    lines = said(early, text=text)
    assert [line for line in lines if "the base has context_tokens 64, this step asks for 32" in line] == lines[:1]


def test_prompts_are_counted_once_a_tokenizer_is_there(early, tmp_path) -> None:
    dataset = make_dataset(tmp_path, {"train": ["some words"], "validation": ["some"], "test": ["words"]})
    line, _ = early("evaluate.prompts=[zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz, zzz]")
    assert problems(line, line, {}) == ()
    (problem,) = problems(line, line, {"data": dataset})
    assert problem.where == "evaluate.prompts.0" and "has 32 tokens, and the context of 32" in problem.what


def test_a_pretrained_tokenizer_is_known_from_the_start(early, tmp_path) -> None:
    dataset = make_dataset(tmp_path, {"train": ["some words"], "validation": ["some"], "test": ["words"]})
    path = dataset.path / "tokenizer.json"
    (line,) = said(early, f"data.tokenizer={{kind: pretrained, path: {path}}}", f"serve.demo.prompt={'z' * 40}")
    assert "has 40 tokens" in line


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"version": "1.0", "model": {', b"\xff\x00", b"kind: bpe", b'{"version": "9"}']
)
def test_a_pretrained_tokenizer_that_does_not_parse_is_named_once(early, tmp_path, content) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    line, _ = early(f"data.tokenizer={{kind: pretrained, path: {path}}}", "evaluate.prompts=[a, b]")
    (problem,) = problems(line, line, {})
    assert (problem.where, problem.what, problem.exit_code) == ("data.tokenizer.path", "cannot read the tokenizer", 4)
    assert problem.seen is not None and problem.seen.startswith(f"{path}: ")


def test_one_problem_keeps_its_exit_code_and_several_of_a_kind_share_it(early) -> None:
    line, _ = early("data.sources=[{kind: files, paths: [/nowhere]}]")
    with pytest.raises(DataError):
        check(line, line, {})
    line, _ = early("data.sources=[{kind: files, paths: [/nowhere, /neither]}]")
    with pytest.raises(RecipeErrors) as caught:
        check(line, line, {})
    assert caught.value.exit_code == DataError.exit_code
    line, _ = early("data.sources=[{kind: files, paths: [/nowhere]}]", "train.duration=0 steps")
    with pytest.raises(RecipeErrors) as caught:
        check(line, line, {})
    assert caught.value.exit_code == RecipeError.exit_code


def test_run_checks_before_the_first_stage_and_not_where_all_is_there(early, tmp_path, monkeypatch) -> None:
    ran: list[str] = []

    def load_stage(reference, kind):
        name = reference.split(".")[2].partition(":")[0]

        def stage(context):
            ran.append(name)
            return StageResult(summary={"precision": "fp32"})

        return stage

    monkeypatch.setattr(runner, "load", load_stage)
    monkeypatch.setattr("trainwright.hardware.machine.facts.machine_digest", lambda: "0" * 64)
    line, _ = early("data.sources=[{kind: files, paths: [/nowhere]}]")
    with pytest.raises(DataError, match="no such file"):
        runner.run(line[0].recipe, root=tmp_path / "runs")
    assert ran == [], "not even the machine was measured"


def test_what_passed_is_asked_again_once_its_tokenizer_or_its_dataset_is_there(early, tmp_path, monkeypatch) -> None:
    asked: list[tuple[str, bool]] = []

    def problems_of(step, done):
        asked.append((step.name, "data" in done))
        return iter(())

    monkeypatch.setattr(preflight, "dataset_problems", problems_of)
    dataset = make_dataset(tmp_path, {"train": ["some words"], "validation": ["some"], "test": ["words"]})
    line, _ = early()
    passed: set[preflight.CheckedStep] = set()
    measured = make_artifact(tmp_path / "other", "doctor", {})
    for done in ({}, {"doctor": measured}, {"data": dataset}, {"data": dataset}):
        check(line, line, done, passed=passed)
    assert asked == [("plan", False), ("train", False), ("train", True)]


def test_a_problem_is_named_each_time(early) -> None:
    line, _ = early("train.duration=0 steps")
    passed: set[preflight.CheckedStep] = set()
    for _ in range(2):
        with pytest.raises(RecipeError, match="shorter than one update"):
            check(line, line, {}, passed=passed)


def test_the_checks_bring_neither_torch_nor_tokenizers() -> None:
    program = (
        "import sys; from trainwright.core.registry import load; from trainwright.pipeline.graph import STAGES;"
        "[load(s.check, kind='check') for s in STAGES.values() if s.check];"
        "sys.exit(', '.join({'torch', 'tokenizers'} & set(sys.modules)) or None)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_context_of_an_answer_is_that_of_the_training_in_the_list(early) -> None:
    trained = "stages:\n  - {stage: train, model: {context_tokens: %d}}\n  - {stage: serve}\n"
    listed = "serve: {demo: {prompt: a, max_tokens: 40}}\n" + trained
    assert said(early, text=listed % 64) == []
    (problem,) = said(early, "model.context_tokens=64", text=listed % 32)
    assert "serve.demo.max_tokens" in problem
    assert "(seen 40, expected below model.context_tokens (32))" in problem


def test_a_workspace_in_the_corpus_is_refused_under_its_key_and_made_nowhere(early, tmp_path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.txt").write_text("text")
    source = f"data.sources=[{{kind: files, paths: ['{corpus}']}}]"
    _, loaded = early(source)
    with pytest.raises(RecipeError, match=r"^data\.sources\.0\.paths\.0: the workspace lies inside the corpus"):
        runner.run(loaded.value, root=corpus / "runs" / "early")
    assert [path.name for path in corpus.iterdir()] == ["a.txt"]
    # A step of its own that reads such a corpus is named.
    listed = f"stages:\n  - {{stage: data, data: {{sources: [{{kind: files, paths: ['{corpus}']}}]}}}}\n"
    _, loaded = early(text=listed)
    with pytest.raises(RecipeError, match=r"^stages\.0\.data\.sources\.0\.paths\.0: the workspace lies inside"):
        runner.run(loaded.value, root=corpus)
