"""A run as a user writes it: every name and word is known, or is an error that names the near one."""

import json
from pathlib import Path

import pytest

from trainwright.core.errors import DataError, RecipeError
from trainwright.hardware.models import model as catalogue_model
from trainwright.planner.parameters import active_parameters, total_parameters
from trainwright.planner.published.given import NAMES, checked
from trainwright.planner.published.question import question
from trainwright.planner.published.rows import columns, read_runs

RUN = {
    "framework": "torchtitan", "model": "llama3-8b", "seq_len": 8192, "gpu": "h100", "n_gpus": 8,
    "tokens_per_s_per_gpu": 7000,
}  # fmt: skip


def checked_run(**changes):
    return checked(RUN | changes, where="run.json", place=1)


def asked(tmp_path, **changes):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(RUN | changes))
    return question(read_runs(path)[0]).request


@pytest.mark.parametrize("name", ["llama3-8b", "qwen2.5-7b", "gpt2-xl", "bert-large", "mixtral-8x7b", "gemma2-9b"])
def test_a_model_by_name_is_its_own_shape(tmp_path, name):
    """Parameters of the row's shape are the catalogue model's, but for biases, extra norms and positions."""
    wanted, found = catalogue_model(name), asked(tmp_path, model=name, seq_len=512).model
    assert total_parameters(found) == pytest.approx(total_parameters(wanted), rel=0.01)
    assert active_parameters(found) == pytest.approx(active_parameters(wanted), rel=0.01)


def test_tflops_alone_are_a_measurement(tmp_path):
    """Llama 3 8B: 6 x 8.03e9 less the embedding's rows, and 12 x 32 x 4096 x 8192 of attention, for each token."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**RUN, "tokens_per_s_per_gpu": None, "tflops_per_gpu": 400}))
    found = question(read_runs(path)[0]).measured
    flops = 6 * (8.030e9 - 128_256 * 4096) + 12 * 32 * 4096 * 8192
    assert found.tokens_per_s == pytest.approx(400e12 / flops, rel=0.001) and not found.derived


def test_numbers_stand_for_a_model_too(tmp_path):
    found = asked(tmp_path, model="layers=4,width=256,heads=4,vocabulary=1000").model
    assert (found.layers, found.width, found.heads, found.vocabulary) == (4, 256, 4, 1000)


def test_every_column_of_the_published_table_is_known():
    assert set(columns(Path(__file__).parents[3] / "data" / "published" / "runs.csv")) <= set(NAMES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens_per_s": 56000}, r"run 1: unknown name .*seen tokens_per_s,.*did you mean 'tokens_per_s_per_gpu'"),
        ({"micro_batch_size": 2}, "unknown name .*did you mean 'micro_batch'"),
        (
            {"activation_checkpointing": "selectiv"},
            "unknown value .*did you mean 'selective'",
        ),
        ({"compile": "maybe"}, "compile: unknown value .*expected one of yes, no"),
        ({"optimizer": "adamww"}, "optimizer: unknown value .*did you mean 'adamw'"),
        ({"tokens_per_s_per_gpu": None}, "nothing was measured .*tokens_per_s_per_gpu"),
        ({"n_layers": 32}, "a model has its shape .*model and n_layers"),
        ({"model": "resnet-50"}, "no model of text"),
    ],
    ids=["total rate", "long name", "recompute", "yes or no", "optimizer", "unmeasured", "two shapes", "images"],
)
def test_what_nothing_would_be_learnt_from_is_refused(changes, message):
    with pytest.raises(DataError, match=message):
        checked_run(**changes)


def test_an_unknown_model_has_near_names():
    with pytest.raises(RecipeError, match=r"run.json, run 1, model.*llama3-8b"):
        checked_run(model="llama3-8c")


def test_words_are_taken_in_any_case_and_truth_is_truth():
    found = checked_run(compile="Yes", cpu_offload=False, tied_embeddings=None, activation_checkpointing="Full")
    assert found["compile"] is True and found["cpu_offload"] is False
    assert found["id"] == "run 1" and checked_run(id="mine")["id"] == "mine"


def test_notes_of_ones_own_stay_first():
    assert checked_run(notes="max reserved")["notes"].startswith("max reserved; ")
