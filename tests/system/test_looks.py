"""Two ranks: what each of them used, a profile of some steps, and a step that is repeated; the run stays as it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

RANKS = ("train.exec.layout.dp_shard=2", "train.duration=30 steps", "train.exec.log_every_steps=1")


@pytest.fixture(scope="module")
def trained(make_project):
    """A finished training of two ranks, with its files as they were then."""
    project = make_project()
    done = project.call("train", *RANKS)
    assert done.returncode == 0, done.stderr
    folder = project.artifact("train")
    return project, {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def events_of(project) -> list[dict]:
    lines = (project.artifact("train") / "events.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def untouched(trained) -> bool:
    project, before = trained
    return before == {path: path.stat().st_mtime_ns for path in project.artifact("train").rglob("*")}


def test_each_rank_says_what_it_used_and_the_audit_shows_it(trained) -> None:
    project, _ = trained
    summary = json.loads((project.artifact("train") / "summary.json").read_text())
    assert [rank["rank"] for rank in summary["ranks"]] == [0, 1]
    for rank in summary["ranks"]:
        assert rank["steps"] == 30
        assert all(rank["phases"][name] > 0 for name in ("forward", "backward", "communicate", "update"))
        assert rank["memory"]["weights"] > 0
    assert summary["goodput"]["steps_s"] == pytest.approx(30 * sum(summary["step_phases"].values()))
    assert 0 < summary["goodput"]["share"] < 1
    names = {event["name"] for event in events_of(project)}
    assert {"train/rank_spread", "train/slowest_rank", "train/goodput", "train/start_s"} <= names
    rows = project.json("audit", *RANKS)["audit"]["rows"]
    (waiting,) = [row for row in rows if (row["group"], row["quantity"]) == ("step", "communicate")]
    least, median, most = waiting["ranks"]
    assert 0 < least <= median <= most


def test_a_profile_has_a_lane_for_each_rank(trained) -> None:
    project, _ = trained
    done = project.call("profile", *RANKS, "--steps", "28-29", "--json")
    assert done.returncode == 0, done.stderr
    assert ".cpp:" not in done.stderr, "torch's own lines"
    answer = json.loads(done.stdout)
    profile = answer["profile"]
    assert [len(rank["steps"]) for rank in profile["ranks"]] == [2, 2]
    assert all("communicate" in {each["phase"] for each in rank["steps"][0]} for rank in profile["ranks"])
    picture = Path(answer["picture"]).read_text()
    assert "rank 0" in picture and "rank 1" in picture
    assert untouched(trained)


def test_a_kept_step_is_repeated_to_the_bit(trained) -> None:
    project, _ = trained
    kept = project.json("train", *RANKS, "--break-at", "17")["kept"]
    logged = {event["name"]: event["value"] for event in events_of(project) if event.get("step") == 17}
    assert (kept["loss"], kept["grad_norm"]) == (logged["train/loss"], logged["train/grad_norm"])
    done = subprocess.run([sys.executable, kept["script"]], capture_output=True, text=True, check=True, timeout=600)
    expected = f"update 17: loss {logged['train/loss']!r}, gradient norm {logged['train/grad_norm']!r}"
    assert done.stdout.splitlines() == [expected]
    assert untouched(trained)


def test_a_step_beyond_the_run_is_one_line(trained) -> None:
    project, _ = trained
    done = project.call("train", *RANKS, "--break-at", "31")
    assert done.returncode == 2
    assert "the run ends before this step (seen 31, expected at most 30)" in done.stderr


def test_the_place_that_checkpoints_go_to_stays_as_it_is(make_project, tmp_path) -> None:
    """The same step is kept twice: the run's place has what the run put there."""
    project, place = make_project(), tmp_path / "place"
    how = ("train.duration=6 steps", "train.exec.checkpoint_every=1 ms", f"train.exec.checkpoint_to={place}")
    assert project.call("train", *how).returncode == 0
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
    assert before
    kept = [project.json("train", *how, "--break-at", "4")["kept"] for _ in range(2)]
    assert kept[0]["loss"] == kept[1]["loss"]
    assert project.call("profile", *how, "--steps", "4-5").returncode == 0
    assert before == {path: path.stat().st_mtime_ns for path in place.rglob("*")}
