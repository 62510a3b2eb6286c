import json
import re
import shlex

import pytest

from trainwright.cli import main as cli
from trainwright.core.money import parse_usd


def scaled(capsys, *arguments):
    assert cli.main(["plan", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["scaling"]


def test_a_budget_of_compute_has_an_answer_by_each_law(capsys):
    document = scaled(capsys, "--compute", "1e21")
    assert {law["law"] for law in document["laws"]} == {"hoffmann-1", "hoffmann-2", "hoffmann-3", "besiroglu", "kaplan"}
    for law in document["laws"]:
        if law["law"] != "kaplan":
            assert 6 * law["parameters"] * law["tokens"] == pytest.approx(1e21, rel=0.01)
        assert law["source"]
    assert len(document["batch"]) == 2


def test_a_model_has_the_tokens_that_suit_it(capsys):
    document = scaled(capsys, "--params", "7B", "--tokens", "2T")
    best = next(law for law in document["laws"] if law["law"] == document["law"])
    assert 15 < best["tokens"] / best["parameters"] < 25
    assert document["over_training"]["flops_ratio"] > 1


def test_a_budget_of_dollars_is_spent_on_a_cluster(capsys):
    document = scaled(capsys, "--budget", "10k$", "--price", "2")
    assert document["plan"]["estimate"]["usd"]["mid"] == pytest.approx(10_000, rel=0.01)
    assert document["plan"]["cluster"]["node"]["devices"] == 8


def test_sources_and_what_the_laws_assume_are_printed(capsys):
    assert cli.main(["plan", "--compute", "1e25", "--on", "128x8xh100-sxm"]) == 0
    out = capsys.readouterr().out
    for word in ("Hoffmann", "Kaplan", "Besiroglu", "C = 6 N D", "extrapolated", "critical batch", "fits: "):
        assert word in out


@pytest.mark.parametrize("text", ["10k$", "$10k", "10000", "10_000 $"])
def test_dollars_are_read_as_people_write_them(text):
    assert parse_usd(text) == 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--compute", "1e21", "--params", "7B"], "one budget at a time"),
        (["--budget", "x"], "--budget: cannot read"),
        (["--budget", "$"], "--budget: cannot read"),
        (["--budget", "0"], "--budget: must be above zero"),
        (["--params", "0"], "--params: must be at least 1"),
        (
            ["--params", "1e20", "--on", "8xh100-sxm"],
            "--params: more than any run has (seen 1e20, expected at most 1e+15)",
        ),
        (["--params", "1000", "--on", "8xh100-sxm"], "--params: no ordinary model has that size"),
        (["--params", "7B", "--tokens", "15Q"], "--tokens: more than any run has (seen 15Q, expected at most 1e+15)"),
        (["--compute", "1e60"], "--compute: more operations than any training has (seen 1e60, expected at most 1e30)"),
        (["--budget", "10k$", "--on", "rtx-4090", "--price", "0"], "--price: a budget has no end where an hour costs"),
        (["--budget", "1e30"], "--budget: no ordinary model has that size"),
        (["--compute", "1"], "--compute: too few operations to train a model (seen 1, expected 1e12 or more)"),
        (["--compute", "1e21", "--model", "gpt2"], "a budget chooses the model"),
        (["--compute", "1e21", "--sweep", "nodes=1"], "--sweep: a budget has no use for this"),
    ],
)
def test_bad_budgets_end_in_one_line(arguments, message, capsys):
    assert cli.main(["plan", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["--compute", "1e21", "--tokens", "1T"], "--tokens"),
        (["--budget", "10k$", "--tokens", "1T", "--on", "8xh100-sxm"], "--tokens"),
        (["--compute", "1e21", "--method", "qlora"], "--method"),
        (["--params", "7B", "--stack", "torchtitan"], "--stack"),
        (["--budget", "1$", "--on", "64x8xh100-sxm"], "--budget"),
    ],
)
def test_what_would_be_ignored_is_refused_by_its_option(capsys, arguments, option):
    assert cli.main(["plan", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"error: {option}: ")


def test_a_size_is_planned_on_this_machine_too(capsys):
    document = scaled(capsys, "--params", "10M", "--on", "here")
    assert document["plan"]["cluster"]["node"]["devices"] == 1


def test_what_to_type_next_asks_for_the_same_run(capsys):
    """What was said of the run beside the budget is kept: a layout changes its time."""
    assert cli.main(["plan", "--params", "1B", "--on", "8xh100-sxm", "--layout", "tp=8"]) == 0
    out = capsys.readouterr().out
    (typed,) = [line for line in out.splitlines() if line.startswith("next: trainwright ")]
    assert "--layout tp=8" in typed
    promised = minutes(out)
    assert cli.main(shlex.split(typed.removeprefix("next: trainwright "))) == 0
    assert minutes(capsys.readouterr().out) == pytest.approx(promised, rel=0.002), "but for how its tokens are rounded"


def minutes(printed):
    """A plan's time, from its first line."""
    ((hours, rest),) = re.findall(r"fits: [^;]+; (\d+) h (\d+) min,", printed)
    return 60 * int(hours) + int(rest)


def test_a_budget_for_a_model_that_does_not_fit_leads_to_one_that_does(capsys):
    assert cli.main(["plan", "--budget", "10k", "--on", "rtx-4090"]) == 1
    out = capsys.readouterr().out
    assert "does not fit" in out and "smallest change: " in out
    (line,) = [each for each in out.splitlines() if each.startswith("next: ")]
    assert cli.main(shlex.split(line.removeprefix("next: "))[1:]) == 0
