"""The table of stages: in order, complete, and without torch until a stage runs."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fixtures.planned_recipe import TEXT, planned_recipe
from trainwright.artifact.model_folder import MODEL_FILES
from trainwright.core.config.load import load as load_recipe
from trainwright.core.errors import DataError, RecipeError, RecipeErrors
from trainwright.core.registry import load
from trainwright.pipeline.graph import STAGES, maker, upstream
from trainwright.pipeline.runner import run
from trainwright.pipeline.steps import steps
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.base import Section
from trainwright.stages.export.card import model_card
from trainwright.testing.artifacts import make_artifact


def test_every_stage_comes_after_what_it_needs() -> None:
    made: set[str] = set()
    for stage in STAGES.values():
        assert {role for role, need in stage.needs.items() if role == need.kind} <= made, stage.name
        made.add(stage.makes)


def test_no_kind_has_two_makers() -> None:
    assert [maker(stage.makes) for stage in STAGES.values()] == list(STAGES.values())


@pytest.mark.parametrize("name", list(STAGES))
def test_every_stage_has_its_code(name) -> None:
    assert callable(load(STAGES[name].run, kind="stage"))


def test_upstream_is_what_is_needed_in_order(tmp_path) -> None:
    line = steps(planned_recipe(tmp_path))
    assert [step.name for step in upstream(line, "train")] == ["doctor", "plan", "data", "train"]
    assert [step.name for step in upstream(line, "data")] == ["data"]
    with pytest.raises(RecipeError, match="no such step .seen 'trian', .*; did you mean 'train'"):
        upstream(line, "trian")


def test_a_plan_is_made_again_when_the_split_changes(tmp_path) -> None:
    identity, changed = STAGES["plan"].identity, ("data.split.train=0.8", "data.split.test=0.05")
    assert identity(planned_recipe(tmp_path), {}) != identity(planned_recipe(tmp_path, *changed), {})


class Reads:
    """A recipe that notes which of its sections are read."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.sections = recipe, set[str]()

    def identity(self, section: str) -> dict[str, Any]:
        self.sections.add(section)
        return self.recipe.identity(section)

    def __getattr__(self, name: str) -> Any:
        if isinstance(getattr(self.recipe, name), Section):
            self.sections.add(name)
        return getattr(self.recipe, name)


@pytest.mark.parametrize("name", ["doctor", "plan", "data", "train"])
def test_what_is_made_for_a_step_is_told_apart_by_every_section_of_its_identity(tmp_path, name) -> None:
    """``_made`` takes an equal step by its ``sections``, and a step that changes one of them gets its own."""
    reads, plan = Reads(planned_recipe(tmp_path)), SimpleNamespace(summary={"precision": "fp32"})
    STAGES[name].identity(cast(Recipe, reads), cast(Any, {"plan": plan}))
    assert reads.sections <= set(STAGES[name].sections)


def checkpoint(**summary: float) -> Any:
    return SimpleNamespace(summary={"steps": 5, "tokens": 640} | summary, manifest=SimpleNamespace(inputs={}))


@pytest.mark.parametrize(
    "override", ["data.dedup=none", "data.split={train: 0.8, test: 0.05}", "data.sources=[{kind: files, paths: [.]}]"]
)
def test_what_the_card_says_of_the_data_is_a_part_of_the_export(tmp_path, override) -> None:
    recipe, changed, trained = planned_recipe(tmp_path), planned_recipe(tmp_path, override), checkpoint()
    words = {"summary": trained.summary, "pretrained": False, "dtype": "fp32"}
    spec = recipe.model_spec(vocabulary=1024)
    assert model_card(recipe, spec, **words) != model_card(changed, spec, **words)
    identity, inputs = STAGES["export"].identity, {"checkpoint": trained}
    assert identity(recipe, inputs) != identity(changed, inputs)


@pytest.mark.parametrize("name", ["tokens", "steps", "validation_loss", "bits_per_byte"])
def test_what_the_card_says_of_training_is_a_part_of_the_export(tmp_path, name) -> None:
    recipe, identity = planned_recipe(tmp_path), STAGES["export"].identity
    spec, other = recipe.model_spec(vocabulary=1024), checkpoint(**{name: 9})
    cards = {
        model_card(recipe, spec, summary=each.summary, pretrained=False, dtype="fp32") for each in (checkpoint(), other)
    }
    assert len(cards) == 2
    assert identity(recipe, {"checkpoint": checkpoint()}) != identity(recipe, {"checkpoint": other})


PLUG_IN = """\
from dataclasses import replace
from trainwright.spec.families import llama
FAMILY = replace(llama.FAMILY, ffn_width=lambda width: 2 * width)
"""


@pytest.mark.parametrize("name", ["plan", "train", "evaluate", "export", "serve"])
def test_a_family_from_outside_is_a_part_of_the_address_by_its_code(tmp_path, monkeypatch, name) -> None:
    module = tmp_path / f"family_for_{name}.py"
    module.write_text(PLUG_IN)
    monkeypatch.syspath_prepend(str(tmp_path))
    recipe = planned_recipe(tmp_path, f"model.family={module.stem}:FAMILY")
    before = STAGES[name].outside(recipe, tmp_path)
    module.write_text(PLUG_IN.replace("2 * width", "8 * width"))
    assert STAGES[name].outside(recipe, tmp_path) != before


def test_a_plan_has_a_task_from_outside_in_its_address_by_its_code(tmp_path, monkeypatch) -> None:
    module = tmp_path / "task_for_plan.py"
    kind = (
        "from trainwright.spec.sections.task import TaskKind\nTASK = TaskKind(make='task_for_plan:make', reads='%s')\n"
    )
    module.write_text(kind % "windows")
    monkeypatch.syspath_prepend(str(tmp_path))
    recipe = planned_recipe(tmp_path, "task.name=task_for_plan:TASK")
    before = STAGES["plan"].outside(recipe, tmp_path)
    module.write_text(kind % "documents")
    assert STAGES["plan"].outside(recipe, tmp_path) != before


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Writes modules that can be imported until the test ends."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(**texts: str) -> None:
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text)

    before = set(sys.modules)
    yield write
    for name in sys.modules.keys() - before:
        if getattr(sys.modules[name], "__file__", None) == str(tmp_path / f"{name}.py"):
            del sys.modules[name]


@pytest.mark.parametrize("changed", ["fam_net", "fam_form"])
@pytest.mark.parametrize("name", ["train", "evaluate", "export", "serve"])
def test_the_code_that_a_family_from_outside_names_is_a_part_of_the_address(tmp_path, modules, name, changed) -> None:
    declared = PLUG_IN.replace("ffn_width=", "network='fam_net:Net', huggingface='fam_form', ffn_width=")
    modules(fam=declared, fam_net="class Net: ...\n", fam_form="def to_config(spec): return {}\n")
    recipe = planned_recipe(tmp_path, "model.family=fam:FAMILY")
    before = STAGES[name].outside(recipe, tmp_path)
    assert STAGES[name].outside(recipe, tmp_path) == before
    modules(**{changed: "LIMIT = 4\n"})
    assert STAGES[name].outside(recipe, tmp_path) != before


@pytest.mark.parametrize("name", ["plan", "train", "evaluate"])
def test_what_makes_a_task_from_outside_is_a_part_of_the_address(tmp_path, modules, name) -> None:
    kind = "from trainwright.spec.sections.task import TaskKind\nTASK = TaskKind(make='deep_task:make')\n"
    modules(kinds=kind, deep_task="def make(recipe, dataset): return None\n")
    recipe = planned_recipe(tmp_path, "task.name=kinds:TASK")
    before = STAGES[name].outside(recipe, tmp_path)
    modules(deep_task="def make(recipe, dataset): return 1\n")
    assert STAGES[name].outside(recipe, tmp_path) != before


def test_code_that_is_not_there_is_reported_under_the_key_of_the_plug_in(tmp_path, modules) -> None:
    modules(fam=PLUG_IN.replace("ffn_width=", "network='nowhere_at_all:Net', ffn_width="))
    recipe = planned_recipe(tmp_path, "model.family=fam:FAMILY")
    with pytest.raises(RecipeError, match=r"^model\.family: cannot find .* \(seen 'nowhere_at_all:Net'\); no module"):
        STAGES["train"].outside(recipe, tmp_path)


STEPS = """\
stages:
  - {name: usual, stage: data}
  - name: strict
    stage: data
    data: {clean: {filters: ["good:keep", %s]}}
"""


@pytest.mark.parametrize("written", ["'bad:keep'", "{name: 'bad:keep'}"])
def test_what_fails_in_a_step_s_own_keys_is_reported_at_their_line(tmp_path, modules, written) -> None:
    modules(good="def keep(text): return None\n", bad="def keep(text): return {}[0]\n")
    (tmp_path / "corpus").mkdir()
    for number in range(80):
        (tmp_path / "corpus" / f"{number}.txt").write_text(f"{number} words of a text")
    path, root = tmp_path / "strict.yaml", tmp_path / "runs"
    path.write_text(TEXT + STEPS % written)
    corpus = f"data.sources=[{{kind: files, paths: [{tmp_path}/corpus]}}]"
    shared = ["data.clean.filters=['good:keep']", "data.tokenizer.vocabulary=270", corpus]
    loaded = load_recipe(Recipe, files=[path], overrides=shared, environ={})
    with pytest.raises(RecipeError) as caught:
        run(loaded.value, root=root)
    line = f"{path}:9:43: stages.1.data.clean.filters.1: the plug-in bad:keep failed on a text"
    assert str(loaded.located(caught.value)).startswith(line)
    assert len(list(root.glob("data-*/manifest.json"))) == 1, "the step before it is there"


def test_each_of_several_problems_is_placed_by_itself_and_once(tmp_path) -> None:
    (step,) = steps(planned_recipe(tmp_path, "stages=[{stage: data, data: {clean: {filters: ['textwrap:dedent']}}}]"))
    keys = ("data.clean.filters.0.name", "data.clean.filters.1", "data.clean", "data.dedup", None)
    both = step.placed(RecipeErrors(RecipeError("no", where=key) for key in keys))
    placed = ["stages.0.data.clean.filters.0.name", "data.clean.filters.1", "stages.0.data.clean", "data.dedup", None]
    assert [each.where for each in both.problems] == placed
    assert [each.where for each in step.placed(both).problems] == placed


def test_the_pipeline_itself_brings_no_torch() -> None:
    program = "import sys, trainwright.pipeline.runner; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", ["adapters.json", "chat_template.jinja", "tokenizer_config.json"])
def test_what_is_made_of_a_model_depends_on_its_adapters_and_template(tmp_path, name) -> None:
    files = {"model.json": b"{}", "model.safetensors": b"w", "tokenizer.json": b"{}", "events.jsonl": b"1"}
    one, other, same = (
        make_artifact(tmp_path / folder, "train", files | {name: content, "events.jsonl": content})
        for folder, content in (("one", b"1"), ("other", b"2"), ("same", b"1"))
    )
    for stage, role in (("train", "base"), ("evaluate", "checkpoint"), ("export", "checkpoint")):
        patterns = STAGES[stage].needs[role].files
        assert one.digest(patterns) != other.digest(patterns)
        assert one.digest(patterns) == same.digest(patterns)
    (other.path / name).write_bytes(b"3")
    with pytest.raises(DataError, match=name):
        other.verify(MODEL_FILES)


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer_config.json"])
def test_what_is_made_of_chats_depends_on_their_template(tmp_path, name) -> None:
    one, other = (make_artifact(tmp_path / text, "data", {"dataset.json": b"{}", name: text.encode()}) for text in "ab")
    for stage in ("train", "evaluate"):
        patterns = STAGES[stage].needs["dataset"].files
        assert one.digest(patterns) != other.digest(patterns)
