from __future__ import annotations

import pickle

import pytest
from pydantic import BaseModel, ValidationError, field_validator

from trainwright.core import errors
from trainwright.core.errors import MissingPackage, RecipeError, RecipeErrors, TrainwrightError

ONE_OF_EACH = [
    TrainwrightError("no", where="a.yaml:3", seen=4, expected="5", fix="write 5"),
    RecipeErrors([RecipeError("one", where="x"), RecipeError("two")]),
    MissingPackage("pyarrow", needed_for="reading Parquet", extra="data"),
    errors.Interrupted("stopped"),
]


def test_the_line_holds_what_where_seen_expected_and_fix():
    assert str(ONE_OF_EACH[0]) == "a.yaml:3: no (seen 4, expected 5); write 5"
    assert str(TrainwrightError("no")) == "no"
    assert str(TrainwrightError("no", expected="x")) == "no (expected x)"
    assert str(ONE_OF_EACH[1]) == "x: one\ntwo"
    assert str(ONE_OF_EACH[2]).endswith("run: pip install 'trainwright[data]'")


def test_exit_codes_are_those_of_the_documentation():
    codes = {"TrainwrightError": 1, "DoesNotFit": 1, "RecipeError": 2, "RecipeErrors": 2, "MachineError": 3}
    codes |= {"MissingPackage": 3, "DataError": 4, "TrainingError": 5, "Interrupted": 130}
    assert {name: getattr(errors, name).exit_code for name in codes} == codes


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert (copy.what, copy.where, copy.seen, copy.expected, copy.fix) == (
        error.what, error.where, error.seen, error.expected, error.fix,
    )  # fmt: skip
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
