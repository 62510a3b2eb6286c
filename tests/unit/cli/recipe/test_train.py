"""Training needs the machine, the plan and the dataset; what comes after it is not made."""

from __future__ import annotations

import json

import pytest

from trainwright.artifact.stage import StageResult
from trainwright.cli.main import main
from trainwright.pipeline import graph, observing

DATASET = json.dumps({"vocabulary": 300, "splits": {"train": {"tokens": 9000, "documents": 9}}})


@pytest.fixture
def ran(monkeypatch):
    """Every stage of the real graph, recorded instead of carried out; none looks at this machine or at a corpus."""
    names = []

    def stand_in(reference, kind):
        name = reference.split(".")[2].partition(":")[0]

        def stage(context):
            names.append(name)
            (context.out / "dataset.json").write_text(DATASET)
            return StageResult(summary={"precision": "fp32", "lr": context.recipe.train.optimizer.lr})

        facts = {"outside_digests": {"corpus": "0" * 64}, "corpus_bytes_here": 9000, "corpus_bytes": 9000}
        fact = facts.get(reference.partition(":")[2], "0" * 64)
        return stage if kind == "stage" else lambda *args, **kwargs: fact

    monkeypatch.setattr(graph, "load", stand_in)
    monkeypatch.setattr("trainwright.pipeline.runner.load", stand_in)
    return names


def test_stops_at_the_trained_model(ran, recipe, tmp_path, capsys):
    assert main(["train", recipe, "train.optimizer.lr=2e-3", "--workspace", str(tmp_path / "runs"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "trainwright.train/1"
    assert ran == list(document["artifacts"]) == ["doctor", "plan", "data", "train"]
    assert document["artifacts"]["train"]["summary"]["lr"] == 0.002


def test_a_second_time_trains_nothing(ran, recipe, capsys):
    assert main(["train", recipe]) == 0
    assert main(["train", recipe]) == 0
    assert len(ran) == 4
    assert "train: cached" in capsys.readouterr().err


def test_another_rate_keeps_the_dataset(ran, recipe):
    main(["train", recipe])
    main(["train", recipe, "train.optimizer.lr=2e-3"])
    assert ran[4:] == ["plan", "train"]


def test_a_dry_run_counts_one_step_and_leaves_nothing(recipe, tmp_path, capsys):
    root = tmp_path / "kept"
    arguments = [
        recipe,
        "train.exec.layout.dp_shard=8",
        "--dry-run",
        "--on",
        "8xh100-sxm",
        "--workspace",
        str(root),
        "--json",
    ]
    assert main(["train", *arguments]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "trainwright.train/1"
    counted = document["dry_run"]
    (rank,) = counted["ranks"]
    assert (counted["device"], counted["parallel"]["dp_shard"], rank["rank"], rank["alike"]) == ("h100-sxm", 8, 0, 8)
    assert rank["shares"]["blocks.0.attention.query.weight"] == {"whole": [64, 64], "local": [8, 64]}
    assert rank["sent"] and {each["axis"] for each in rank["sent"]} == {"dp_shard"}
    assert not root.exists()


def test_another_cluster_is_for_a_dry_run(recipe, capsys):
    assert main(["train", recipe, "--on", "8xh100-sxm"]) == 2
    assert "add --dry-run" in capsys.readouterr().err


def test_a_dry_run_keeps_no_step(recipe, capsys):
    assert main(["train", recipe, "--dry-run", "--break-at", "3"]) == 2
    assert "--break-at: a dry run makes no update (seen 3)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [(("train", "--break-at", "999"), "--break-at"), (("profile", "--steps", "28-35"), "--steps")],
)
def test_a_step_beyond_the_run_is_refused_before_any_work(ran, recipe, tmp_path, capsys, arguments, seen):
    command, *options = arguments
    root = tmp_path / "kept"
    assert main([command, recipe, "train.duration=30 steps", *options, "--workspace", str(root)]) == 2
    said = capsys.readouterr().err
    number = options[1].rpartition("-")[2]
    assert f"{seen}: the run ends before this step (seen {number}, expected at most 30)" in said
    assert not ran
    assert not root.exists()


def test_a_kept_step_says_what_it_computed_and_how_it_is_repeated(recipe, tmp_path, monkeypatch, capsys):
    asked = []

    def look(recipe, **arguments):
        asked.append(arguments)
        (tmp_path / "computed.json").write_text('{"loss": 1.25, "grad_norm": 0.5, "share": 1.0}')
        return tmp_path

    monkeypatch.setattr(observing, "look", look)
    assert main(["train", recipe, "--break-at", "12"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "update 12: loss 1.25, gradient norm 0.5\n"
    assert f"python {tmp_path / 'repeat.py'}" in printed.err.replace("\n", "")
    assert (asked[0]["into"], asked[0]["options"]) == ("step-12", {"step": 12})
    assert main(["train", recipe, "--break-at", "0"]) == 2
    assert "--break-at" in capsys.readouterr().err and len(asked) == 1
