"""The whole line, as a user runs it: everything is there, nothing is done twice, changes rerun what follows."""

from __future__ import annotations

import json
import math

import pytest

from trainwright.pipeline.graph import STAGES
from trainwright.planner.evidence.ledger import step_s

pytestmark = pytest.mark.slow

LINE = tuple(name for name, stage in STAGES.items() if stage.usual)
"""What a run makes; other stages are asked for by name."""


def test_every_stage_left_a_complete_artefact(finished) -> None:
    from trainwright.artifact.store import open_artifact

    for name in LINE:
        artifact = open_artifact(finished.artifact(name))
        artifact.verify()
        assert artifact.manifest.stage == name
    assert not list(finished.workspace.glob("*.partial"))


def test_again_is_all_cached(finished) -> None:
    done = finished.call("run")
    assert done.returncode == 0
    for name in LINE:
        assert f"{name}: cached" in done.stderr
    assert "started" not in done.stderr


def test_a_change_of_the_rate_trains_again_and_prepares_no_data(finished, fork) -> None:
    project = fork("changed", ("doctor", "plan", "data", "train"))
    done = project.call("train", "train.optimizer.lr=0.002", "train.duration=10 steps")
    assert done.returncode == 0, done.stderr
    assert "data: cached" in done.stderr
    assert "train: started" in done.stderr


def test_the_model_learned_more_than_the_alphabet(finished) -> None:
    evaluation = json.loads((finished.artifact("evaluate") / "evaluation.json").read_text())
    for split in ("validation", "test"):
        loss = evaluation["splits"][split]["metrics"]["loss"]["value"]
        assert loss < math.log(320) - 2


def test_the_export_loads_elsewhere(finished) -> None:
    import torch
    import transformers

    from trainwright.model.bundle import load_bundle

    directory = finished.artifact("export") / "huggingface"
    theirs = transformers.AutoModelForCausalLM.from_pretrained(directory).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    ours, own_tokenizer = load_bundle(finished.artifact("train"))
    text = "alpha beta gamma (x) = 12"
    ids = tokenizer(text, return_tensors="pt").input_ids
    assert ids[0].tolist() == own_tokenizer.encode(text).ids
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, ours.logits(ours(ids)), atol=1e-4, rtol=0)


def test_the_served_answer_is_kept(finished) -> None:
    answer = json.loads((finished.artifact("serve") / "answer.json").read_text())
    assert answer["response"]["choices"][0]["text"]
    assert answer["response"]["usage"]["completion_tokens"] == 8


def test_json_says_where_everything_is(finished) -> None:
    document = finished.json("run")
    assert document["schema"] == "trainwright.run/1"
    assert list(document["artifacts"]) == list(LINE)
    assert document["artifacts"]["train"]["summary"]["steps"] == 150


def test_a_damaged_dataset_is_named(finished, fork) -> None:
    project = fork("damaged", ("doctor", "plan", "data"))
    shard = next(project.artifact("data").glob("train-*.tokens"))
    data = bytearray(shard.read_bytes())
    data[7] ^= 255
    shard.write_bytes(data)
    done = project.call("train")
    assert done.returncode == 4
    assert str(shard) in done.stderr
    assert "sha256" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_finished_run_calibrates_the_next_plan_of_it(finished, fork) -> None:
    """The same recipe, trained twice: what the ledger says brings the prediction nearer, in a range of its own."""
    project = fork("again", ("doctor", "plan", "data", "train"))
    line = json.loads((finished.workspace / "ledger.jsonl").read_text().splitlines()[-1])
    line["workload"]["steps"] *= 1000  # as if it had gone on so: runs of a moment say nothing of time
    (project.workspace / "ledger.jsonl").write_text(json.dumps(line) + "\n")
    plain, learnt = project.json("plan", "--calibrate", "none")["plan"], project.json("plan")["plan"]
    entries = {entry["name"]: entry for entry in learnt["estimate"]["assumptions"]}
    assert "calibrated by 1 run of the ledger, newest 20" in entries["measured runs"]["source"]
    took = step_s(line["rows"])
    off = [abs(math.log(sum(each["estimate"]["phases"].values()) / took)) for each in (learnt, plain)]
    assert off[0] <= off[1] + 0.02
    done = project.call("audit", "seed=6", "train.duration=40 steps")
    assert done.returncode == 0, done.stderr
    again = {entry["name"]: entry for entry in project.json("plan")["plan"]["estimate"]["assumptions"]}
    assert "calibrated by 2 runs of the ledger" in again["measured runs"]["source"]
    assert learnt["workload"] == plain["workload"] and learnt["parallel"] == plain["parallel"]


def test_a_length_in_epochs_is_planned_on_an_estimate_and_trained_exactly(finished, fork) -> None:
    project = fork("epochs", ("doctor",))
    done = project.call("train", "train.duration=0.5 epochs")
    assert done.returncode == 0, done.stderr
    tokens = json.loads((project.artifact("data") / "report.json").read_text())["splits"]["train"]["tokens"]
    summary = json.loads((project.artifact("train") / "summary.json").read_text())
    assert summary["steps"] == round(tokens / 2 / 128)
    (plan,) = project.workspace.glob("plan-*/plan.json")
    entries = {entry["name"]: entry for entry in json.loads(plan.read_text())["estimate"]["assumptions"]}
    guess = entries["tokens of an epoch"]
    assert guess["origin"] == "default" and guess["source"].startswith("estimated")
    corpus_bytes = sum(path.stat().st_size for path in (project.recipe.parent / "corpus").iterdir())
    tokens = round(0.7 * corpus_bytes / (1 + 0.4 * math.log2(320 / 256)))
    # Of the whole sequences of 32 tokens one is left out, so that epochs begin at different tokens.
    assert guess["value"] == (tokens // 32 - 1) * 32
    counted = project.json("plan", "train.duration=0.5 epochs")["plan"]
    assert counted["workload"]["steps"] == summary["steps"], "the dataset is there: its tokens are counted"


def test_a_flipped_byte_in_the_export_is_no_success(finished, fork) -> None:
    project = fork("flipped", LINE)
    path = project.artifact("export") / "huggingface" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    done = project.call("run")
    assert done.returncode == 4
    assert f"{path}: damaged file: its sha256" in done.stderr
