"""Lines of ledgers as they are read back; what is none is skipped, with its place and reason."""

import json
import re
from dataclasses import replace

import pytest

from fixtures.finished import finished, summary_of
from fixtures.planned_recipe import plan_of, planned_recipe
from trainwright.core.errors import DataError, RecipeError
from trainwright.core.records import to_json
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.planner.evidence.audit import audit, ledger_line
from trainwright.planner.evidence.finished import placed_run, read_ledgers, runs_as_text
from trainwright.planner.evidence.ledger import FILE
from trainwright.spec.convnet import ConvNetSpec
from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.resnet import resnet
from trainwright.spec.workload import Adapter, ParallelPlan


def written(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_a_line_is_read_back_as_it_was_written(tmp_path):
    line = finished(tmp_path, slower=2.0)
    (run,) = read_ledgers([written(tmp_path / "l.jsonl", line)]).runs
    assert (run.device, run.devices, run.cores, run.parallel.threads, run.torch) == ("Ideal CPU", 1, 4, 4, "2.13.0+cpu")
    assert (run.model.width, run.workload.batch_tokens) == (128, 1024)
    rows = json.loads(line)["rows"]
    assert run.step_s == pytest.approx(2 * sum(rows[f"step/{name}"][0] for name in ("forward", "backward", "update")))
    assert run.peak_bytes == rows["run/peak memory"][1]


def test_a_run_of_adapters_is_read_back_with_them(tmp_path):
    plan = plan_of(planned_recipe(tmp_path))
    plan = replace(plan, workload=replace(plan.workload, adapter=Adapter(rank=4, targets=("query", "up"))))
    compared = audit(plan, summary_of(plan))
    told = {"run": "abc", "finished_unix_s": 1793491200.0, "versions": {}}
    line = json.dumps(ledger_line(plan, compared, model=plan.model, steps=9, **told))
    (run,) = read_ledgers([written(tmp_path / "l.jsonl", line)]).runs
    assert run.workload.adapter == Adapter(rank=4, targets=("query", "up"))


def test_a_run_of_a_convolutional_network_is_planned_as_one(tmp_path):
    line = json.loads(finished(tmp_path))
    sizes = {"depths": [1, 1], "hidden_sizes": [16, 32], "layer_type": "basic", "image_size": 32}
    line["model"] = to_json(resnet(ConfigReader(sizes, where="config.json")))
    line["workload"] |= {"sequence_tokens": 1}
    ledger = read_ledgers([written(tmp_path / "l.jsonl", json.dumps(line))])
    assert ledger.broken == ()
    (run,) = ledger.runs
    assert isinstance(placed_run(run, cluster("1xh100-sxm")).run.model, ConvNetSpec)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda line: "{", "Expecting property name"),
        (lambda line: json.dumps(line)[:-9], "Expecting|delimiter|Unterminated"),
        (lambda line: "[1, 2]", "no line of a ledger"),
        (lambda line: "7", "no line of a ledger"),
        (lambda line: json.dumps({**line, "format": 1}), "of form 1, this version reads 2"),
        (lambda line: json.dumps({k: v for k, v in line.items() if k != "format"}), "of form 1"),
        (lambda line: json.dumps({**line, "format": 3}), "of form 3"),
        (lambda line: json.dumps({**line, "rows": [1]}), "no pairs"),
        (lambda line: json.dumps({**line, "rows": {"run/peak memory": ["a", "b"]}}), "no pairs"),
        (lambda line: json.dumps({**line, "rows": {}}), "no seconds of a step"),
        (lambda line: json.dumps({**line, "rows": line["rows"] | {"step/forward": [1, float("nan")]}}), "no seconds"),
        (lambda line: json.dumps({**line, "model": {**line["model"], "depth": 3}}), "model.depth"),
        (lambda line: json.dumps({**line, "model": {**line["model"], "width": "wide"}}), "model.width"),
        (lambda line: json.dumps({**line, "model": {**line["model"], "layers": 0}}), "cannot be"),
        (lambda line: json.dumps({**line, "parallel": {"micro_batch_sequences": 0}}), "cannot be"),
        (lambda line: json.dumps({**line, "parallel": {"dp_shard": 2}}), "cannot be"),
        (lambda line: json.dumps({**line, "workload": 4}), "workload"),
        (lambda line: json.dumps({**line, "finished_unix_s": 1e300}), "no seconds"),
    ],
    ids=[
        "brace",
        "cut",
        "list",
        "number",
        "old",
        "no format",
        "new",
        "rows list",
        "rows words",
        "no rows",
        "nan",
        "unknown field",
        "word for a number",
        "no layers",
        "no micro batch",
        "more ranks than devices",
        "no workload",
        "never",
    ],
)
def test_a_line_that_is_no_run_is_skipped_with_its_place_and_reason(tmp_path, damage, reason):
    good = finished(tmp_path)
    path = written(tmp_path / "ledger.jsonl", good, "", damage(json.loads(good)))
    ledger = read_ledgers([path])
    assert len(ledger.runs) == 1
    (broken,) = ledger.broken
    assert broken.startswith(f"{path}:3: ")
    assert re.search(reason, broken), broken


def test_a_run_in_two_ledgers_counts_once_and_the_newest_comes_first(tmp_path):
    first, second = finished(tmp_path, day=3), finished(tmp_path, slower=1.5, day=7)
    one, two = written(tmp_path / "a" / FILE, first), written(tmp_path / "b" / FILE, first, second)
    ledger = read_ledgers([one, two])
    assert [run.finished_unix_s for run in ledger.runs] == [
        json.loads(line)["finished_unix_s"] for line in (second, first)
    ]
    assert runs_as_text(ledger.runs) == "2 runs of the ledger, newest 2026-11-07"
    assert runs_as_text(()) == "no run of the ledger"


def test_a_line_keeps_the_whole_layout_and_older_lines_three_fields_of_it(tmp_path):
    layout = ParallelPlan(dp_shard=2, tp=4, pp=2, micro_batch_sequences=2, threads=3, schedule="gpipe", offload="all")
    new = json.loads(finished(tmp_path, changes={"devices": 16, "parallel": to_json(layout)}, run="new"))
    old = {name: value for name, value in new.items() if name != "parallel"} | {"run": "old", "devices": 2}
    old |= {"micro_batch": 4, "compile": True, "threads": 3}
    runs = {run.run: run for run in read_ledgers([written(tmp_path / FILE, json.dumps(new), json.dumps(old))]).runs}
    assert placed_run(runs["new"], cluster("2x8xh100-sxm")).parallel == layout
    assert runs["old"].parallel == ParallelPlan(dp_replicate=2, micro_batch_sequences=4, compile=True, threads=3)


def test_bytes_that_are_no_text_are_a_broken_line(tmp_path):
    path = tmp_path / FILE
    path.write_bytes(b"\xff\xfe{\n" + finished(tmp_path).encode() + b"\n")
    ledger = read_ledgers([path])
    assert (len(ledger.runs), len(ledger.broken)) == (1, 1)


def test_a_ledger_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(DataError, match=r"cannot read the ledger"):
        read_ledgers([tmp_path])
    with pytest.raises(RecipeError, match=r"absent: no such file"):
        read_ledgers([tmp_path / "absent"])


def test_a_ledger_that_is_a_device_is_not_read(tmp_path):
    (tmp_path / "ledger.jsonl").symlink_to("/dev/zero")
    with pytest.raises(DataError, match="cannot read the ledger .*not a regular file"):
        read_ledgers([tmp_path / "ledger.jsonl"])
