from __future__ import annotations

import pickle

import pytest
from pydantic import BaseModel, ValidationError, field_validator

from trainwright.core import errors
from trainwright.core.errors import (
    DataError,
    MissingPackage,
    RecipeError,
    RecipeErrors,
    TrainwrightError,
    about,
    in_one_line,
)

ONE_OF_EACH = [
    TrainwrightError("no", where="a.yaml:3", seen=4, expected="5", fix="write 5"),
    RecipeErrors([RecipeError("one", where="x"), RecipeError("two")]),
    MissingPackage("pyarrow", needed_for="reading Parquet", extra="data"),
    errors.Interrupted("stopped"),
    DataError("{count:,} of {name!r} are damaged", fix="fetch {name}", count=1200, name="shards"),
]


def test_the_line_holds_what_where_seen_expected_and_fix():
    assert str(ONE_OF_EACH[0]) == "a.yaml:3: no (seen 4, expected 5); write 5"
    assert str(TrainwrightError("no")) == "no"
    assert str(TrainwrightError("no", expected="x")) == "no (expected x)"
    assert str(ONE_OF_EACH[1]) == "x: one\ntwo"
    assert str(ONE_OF_EACH[2]).endswith("run: pip install 'trainwright[data]'")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("first\nsecond"), "ValueError: first"),
        (ValueError("\r\n  first"), "ValueError: first"),
        (ValueError("\x1b[31mred\tand \ud800"), r"ValueError: \x1b[31mred\tand \ud800"),
        (ValueError("élan 你好"), "ValueError: élan 你好"),
        (SystemExit(0), "SystemExit: 0"),
        (SystemExit(), "SystemExit"),
    ],
    ids=repr,
)
def test_another_s_exception_is_one_line_that_a_terminal_can_show(error, line):
    assert in_one_line(error) == line


def test_exit_codes_are_those_of_the_documentation():
    codes = {"TrainwrightError": 1, "DoesNotFit": 1, "RecipeError": 2, "RecipeErrors": 2, "MachineError": 3}
    codes |= {
        "MissingPackage": 3,
        "DataError": 4,
        "TrainingError": 5,
        "Interrupted": 130,
        "Terminated": 143,
        "HungUp": 129,
    }
    assert {name: getattr(errors, name).exit_code for name in codes} == codes


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert (copy.what, copy.where, copy.seen, copy.expected, copy.fix) == (
        error.what,
        error.where,
        error.seen,
        error.expected,
        error.fix,
    )
    assert [str(problem) for problem in getattr(copy, "problems", ())] == [
        str(problem) for problem in getattr(error, "problems", ())
    ]


def test_pydantic_collects_recipe_errors_with_all_others():
    class Model(BaseModel):
        size: int
        other: int

        @field_validator("size")
        @classmethod
        def _positive(cls, value: int) -> int:
            raise RecipeError("not positive", seen=value)

    with pytest.raises(ValidationError) as caught:
        Model.model_validate({"size": -1, "other": "x"})
    assert [entry["type"] for entry in caught.value.errors()] == ["value_error", "int_parsing"]


def test_a_template_keeps_its_values_beside_the_text():
    error = DataError("{count:,} of {name!r} are damaged", fix="fetch {name}", where="d", count=1200, name="shards")
    assert str(error) == "d: 1,200 of 'shards' are damaged; fetch shards"
    assert error.template == "{count:,} of {name!r} are damaged"
    assert error.fields == {"count": 1200, "name": "shards"}


@pytest.mark.parametrize("text", ['{"json": 1}', "{", "{}", "{other}", "100 %", "add {name: value} to it"])
def test_braces_that_name_no_value_stand_as_they_are(text):
    assert DataError(text, name="x").what == text
    assert DataError("{name}", fix=text, name="x").fix == text


def test_values_that_look_like_templates_are_not_filled_again():
    assert DataError("no {path}", path="{name}", name="x").what == "no {name}"


def test_at_moves_an_error_and_keeps_the_rest():
    error = RecipeError("no {thing}", seen="4", expected="5", fix="write 5", thing="number")
    moved = error.at("--tokens", seen="'4'")
    assert str(moved) == "--tokens: no number (seen '4', expected 5); write 5"
    assert (moved.template, moved.fields, type(moved)) == (error.template, error.fields, RecipeError)
    assert str(error) == "no number (seen 4, expected 5); write 5"


def test_fields_are_renamed_in_the_place_and_in_all_texts():
    error = RecipeError(
        "`batch_tokens` is no multiple",
        field="batch_tokens, sequence_tokens",
        expected="`batch_tokens` of 8",
        fix="change `sequence_tokens` or `width`",
    )
    assert str(error).startswith("batch_tokens, sequence_tokens: `batch_tokens`")
    named = error.renamed({"batch_tokens": "--batch", "sequence_tokens": "--sequence"})
    assert str(named) == (
        "--batch, --sequence: --batch is no multiple (expected --batch of 8); change --sequence or `width`"
    )


def test_a_place_that_is_known_is_kept():
    error = RecipeError("too large", where="r.yaml:3", field="batch_tokens")
    assert error.renamed({"batch_tokens": "--batch"}).where == "r.yaml:3"


def test_an_error_is_about_the_field_that_was_asked_for_unless_it_says_where():
    with pytest.raises(RecipeError, match="^cluster: unknown device"), about("cluster"):
        raise RecipeError("unknown device")
    with pytest.raises(RecipeError, match="^rails: too few"), about("cluster"):
        raise RecipeError("too few", field="rails")
    with pytest.raises(RecipeError, match="^row 3: unknown device"), about("cluster"):
        raise RecipeError("unknown device", where="row 3")
