import json

import pytest

from fixtures.finished import finished
from trainwright import api
from trainwright.cli import main as cli
from trainwright.core.errors import DataError, MachineError, RecipeError, RecipeErrors
from trainwright.pipeline import planning
from trainwright.pipeline.planning import question_about, training_of
from trainwright.planner.plan.assumptions import recommended
from trainwright.planner.plan.rankable import rankable
from trainwright.planner.plan.scenario import scenario_of
from trainwright.testing.artifacts import make_artifact
from trainwright.testing.machine import fake_machine

RECIPE = """\
name: planned
model: {layers: 2, width: 128, heads: 2, context_tokens: 128}
data: {sources: [{kind: python-stdlib}], tokenizer: {vocabulary: 1024}}
train:
  {sequence_tokens: 128, batch_tokens: 1024, duration: 30 steps, validation: {every_steps: 7}, document_masking: true}
"""
SPLITS = {"train": {"tokens": 9000, "documents": 12}, "validation": {"tokens": 500, "documents": 2}}


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """A recipe beside its dataset of 9,000 tokens, on the fake machine; called with what is set over it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(RECIPE)
    described = json.dumps({"vocabulary": 320, "splits": SPLITS}).encode()
    dataset = make_artifact(tmp_path / "kept", "data", {"dataset.json": described})
    monkeypatch.setattr(planning, "left_here", lambda stage, recipe, inputs, *, root: {"data": dataset}[stage.name])
    monkeypatch.setattr(planning, "machine_of", lambda recipe, root: fake_machine())
    return lambda *overrides: api.load_recipe("r.yaml", overrides=overrides)


def question(recipe, *, on, root, **options):
    training, _ = training_of(recipe, root=root, step=None)
    return question_about(training, on=on, root=root, **options)


def printed(capsys, *arguments):
    assert cli.main(["plan", "r.yaml", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["plan"]


def numbers(plan):
    """What a user compares of a printed plan."""
    work, estimate = plan["workload"], plan["estimate"]
    sizes = (plan["model"]["vocabulary"], work["steps"], work["precision"], work["validations"])
    results = (sum(estimate["memory"].values()), *sorted(estimate["seconds"].values()))
    return (*sizes, *results, plan["parallel"]["micro_batch_sequences"])


# An epoch of 9,000 tokens is 69 windows of 128: two are 17.25 steps. 2,500 tokens are 2.44 steps, 3,000 are 2.93.
@pytest.mark.parametrize(
    ("duration", "steps"), [("30 steps", 30), ("2 epochs", 17), ("2500 tok", 2), ("3000 tok", 3), ("0.5 epochs", 4)]
)
def test_every_door_has_one_plan(asked, capsys, duration, steps):
    recipe, length = asked(f"train.duration={duration}"), f"train.duration={duration}"
    here = printed(capsys, length)
    assert here["workload"]["steps"] == steps and here["model"]["vocabulary"] == 320
    assert numbers(printed(capsys, length, "--on", "here")) == numbers(here)
    # Something asked for that the plan chose by itself changes nothing, and may be explained.
    layout = f"micro_batch={here['parallel']['micro_batch_sequences']}"
    assert numbers(printed(capsys, length, "--on", "here", "--layout", layout)) == numbers(here)
    there = printed(capsys, length, "--on", "rtx-4090")
    assert there["workload"]["steps"] == steps and there["model"]["vocabulary"] == 320
    for on, door in ((None, here), ("here", here), ("rtx-4090", there)):
        plan = api.plan(recipe, on=on)
        assert (plan.workload.steps, plan.estimate.memory.total_bytes, plan.estimate.seconds.mid) == (
            steps,
            sum(door["estimate"]["memory"].values()),
            door["estimate"]["seconds"]["mid"],
        )


def test_a_cluster_validates_and_masks_as_the_recipe_says(asked, tmp_path):
    work = scenario_of(question(asked(), on="8xa100-80gb", root=tmp_path)).run.workload
    assert (work.document_masking, work.validation_tokens, work.validations) == (True, 500, 5)
    longer = scenario_of(question(asked(), on="8xa100-80gb", root=tmp_path, tokens=60 * 1024)).run.workload
    assert (longer.steps, longer.validations) == (60, 10)


def test_a_cluster_tunes_as_the_recipe_says(asked, tmp_path):
    recipe = asked("model.init_from=base", "train.method={name: lora, rank: 4, targets: [attention]}")
    ours = api.plan(recipe, on="a100-sxm-80gb", workspace=tmp_path)
    whole = api.plan(asked(), on="a100-sxm-80gb", workspace=tmp_path)
    said = api.plan(asked(), on="a100-sxm-80gb", method="lora", rank=4, targets="attention", workspace=tmp_path)
    assert ours.workload.adapter is not None and ours.workload.adapter.rank == 4
    memory, expected = ours.estimate.memory, said.estimate.memory
    assert (memory.weights, memory.gradients, memory.optimizer) == (
        expected.weights,
        expected.gradients,
        expected.optimizer,
    )
    assert memory.optimizer < whole.estimate.memory.optimizer / 10
    again = api.plan(recipe, on="a100-sxm-80gb", method="full", workspace=tmp_path)
    assert again.workload.adapter is None, "the question's method stands above the recipe's"


def test_how_to_train_is_about_this_machine(asked, tmp_path):
    how = asked("train.exec.micro_batch=2", "train.exec.threads=1", "train.exec.checkpoint_every=9")
    asking = question(how, on="here", root=tmp_path)
    assert asking.layout["micro_batch"] == 2 and asking.here.threads == 1 and asking.here.checkpoint_every_s == 9
    assert question(how, on="here", root=tmp_path, layout={"micro_batch": 4}).layout["micro_batch"] == 4
    assert question(how, on="8xa100-80gb", root=tmp_path).layout == {}
    with pytest.raises(MachineError, match="no CUDA device here"):
        question(asked("train.exec.device=cuda"), on="here", root=tmp_path)


def test_a_question_about_this_machine_reads_it_and_its_dataset_once(asked, tmp_path, monkeypatch):
    read = []
    machine, facts = planning.machine_of, planning.known_facts
    monkeypatch.setattr(planning, "machine_of", lambda *a, **k: read.append("machine") or machine(*a, **k))
    monkeypatch.setattr(planning, "known_facts", lambda *a, **k: read.append("facts") or facts(*a, **k))
    question(asked(), on="here", root=tmp_path)
    assert sorted(read) == ["facts", "machine"]


def test_finished_runs_correct_every_door(asked, capsys, tmp_path):
    before = api.plan(asked()).estimate.seconds.mid
    folder = tmp_path / "runs" / "other"
    folder.mkdir(parents=True)
    (folder / "ledger.jsonl").write_text(finished(tmp_path, slower=1.2) + "\n", encoding="utf-8")
    after = api.plan(asked()).estimate.seconds.mid
    assert after > 1.1 * before
    assert printed(capsys)["estimate"]["seconds"]["mid"] == after
    assert printed(capsys, "--on", "here")["estimate"]["seconds"]["mid"] == after
    layout = {"micro_batch": api.plan(asked()).parallel.micro_batch_sequences}
    asking = ("--on", "here", "--layout", f"micro_batch={layout['micro_batch']}")
    assert printed(capsys, *asking)["estimate"]["seconds"]["mid"] == after
    assert api.plan(asked(), on="here", layout=layout).estimate.seconds.mid == after
    assert printed(capsys, *asking, "--calibrate", str(folder / "ledger.jsonl"))["estimate"]["seconds"]["mid"] == after
    assert printed(capsys, *asking, "--calibrate", "none")["estimate"]["seconds"]["mid"] == before
    assert api.plan(asked(), workspace=tmp_path / "alone").estimate.seconds.mid == before


def test_several_machines_like_this_one_learn_from_its_runs(asked, tmp_path):
    several = {"on": "2x1xhere", "scale_out": "10Gb/s"}
    before = api.plan(asked(), **several).estimate
    folder = tmp_path / "runs" / "other"
    folder.mkdir(parents=True)
    (folder / "ledger.jsonl").write_text(finished(tmp_path, slower=1.2) + "\n", encoding="utf-8")
    after = api.plan(asked(), **several).estimate
    assert 1.05 < before.tokens_per_s / after.tokens_per_s < 1.2
    source = next(each.source for each in after.assumptions if each.name == "measured runs")
    assert source.startswith("calibrated by 1 run of the ledger")
    left_out = api.plan(asked(), **several, stack="pytorch").estimate.assumptions[-1]
    assert (left_out.value, left_out.source) == ("none like this", "1 left out: with software 'trainwright'")


def test_every_door_says_what_stands_in_for_an_optimizer_from_outside(asked, capsys, tmp_path):
    plugged = "train.optimizer.name=contract.additions.optimizers:momentum"
    for on in ((), ("--on", "here"), ("--on", "rtx-4090")):
        entries = printed(capsys, plugged, *on)["estimate"]["assumptions"]
        (entry,) = (each for each in entries if "optimizer" in each["name"])
        assert (entry["value"], entry["source"]) == (
            "as adamw",
            "nobody has measured contract.additions.optimizers:momentum",
        )
    ranked = rankable(question(asked(plugged), on="8xh100-sxm", root=tmp_path), ())
    assert "optimizer_unknown" in {each.key for each in recommended(ranked)}
    chosen = printed(capsys, plugged, "--on", "rtx-4090", "--optimizer", "muon")["estimate"]["assumptions"]
    assert not [each for each in chosen if "optimizer" in each["name"]]


def test_what_is_wrong_anywhere_is_refused_and_what_only_this_machine_lacks_is_not(asked, tmp_path):
    with pytest.raises(RecipeErrors, match="h1000"):
        api.plan(asked("plan.rent_on=[h1000]"))
    with pytest.raises(RecipeErrors, match="h1000"):
        api.plan(asked("plan.rent_on=[h1000]"), on="8xa100-80gb")
    gone = asked("data.sources=[{kind: files, paths: [gone.txt]}]")
    training, lacking = training_of(gone, root=tmp_path, step=None)
    assert training.recipe.train == gone.train and [type(each) for each in lacking] == [DataError]
    with pytest.raises(RecipeError, match="no such step"):
        training_of(asked(), root=tmp_path, step="tunde")


def test_a_layout_is_followed_on_as_many_devices_as_it_has_ranks(asked, capsys, tmp_path):
    asked()
    fixed = ["train.exec.layout.dp_shard=2", "train.exec.layout.tp=2", "train.exec.layout.zero_stage=1"]
    axes = ("dp_replicate", "dp_shard", "tp", "pp", "cp", "zero_stage")
    followed = printed(capsys, *fixed, "train.exec.micro_batch=1", "--on", "4xa100-80gb")["parallel"]
    assert [followed[axis] for axis in axes] == [1, 2, 2, 1, 1, 1] and followed["micro_batch_sequences"] == 1
    here = printed(
        capsys, *fixed, "train.exec.micro_batch=1", "--on", "2x2xhere", "--scale-up", "pcie4", "--scale-out", "10Gb/s"
    )
    assert [here["parallel"][axis] for axis in axes] == [1, 2, 2, 1, 1, 1]
    for elsewhere in (["--on", "2xa100-80gb"], ["--on", "4xa100-80gb", "--layout", "tp=1"]):
        chosen = printed(capsys, *fixed, *elsewhere)["parallel"]
        assert chosen["tp"] == 1
    # Of many clusters that are tried none is the recipe's.
    end = "document_masking: true"
    (tmp_path / "laid out.yaml").write_text(RECIPE.replace(end, f"{end}, exec: {{layout: {{dp_shard: 2, tp: 2}}}}"))
    tried = []
    for name in ("laid out.yaml", "r.yaml"):
        assert cli.main(["recommend", "--model", name, "--have", "4xa100-80gb", "--json"]) == 0
        tried.append(json.loads(capsys.readouterr().out)["options"])
    assert tried[0] == tried[1]


def test_a_layout_that_cannot_run_there_is_named_by_its_key(asked, capsys):
    fixed = ["train.exec.layout.dp_shard=2", "train.exec.micro_batch=3", "--on", "2xa100-80gb"]
    assert asked() and cli.main(["plan", "r.yaml", *fixed]) == 2
    line = capsys.readouterr().err
    assert "train.exec.layout: this layout cannot run" in line and "micro batches of 3" in line
    assert "--layout auto" in line
    assert cli.main(["plan", "r.yaml", *fixed, "--layout", "auto"]) == 0
