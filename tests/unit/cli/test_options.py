from __future__ import annotations

import pytest

from trainwright.cli.main import main
from trainwright.cli.options import OPTIONS, in_options
from trainwright.cli.shell.surface import surfaces
from trainwright.core.errors import RecipeError


def test_every_option_of_the_map_exists():
    known = {flag for surface in surfaces() for option in surface.options for flag in option.flags}
    assert set(OPTIONS.values()) <= known


def test_an_error_about_a_field_is_one_about_its_option():
    error = in_options(RecipeError("must be at least 1", field="sequence_tokens", fix="change `batch_tokens`"))
    assert str(error) == "--sequence: must be at least 1; change --batch"


def test_the_command_line_prints_options(fake, capsys):
    def run(args):
        raise RecipeError("must be at least {least}", field="batch_tokens", least=1)

    fake(run)
    assert main(["fake"]) == 2
    assert capsys.readouterr().err == "error: --batch: must be at least 1\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["pl\u0430n", "x"],
        ["plan", "--m\u043edel", "llama3-8b", "--on", "8xh100-sxm"],
        ["plan", "--model", "llama3-8b", "--on", "8xh1\u043e\u043e-sxm"],
        ["plan", "--model", "llama3-8b", "--on", "8xh100-sxm", "--precision", "bf16\u200b"],
        ["plan", "--model", "llama3-8b", "--on", "8xh100-sxm", "--tokens", "15\u0422"],
        ["plan", "--model", "ll\u0430ma3-8b", "--on", "8xh100-sxm"],
        ["plan", "--model", "llama3-8b", "--on", "8xh100-sxm", "\u2013-tokens", "1T"],
        ["hardware", "list", "--kind", "cud\u0430"],
        ["hardware", "sh\u043ew", "h100"],
        ["config", "explain", "tr\u0430in.duration"],
    ],
)
def test_what_only_looks_like_a_known_word_is_named(arguments, capsys):
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.count("what was written has") == 1 and "(U+" in line


def test_chinese_names_are_no_look_alikes(capsys, tmp_path):
    assert main(["plan", str(tmp_path / "模型.yaml")]) == 2
    assert "what was written" not in capsys.readouterr().err
