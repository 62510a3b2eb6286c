"""``audit --published``: what it prints, for people and programs, and every way to ask wrongly."""

from __future__ import annotations

import csv
import json
import struct

import pytest

from fixtures.published import COLLECTED, PLAIN, RUNS, TOTALS
from trainwright.cli.main import main

COLUMNS = [*PLAIN, "tokens_per_s_per_gpu", "step_time_s", "peak_mem_gib_per_gpu", "notes"]


def audit(capsys, *arguments, code=0):
    assert main(["audit", *map(str, arguments)]) == code
    return capsys.readouterr()


@pytest.fixture
def table(tmp_path):
    """A table of one's own: four runs that were measured, one that ran out of memory, two that cannot be read."""
    rows = [
        {"id": "a", "tokens_per_s_per_gpu": 7000, "peak_mem_gib_per_gpu": 60},
        {"id": "b", "tokens_per_s_per_gpu": 6500, "seq_len": 4096},
        {"id": "c", "tokens_per_s_per_gpu": 5000, "source_repo_or_paper": "other", "activation_checkpointing": "full"},
        {"id": "d", "step_time_s": 9.5},
        {"id": "e", "oom": "yes", "n_gpus": 1, "dp_shard_or_fsdp": "", "seq_len": 131072},
        {"id": "f", "gpu": "H10000"},
        {"id": "g", "n_layers": "many"},
    ]
    path = tmp_path / "runs.csv"
    with path.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, COLUMNS)
        writer.writeheader()
        writer.writerows(PLAIN | row for row in rows)
    return path


@pytest.fixture
def own_run(tmp_path):
    path = tmp_path / "run.json"
    numbers = {"n_gpus": 8, "seq_len": 8192, "compile": True, "tokens_per_s_per_gpu": 7000, "peak_mem_gib_per_gpu": 60}
    path.write_text(json.dumps(PLAIN | numbers), encoding="utf-8")
    return path


def test_people_read_errors_verdicts_groups_the_worst_and_what_was_refused(table, capsys):
    out = audit(capsys, "--published", table).out
    assert out.startswith("5 of 7 rows predicted (71.4%); throughput off by ")
    for words in (
        "throughput, from step times",
        "fits or not: ",
        "by source",
        "by framework",
        "by device",
        "by model class",
        "worst rows",
        "unknown device",
        "n_layers is many, expected a number",
    ):
        assert words in out, words
    assert "tokens/s" in out and "GiB" in out


def test_programs_read_one_document(table, capsys):
    document = json.loads(audit(capsys, "--published", table, "--json").out)
    assert document["schema"] == "trainwright.audit/1"
    report = document["report"]
    assert (report["rows"], report["predicted"], report["coverage"]) == (7, 5, 5 / 7)
    assert set(report) == {
        "rows",
        "predicted",
        "coverage",
        "refused",
        "unmeasured",
        "throughput",
        "throughput_derived",
        "memory",
        "verdicts",
        "groups",
        "worst_throughput",
        "worst_memory",
        "unused_settings",
    }
    assert set(report["throughput"]) == {"rows", "median", "mean", "p90", "bias", "in_range"}
    assert (report["throughput"]["rows"], report["throughput_derived"]["rows"], report["memory"]["rows"]) == (3, 1, 1)
    assert [(row["id"], row["line"]) for row in report["refused"]] == [("f", 7), ("g", 8)]
    assert report["verdicts"]["ran_out"] == 1
    assert {group["by"] for group in report["groups"]} == {"source", "framework", "device", "model class"}
    worst = report["worst_throughput"][0]
    assert set(worst) == {
        "id",
        "source",
        "line",
        "verdict",
        "tokens_per_s_per_device",
        "measured_tokens_per_s",
        "memory_bytes",
        "measured_memory_bytes",
    }
    assert set(worst["memory_bytes"]) == {"low", "mid", "high"}


def test_rows_without_a_measurement_and_batches_without_a_sequence_for_each_device_are_counted_apart(tmp_path, capsys):
    rows = [
        {"id": "a", "tokens_per_s_per_gpu": 7000},
        {"id": "b", "oom": ""},
        {"id": "c", "tokens_per_s_per_gpu": 0},
        {"id": "d", "tokens_per_s_per_gpu": 7000, "n_gpus": 64, "dp_shard_or_fsdp": "", "global_batch": 63},
        {"id": "e", "tokens_per_s_per_gpu": 7000, "n_gpus": 64, "dp_shard_or_fsdp": "", "global_batch": 64},
    ]
    path = tmp_path / "runs.csv"
    with path.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, COLUMNS)
        writer.writeheader()
        writer.writerows(PLAIN | row for row in rows)
    out = audit(capsys, "--published", path).out
    assert out.startswith("2 of 3 rows predicted (66.7%); throughput off by ")
    assert "2 more rows without a measurement: lines 3, 4\n" in out
    report = json.loads(audit(capsys, "--published", path, "--json").out)["report"]
    assert (report["rows"], report["predicted"], report["throughput"]["rows"]) == (3, 2, 2)
    assert [(row["id"], row["line"]) for row in report["unmeasured"]] == [("b", 3), ("c", 4)]
    (refused,) = report["refused"]
    expected = "global_batch is 63, expected at least 64: a sequence of the batch for each of its data-parallel devices"
    assert (refused["id"], refused["line"], refused["reason"]) == ("d", 5, expected)


def test_so_many_of_the_worst_as_asked(table, capsys):
    for count in (0, 2):
        report = json.loads(audit(capsys, "--published", table, "--worst", count, "--json").out)["report"]
        assert len(report["worst_throughput"]) == count


def test_own_runs_correct_the_same_run(table, own_run, capsys):
    def worst(*more):
        rows = json.loads(audit(capsys, "--published", table, "--json", *more).out)["report"]["worst_throughput"]
        mine = next(row for row in rows if row["id"] == "a")
        return abs(mine["tokens_per_s_per_device"]["mid"] / mine["measured_tokens_per_s"] - 1)

    assert worst("--calibrate", own_run) < 0.02 < worst()
    assert (
        worst(
            "--calibrate",
            table.with_name("known.csv").write_text(first_lines(table, 2)) and table.with_name("known.csv"),
        )
        < 0.02
    )


def first_lines(path, count):
    return "\n".join(path.read_text(encoding="utf-8").splitlines()[:count]) + "\n"


def test_the_first_of_each_source_teaches_the_others(table, capsys):
    report = json.loads(audit(capsys, "--published", table, "--calibrate", "first", "--json").out)["report"]
    assert report["throughput"]["rows"] == 1  # b: a and c are known
    assert report["throughput"]["median"] < 0.2


def test_pictures_of_runs_and_of_totals(table, tmp_path, capsys):
    for source, name in ((table, "runs.png"), (TOTALS, "totals.png")):
        picture = tmp_path / name
        assert f"drawn: {picture}" in audit(capsys, "--published", source, "--draw", picture).err
        assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert min(struct.unpack(">II", picture.read_bytes()[16:24])) > 800


def test_whole_trainings_are_replayed(capsys):
    out = audit(capsys, "--published", TOTALS).out
    assert "trainings: device-hours off by" in out.splitlines()[0]
    assert "LLaMA-7B" in out and "not replayed" in out and "no number of tokens" in out
    document = json.loads(audit(capsys, "--published", TOTALS, "--json").out)["report"]
    assert set(document) == {"device_hours", "trainings", "skipped"}
    assert document["device_hours"]["rows"] == len(document["trainings"]) > 30
    assert len(document["trainings"]) + len(document["skipped"]) == 60


def test_several_tables_are_judged_as_one(table, capsys):
    def rows(*paths):
        arguments = [word for path in paths for word in ("--published", path)]
        return json.loads(audit(capsys, *arguments, "--json").out)

    both = rows(table, COLLECTED)
    assert both["published"] == f"{table}, {COLLECTED}"
    assert both["report"]["rows"] == 7 + rows(COLLECTED)["report"]["rows"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--published", "none.csv"), 2, "none.csv: no such file"),
        (("--published", RUNS.with_name("README.md")), 4, "not a table of published runs"),
        (("--published", RUNS, "--calibrate", "none.json"), 2, "none.json: no such file"),
        (("--published", RUNS, "--worst", "-1"), 2, "--worst: must be at least 0"),
        (("--published", RUNS, "recipe.yaml"), 2, "--published: judges a table and no recipe"),
        (("--published", RUNS, "--published", TOTALS), 2, "judges runs or whole trainings, not both at once"),
        (("--published", RUNS, "--published", RUNS), 4, "one row in two tables"),
        (("--published", TOTALS, "--calibrate", "first"), 2, "--calibrate: whole trainings are not calibrated"),
        (("--published", TOTALS, "--draw", "x.gif"), 2, "x.gif: cannot draw such a file"),
        (("--published", TOTALS, "--draw", "none/x.png"), 3, "none/x.png: cannot write the picture"),
        (("recipe.yaml", "--calibrate", "first"), 2, "--calibrate: needs a table of published runs"),
        (("recipe.yaml", "--draw", "x.png"), 2, "--draw: needs a table of published runs"),
    ],
)
def test_bad_questions_are_one_line(arguments, code, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    printed = audit(capsys, *arguments, code=code)
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("error: ") and message in line


def test_after_a_failure_stdout_is_one_error_document(tmp_path, capsys):
    printed = audit(capsys, "--published", TOTALS, "--draw", tmp_path / "x.gif", "--json", code=2)
    assert json.loads(printed.out)["schema"] == "trainwright.error/1"


def test_a_table_without_rows_is_no_failure_but_has_no_picture(tmp_path, capsys):
    empty = tmp_path / "empty.csv"
    empty.write_text(",".join(COLUMNS) + "\n", encoding="utf-8")
    first, second = audit(capsys, "--published", empty).out.splitlines()
    assert (first, second) == ("0 of 0 rows predicted (0.0%)", "no row in these tables: nothing was read")
    printed = audit(capsys, "--published", empty, "--draw", tmp_path / "x.png", code=4)
    assert "nothing to draw" in printed.err
