"""Tables as they come: three kinds of memory, derived rates, notes, spreadsheets, broken rows and files."""

import json
import os
from pathlib import Path

import pytest

from fixtures.published import COLLECTED, PLAIN, RUNS, TOTALS, record
from trainwright.core.errors import DataError, RecipeError
from trainwright.planner.evidence.rows import (
    GIB,
    REQUIRED,
    columns,
    measured,
    memory_kind,
    number,
    read_records,
    read_runs,
    read_tables,
    take_apart,
)


def table(path, *rows, head=None, encoding="utf-8"):
    names = head or list(PLAIN)
    lines = [",".join(names), *(",".join(str((PLAIN | row).get(name, "")) for name in names) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding=encoding)
    return path


def read(row, *, devices=8, batch_tokens=8 * 8192, reports="allocated"):
    return measured(row, devices=devices, batch_tokens=batch_tokens, reports=reports)


# --------------------------------------------------------------------------------------------------- what was measured
@pytest.mark.parametrize(
    ("notes", "kind"),
    [
        ("mem printed as GB from nvidia-smi (incl. context+reserved)", "device"),
        ("mem=max reserved", "reserved"),
        ("mem=max torch allocated on the LAST rank", "allocated"),
        ("analytic", "allocated"),
        ("", "reserved"),  # not stated: what the framework prints
    ],
)
def test_memory_is_taken_by_the_definition_that_the_row_names(notes, kind):
    assert memory_kind(record(notes=notes), "reserved") == kind
    assert read(record(notes=notes, peak_mem_gib_per_gpu=10), reports="reserved").memory_kind == kind


def test_the_whole_table_uses_all_three_definitions():
    kinds = [memory_kind(row, "allocated") for row in read_records(RUNS) if row.number("peak_mem_gib_per_gpu")]
    assert {kind: kinds.count(kind) for kind in ("device", "reserved")} == {"device": 41, "reserved": 71}
    assert kinds.count("allocated") > 300


def test_running_out_of_memory_is_said_by_any_word_for_yes():
    assert [read(record(oom=word)).out_of_memory for word in ("yes", "True", "no", "false", "")] == [
        *(True, True, False, False, False),
    ]
    with pytest.raises(ValueError, match="oom is perhaps, expected yes or no"):
        read(record(oom="perhaps"))


def test_memory_is_in_gibibytes_and_knows_its_stage():
    run = read(record(peak_mem_gib_per_gpu=67.46, notes="mem=max torch allocated on the LAST rank"))
    assert (run.memory_bytes, run.memory_stage) == (67.46 * GIB, "last")
    assert read(record(peak_mem_gib_per_gpu=1)).memory_stage == "worst"
    assert read(record()).memory_bytes is None is read(record()).memory_kind


def test_printed_rates_come_before_step_times_and_those_are_marked():
    assert read(record(tokens_per_s_per_gpu=1000, step_time_s=1)).tokens_per_s == 1000
    derived = read(record(step_time_s=2))
    assert (derived.tokens_per_s, derived.derived) == (8192 / 2, True)
    assert not read(record(tokens_per_s_per_gpu=1000)).derived
    assert read(record()).tokens_per_s is None
    # TFLOP/s mean three things and are never taken for a rate of tokens.
    assert read(record(tflops_per_gpu=400)).tokens_per_s is None


def test_running_out_of_memory_is_a_measurement():
    assert read(record(oom="yes")).out_of_memory
    assert not read(record(oom="no")).out_of_memory


# --------------------------------------------------------------------------------------------------------------- cells
def test_notes_are_settings_and_words():
    assert take_apart("a=1; b = x y ;recall;;c=d=e;a=2") == {"a": "1", "b": "x y", "recall": "", "c": "d=e"}
    assert take_apart("") == {}


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-1", "1e999", "8 GPUs", "1,024"])
def test_what_is_no_number_is_refused_by_its_column(text):
    with pytest.raises(ValueError, match=f"n_gpus is {text}, expected a"):
        record(n_gpus=text).number("n_gpus")
    with pytest.raises(ValueError, match="rank is"):
        number("rank", text)


@pytest.mark.parametrize("text", ["0", "1.5", "1e30", "inf", "nan"])
def test_counts_are_positive_whole_numbers(text):
    with pytest.raises(ValueError, match=f"tp is {text}, expected"):
        record(tp=text).whole("tp", 1)


def test_an_empty_cell_is_unknown_or_the_default():
    assert record(tp="").number("tp") is None
    assert record(tp="").whole("tp", 4) == 4
    assert record(n_layers="8.0").whole("n_layers") == 8
    with pytest.raises(ValueError, match="n_layers is empty"):
        record(n_layers="").whole("n_layers")
    assert record().text("a column that is not there") == ""


# --------------------------------------------------------------------------------------------------------------- files
def test_a_table_is_read_line_by_line(tmp_path):
    path = table(tmp_path / "runs.csv", {"n_gpus": " 16 "}, {"gpu": "", "notes": "a=1;b"})
    first, second = read_records(path)
    assert (first.line, second.line) == (2, 3)
    assert first.text("n_gpus") == "16"
    assert second.notes == {}  # the plain row has no column for notes
    assert read_records(RUNS)[0].notes["grad_accum"] == "1"


def test_tables_are_read_one_after_the_other(tmp_path):
    one = table(tmp_path / "one.csv", {"id": "a"}, {"id": "b"})
    two = table(tmp_path / "two.csv", {"id": "c"})
    assert [row.text("id") for row in read_tables([one, two])] == ["a", "b", "c"]
    assert len(read_tables([RUNS, COLLECTED])) == len(read_records(RUNS)) + len(read_records(COLLECTED))


def test_one_row_in_two_tables_would_count_twice(tmp_path):
    one, two = (table(tmp_path / f"{name}.csv", {"id": "a"}) for name in ("one", "two"))
    with pytest.raises(DataError, match=r"two.csv: one row in two tables .*id a, also in .*one.csv"):
        read_tables([one, two])
    unnamed = table(tmp_path / "unnamed.csv", {"id": ""}, {"id": ""})
    assert len(read_tables([unnamed, one])) == 3


def test_collected_rows_say_where_they_come_from_and_what_was_measured():
    rows = read_records(COLLECTED)
    known = {row.text("source_repo_or_paper").partition("@")[0] for row in read_records(RUNS)}
    for row in rows:
        source, _, version = row.text("source_repo_or_paper").partition("@")
        assert version and source not in known and row.text("source_path"), row.text("id")
        seen = ("tokens_per_s_per_gpu", "peak_mem_gib_per_gpu")
        assert row.text("oom") == "yes" or any(row.number(name) for name in seen), row.text("id")
    assert len({row.text("id") for row in rows}) == len(rows)


def test_a_spreadsheets_byte_order_mark_is_no_part_of_a_name(tmp_path):
    path = table(tmp_path / "runs.csv", {}, encoding="utf-8-sig")
    assert columns(path)[0] == "id"
    assert read_records(path)[0].text("id") == "own-1"


def test_runs_in_json_may_have_a_byte_order_mark_and_tables_any_end_of_line(tmp_path):
    run = {"framework": "torchtitan", "model": "llama3-8b", "seq_len": 64, "gpu": "h100", "n_gpus": 1, "oom": "yes"}
    (tmp_path / "run.json").write_text(json.dumps(run), encoding="utf-8-sig")
    assert read_runs(tmp_path / "run.json")[0].text("gpu") == "h100"
    header = ",".join(REQUIRED)
    (tmp_path / "old.csv").write_bytes(f"{header}\r1,a\r2,b\r".encode())
    assert [each.line for each in read_records(tmp_path / "old.csv")] == [2, 3]


def test_a_table_of_its_first_line_alone_teaches_nothing(tmp_path):
    (tmp_path / "none.csv").write_text(f"{','.join(REQUIRED)}\n")
    assert read_records(tmp_path / "none.csv") == []
    with pytest.raises(DataError, match=r"none.csv: no run in this file \(seen a first line alone"):
        read_runs(tmp_path / "none.csv")


def test_short_and_long_lines_are_read_as_far_as_they_go(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(",".join(REQUIRED) + "\nx,torchtitan\nx,torchtitan,llama,1,2,3,h100,8,more,and more\n", "utf-8")
    short, long = read_records(path)
    assert short.text("gpu") == "" and long.text("n_gpus") == "8"
    short.refuse_surplus()
    with pytest.raises(ValueError, match="more cells than columns: more, and more, expected quotes around a text"):
        long.refuse_surplus()


def test_a_column_stands_once_in_a_table_but_for_nameless_ones(tmp_path):
    path = table(tmp_path / "runs.csv", {}, head=[*PLAIN, "gpu"])
    with pytest.raises(DataError, match=r"runs.csv: not a table .*seen two columns gpu, expected each column once"):
        read_records(path)
    trailing = tmp_path / "trailing.csv"
    trailing.write_text(",".join(REQUIRED) + ",,\nx,torchtitan,llama,1,2,3,h100,8,,\n", "utf-8")
    assert [row.surplus for row in read_records(trailing)] == [""]


def test_a_table_without_a_needed_column_says_which(tmp_path):
    path = table(tmp_path / "runs.csv", {}, head=[name for name in PLAIN if name != "gpu"])
    with pytest.raises(DataError, match=r"runs.csv: not a table of published runs .*no column gpu.*published.md"):
        read_records(path)
    with pytest.raises(DataError, match="no column id, arch"):
        read_records(TOTALS)
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    assert columns(empty) == []
    with pytest.raises(DataError, match="no column id"):
        read_records(empty)


@pytest.mark.parametrize("reader", [read_records, columns])
def test_files_that_cannot_be_read_say_so_in_one_line(tmp_path, reader):
    with pytest.raises(RecipeError, match=r"none.csv: no such file"):
        reader(tmp_path / "none.csv")
    broken = tmp_path / "latin.csv"
    broken.write_bytes("id,gerät\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin.csv: cannot read the table .*CSV in UTF-8"):
        reader(broken)
    with pytest.raises(DataError, match="cannot read the table"):
        reader(tmp_path)


def test_own_runs_are_json_with_the_same_names(tmp_path):
    run = {name: PLAIN[name] for name in REQUIRED} | {
        "n_gpus": 8,
        "compile": True,
        "cpu_offload": False,
        "global_batch": None,
        "tokens_per_s_per_gpu": 8000.5,
        "notes": "a=1",
    }
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run))
    (records,) = read_runs(path)
    assert (records.line, records.whole("n_gpus"), records.number("tokens_per_s_per_gpu")) == (1, 8, 8000.5)
    assert (records.text("compile"), records.text("cpu_offload"), records.text("global_batch")) == ("yes", "no", "")
    assert records.notes == {"a": "1"}
    path.write_text(json.dumps([run, run]))
    assert [each.line for each in read_runs(path)] == [1, 2]
    assert len(read_runs(table(tmp_path / "own.csv", {}))) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "run 1: not a measured run .*seen 1, expected an object"),
        ("[]", "no run in this file"),
        ('"text"', "not a measured run .*seen .text"),
        (
            '{"model": {}, "workload": {}, "rows": {}, "device": "h100"}',
            "not a line of a ledger .*of form 1, this version reads 2",
        ),
        ('{"id": "x", "oom": true}', r"not a measured run .*no framework, arch.*model: llama3-8b stands for a shape"),
        ('{"id": "x"}', "nothing was measured"),
    ],
)
def test_own_runs_that_are_none_are_refused(tmp_path, text, message):
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_runs(path)
    with pytest.raises(DataError, match="cannot read the run"):
        read_runs(tmp_path)
    with pytest.raises(RecipeError, match="none.json: no such file"):
        read_runs(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("notes", "stage"),
    [
        ("mem=max torch allocated on the LAST rank", "last"),
        ("nvidia-smi", "first"),  # of the first node
        ("from nvidia-smi (first/last stage max)", "worst"),
        ("max reserved", "worst"),
    ],
)
def test_notes_say_which_pipeline_stage_was_looked_at(notes, stage):
    assert read(record(notes=notes, peak_mem_gib_per_gpu=10)).memory_stage == stage


def test_a_broken_line_is_named_by_its_number(tmp_path):
    path = tmp_path / "runs.jsonl"
    run = {name: PLAIN[name] for name in REQUIRED} | {"tokens_per_s_per_gpu": 1.0}
    path.write_text(f"{json.dumps(run)}\n\n{{\n")
    with pytest.raises(DataError, match=r"runs.jsonl:3: not JSON .*a run on each line"):
        read_runs(path)
    path.write_text(f"{json.dumps(run)}\n\n{json.dumps(run)}\n")
    assert len(read_runs(path)) == 2
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="JSON in UTF-8"):
        read_runs(path)


@pytest.mark.parametrize("name", ["runs.csv", "runs.json", "runs.jsonl"])
@pytest.mark.parametrize("endless", ["/dev/zero", "pipe"])
def test_files_without_an_end_are_refused(tmp_path, name, endless):
    path = tmp_path / name
    if endless == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(endless)
    for read_all in (columns, read_records, read_runs):
        with pytest.raises(DataError, match="not a regular file"):
            read_all(Path(path))
