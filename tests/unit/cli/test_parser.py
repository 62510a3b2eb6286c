from __future__ import annotations

import itertools
import re

import pytest

from trainwright.cli.arguments import add_recipe
from trainwright.cli.parser import CommandParser, add_common
from trainwright.core.errors import RecipeError


@pytest.fixture
def parser():
    parser = CommandParser(prog="trainwright plan")
    add_recipe(parser)
    parser.add_argument("--port", type=int)
    add_common(parser)
    return parser


def test_files_overrides_and_options_come_in_any_order(parser):
    words = [["a.yaml"], ["--json"], ["train.lr=1"], ["--port", "7"]]
    for order in itertools.permutations(words):
        args = parser.parse_args(list(itertools.chain(*order)))
        assert sorted(args.inputs) == ["a.yaml", "train.lr=1"]
        assert (args.json, args.port, args.quiet) == (True, 7, False)


def test_nothing_is_fine(parser):
    assert parser.parse_args([]).inputs == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prt", "7"], "did you mean '--port'?"),
        (["--js"], "unknown argument"),
        (["--port"], "expected one argument"),
    ],
    ids=str,
)
def test_mistakes_are_recipe_errors(parser, arguments, message):
    with pytest.raises(RecipeError) as caught:
        parser.parse_args(arguments)
    assert message in str(caught.value)
    assert str(caught.value).startswith("trainwright plan: ")


def test_a_word_where_a_number_belongs_is_told_so(parser):
    with pytest.raises(RecipeError, match="--port: no number .seen 'x', expected a whole number.$"):
        parser.parse_args(["--port", "x"])


def test_a_word_where_a_model_is_an_option_is_told_its_option():
    parser = CommandParser(prog="trainwright recommend")
    parser.add_argument("--model")
    with pytest.raises(RecipeError, match=r"trainwright recommend --model 'my run\.yaml'"):
        parser.parse_args(["my run.yaml"])
    with pytest.raises(RecipeError, match="did you mean '--model'"):
        parser.parse_args(["--modle", "gpt2"])


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--on", "did you mean '--devices' or '--have'?"),
        ("--format", "did you mean '--json'?"),
        ("--gpus", "'--devices'"),
    ],
)
def test_an_option_of_another_tool_is_told_ours(flag, hint):
    parser = CommandParser(prog="trainwright recommend")
    for option in ("--devices", "--have", "--json", "--rate"):
        parser.add_argument(option)
    with pytest.raises(RecipeError, match=re.escape(hint)):
        parser.parse_args([flag, "h100-sxm"])


def test_subcommands_have_the_common_arguments():
    parser = CommandParser(prog="trainwright config")
    show = parser.add_subcommand("show", "print it")
    add_recipe(show)
    args = parser.parse_args(["show", "a.yaml", "--quiet", "b=1"])
    assert (args.subcommand, args.inputs, args.quiet) == ("show", ["a.yaml", "b=1"], True)
    assert parser.prog_of(args) == "trainwright config show"
    with pytest.raises(RecipeError, match="trainwright config show: unknown argument"):
        parser.parse_args(["show", "--quite"])


def test_a_number_below_zero_is_a_value_whatever_its_unit():
    parser = CommandParser(prog="t")
    parser.add_argument("--tokens")
    parser.add_argument("rest", nargs="*")
    assert parser.parse_args(["--tokens", "-5B", "x"]).tokens == "-5B"
    with pytest.raises(RecipeError, match="expected one argument"):
        parser.parse_args(["--tokens", "--x"])


def test_an_option_of_another_command_names_that_command(parser):
    assert parser.has("--port") and not parser.has("--deadline")
    parser.having = {"--deadline": ["trainwright recommend"]}.get
    with pytest.raises(RecipeError, match="trainwright recommend has it"):
        parser.parse_args(["--deadline", "3d"])


def test_of_what_cannot_be_chosen_the_nearest_is_named():
    parser = CommandParser(prog="trainwright fake")
    parser.add_argument("shell", choices=("bash", "zsh"))
    with pytest.raises(RecipeError, match=r"invalid choice: 'bsh' .*; did you mean 'bash'\?"):
        parser.parse_args(["bsh"])
