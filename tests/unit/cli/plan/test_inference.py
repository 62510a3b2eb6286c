import json

import pytest

from trainwright.cli import main as cli

ASKED = ["plan", "--inference", "--model", "llama3-8b", "--on"]


def test_serving_has_a_verdict_memory_latency_and_limits(capsys):
    assert cli.main([*ASKED, "h100-sxm", "--batch-size", "16", "--context", "4096"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("fits: ")
    for word in ("tokens/s", "cache", "first token", "each further token", "largest batch", "rests on"):
        assert word in out


def test_weights_are_shared_by_as_few_devices_as_hold_them(capsys):
    assert cli.main(["plan", "--inference", "--model", "llama3-70b", "--on", "8xh100-sxm", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["serving"]["tp"] == 2
    assert document["inference"]["replicas"] == 4
    assert cli.main([*ASKED, "8xh100-sxm", "--layout", "tp=8", "--precision", "int4", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["serving"]["tp"], document["serving"]["weights"]) == (8, "int4")


def test_what_does_not_fit_says_what_would(capsys):
    assert cli.main([*ASKED, "t4"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("does not fit: needs ")
    assert out.splitlines()[0].endswith("smallest change: --precision int8")
    assert "would make it fit: --precision int8; --precision int4; 2 devices for a replica" in out
    assert cli.main([*ASKED, "t4", "--precision", "int8"]) == 0


def test_a_price_says_whether_it_was_given_or_listed(capsys):
    assert cli.main([*ASKED, "h100-sxm", "--json"]) == 0
    assumptions = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["inference"]["assumptions"]}
    assert assumptions["price (on-demand)"]["origin"] == "catalog" and assumptions["price (on-demand)"]["source"]
    assert cli.main([*ASKED, "h100-sxm", "--price", "2", "--json"]) == 0
    assumptions = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["inference"]["assumptions"]}
    assert (assumptions["price (on-demand)"]["origin"], assumptions["price (on-demand)"]["value"]) == ("given", 2.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["h100-sxm", "--batch-size", "0"], "--batch-size: must be at least 1"),
        (["h100-sxm", "--tokens", "1T"], "--tokens: this is about training"),
        (["h100-sxm", "--context", "1"], "two tokens at least"),
        (
            ["h100-sxm", "--context", "1M"],
            "--context: longer than the model's context (seen 1,000,000 tokens, expected at most 8,192)",
        ),
        (["h100-sxm", "--region", "nowhere"], "--region: unknown region"),
        (["h100-sxm", "--layout", "pp=2"], "serving is laid out by tp alone"),
        (["h100-sxm", "--precision", "int3"], "--precision: unknown value"),
    ],
)
def test_bad_requests_end_in_one_line(arguments, message, capsys):
    assert cli.main([*ASKED, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_model_and_machines_are_needed(capsys):
    assert cli.main(["plan", "--inference", "--model", "llama3-8b"]) == 2
    assert "on which machines" in capsys.readouterr().err


@pytest.mark.parametrize("rails", ["2", "abc", "0"])
def test_a_node_s_ports_are_read_as_for_a_training(capsys, rails):
    asked = ["plan", "--model", "llama3-8b", "--on", "8xh100-sxm", "--rails", rails]
    code = cli.main(asked)
    answered = capsys.readouterr()
    assert cli.main([*asked, "--inference"]) == code == (0 if rails == "2" else 2)
    assert code == 0 or capsys.readouterr().err == answered.err


def test_the_second_line_says_why_no_price_is_known(capsys):
    assert cli.main([*ASKED, "h100-sxm", "--price-kind", "reserved"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("price unknown: the lists have no believable reserved")


def test_prices_are_those_of_the_regions_that_are_asked_for(capsys):
    assert cli.main([*ASKED, "h100-sxm", "--region", "eu", "--json"]) == 0
    assumptions = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["inference"]["assumptions"]}
    assert "Verda FIN-02" in assumptions["price (on-demand)"]["source"]
    assert cli.main([*ASKED, "h100-sxm", "--region", "jp"]) == 0
    assert "no believable on-demand price of h100-sxm in jp" in capsys.readouterr().out
