from __future__ import annotations

import argparse
import json
import re

import pytest

from trainwright.cli.output import Output, error_output
from trainwright.core.errors import MissingPackage, RecipeError


def test_a_result_is_text_or_one_document(output_to):
    text = output_to()
    text.result({"fits": True}, lambda: text.line("it fits"))
    assert text.stdout.getvalue() == "it fits\n"
    machine = output_to(command="config show", json=True)
    machine.result({"fits": True}, lambda: machine.line("it fits"), version=2)
    assert json.loads(machine.stdout.getvalue()) == {"schema": "trainwright.config.show/2", "fits": True}


def test_a_plain_table_is_aligned(output_to):
    output = output_to()
    output.table(["name", "size"], [["a", "12"], ["long name", "3.5 GiB"], ["none", None]], title="Sizes")
    assert output.stdout.getvalue().splitlines() == [
        "Sizes",
        "name          size",
        "a               12",
        "long name  3.5 GiB",
        "none",
    ]


def test_an_empty_table_has_its_head(output_to):
    output = output_to()
    output.table(["name", "size"], [])
    assert output.stdout.getvalue() == "name  size\n"


def test_a_terminal_gets_a_drawn_table(output_to, terminal):
    output = output_to(stdout=terminal)
    output.table(["name", "size"], [["[bold]a", "1"]], title="Sizes")
    assert "[bold]a" in terminal.getvalue()
    assert "\033[" in terminal.getvalue()


def test_colours_need_a_terminal_that_wants_them(output_to, terminal, monkeypatch):
    assert output_to().colored(terminal)
    assert not output_to(no_color=True).colored(terminal)
    assert not output_to().colored(output_to().stdout)
    monkeypatch.setenv("TERM", "dumb")
    assert not output_to().colored(terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not output_to().colored(terminal)


def test_notes_go_to_stderr_unless_quiet(output_to):
    for quiet, expected in ((False, "reading\n"), (True, "")):
        output = output_to(quiet=quiet)
        output.note("reading")
        assert output.stderr.getvalue() == expected
        assert not output.stdout.getvalue()


def test_headings_are_bold_on_a_terminal(output_to, terminal):
    output_to(stdout=terminal).heading("Plan")
    assert terminal.getvalue() == "\033[1mPlan\033[0m\n"


def test_codes_are_the_names_of_errors(output_to):
    output = output_to(json=True)
    output.error(MissingPackage("x", needed_for="y", extra="z"), traceback=False)
    document = json.loads(output.stdout.getvalue())
    assert document["exit_code"] == 3
    assert document["errors"][0]["code"] == "missing_package"


def test_the_output_follows_the_arguments():
    args = argparse.Namespace(command="plan", json=True, quiet=False, verbose=True, no_color=False)
    output = Output.of(args)
    assert (output.command, output.json, output.quiet, output.verbose) == ("plan", True, False, True)


@pytest.mark.parametrize(("arguments", "is_json"), [(["plan", "--json"], True), (["plan"], False)], ids=str)
def test_errors_before_parsing_know_the_format(arguments, is_json):
    assert error_output(arguments).json is is_json


def test_numbers_stand_right_and_names_that_begin_with_one_left(output_to):
    output = output_to()
    output.table(("run on", "slower"), [("8xh100-sxm", "1.35x"), ("16x8xh100-sxm", "12x")])
    assert output.stdout.getvalue().splitlines()[1:] == ["8xh100-sxm      1.35x", "16x8xh100-sxm     12x"]


@pytest.mark.parametrize("no_color", [False, True])
def test_a_narrow_terminal_gets_a_block_for_each_row(output_to, terminal, monkeypatch, no_color):
    monkeypatch.setenv("COLUMNS", "20")
    rows = [("64x8xh100-sxm", "3 days", "cheapest"), ("8xa100-80gb", "90 days", "")]
    output_to(stdout=terminal, no_color=no_color).table(("run on", "time", "note"), rows, title="best")
    assert terminal.getvalue() == (
        "best\nrun on:\n  64x8xh100-sxm\ntime: 3 days\nnote: cheapest\n\nrun on: 8xa100-80gb\ntime: 90 days\n"
    )


def test_first_cells_with_a_word_behind_their_number_are_names(output_to):
    output = output_to()
    output.table(("would make it fit", "at"), [("4 devices", "3.5x"), ("64 devices", "651x")])
    output.table(("rows", "because"), [(9, "a"), (10, "b")])
    assert output.stdout.getvalue().splitlines() == [
        "would make it fit    at",
        "4 devices          3.5x",
        "64 devices         651x",
        "rows  because",
        "   9  a",
        "  10  b",
    ]


def test_a_sentence_that_begins_with_a_number_stands_left(output_to):
    output = output_to()
    output.table(("because", "cost"), [("17% of on-demand, near the floor", "$1"), ("2% of it", "$10")])
    assert output.stdout.getvalue().splitlines()[2] == "2% of it                           $10"


@pytest.mark.parametrize("width", range(12, 60))
def test_no_width_breaks_a_word_of_a_table(output_to, terminal, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [("64x8xh100", "AWS on-demand", "3 days", "cheapest of all"), ("8xa100", "own", "90 days", "")]
    output_to(stdout=terminal).table(("run on", "from", "time", "note"), rows)
    shown = re.sub("\033\\[[0-9;]*m", "", terminal.getvalue())
    assert all(word in shown for row in rows for text in row for word in text.split())
    assert max(map(len, shown.splitlines())) <= width


def test_a_pipe_has_no_width(output_to, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    output = output_to()
    output.table(("run on", "time"), [("64x8xh100-sxm", "three hundred days")])
    assert output.stdout.getvalue().splitlines()[1] == "64x8xh100-sxm  three hundred days"


def test_prose_is_wrapped_on_a_narrow_terminal_and_code_is_not(output_to, terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    output = output_to(stdout=terminal, stderr=terminal, no_color=True)
    output.line("  three words, and further words")
    output.note("a remark of several words")
    output.error(RecipeError("unknown device", seen="'h1000'"), traceback=False)
    output.verbatim("curl http://127.0.0.1 -d prompt")
    assert terminal.getvalue() == (
        "  three words, and\n    further words\na remark of several\n  words\n"
        "error: unknown\n  device (seen\n  'h1000')\ncurl http://127.0.0.1 -d prompt\n"
    )
