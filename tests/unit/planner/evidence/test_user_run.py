"""A run as a user writes it: every name and word is known, or is an error that names the near one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from trainwright.core.errors import DataError, RecipeError
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.models import model_names
from trainwright.planner.evidence.published_run import question
from trainwright.planner.evidence.rows import columns, read_runs
from trainwright.planner.evidence.user_run import NAMES, checked

RUN = {
    "framework": "torchtitan",
    "model": "llama3-8b",
    "seq_len": 8192,
    "gpu": "h100",
    "n_gpus": 8,
    "tokens_per_s_per_gpu": 7000,
}


TEXT = [name for name in model_names() if getattr(catalogue_model(name), "kind", "vision") != "vision"]


def checked_run(**changes):
    return checked(RUN | changes, where="run.json, run 1", place=1)


def asked(tmp_path, **changes):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(RUN | changes))
    return question(read_runs(path)[0]).placed.run


@pytest.mark.parametrize("name", TEXT)
def test_a_model_by_name_is_that_model_itself(tmp_path, name):
    """Latent attention, further tokens, odd heads: all that no column of a table has room for."""
    named = catalogue_model(name)
    assert asked(tmp_path, model=name, seq_len=256, tokens_per_s_per_gpu=7).model == named
    longer = asked(tmp_path, model=name, seq_len=1 << 21, tokens_per_s_per_gpu=7).model
    assert longer == replace(named, context_tokens=1 << 21)


def test_a_named_encoder_that_is_tuned_has_a_classifiers_head(tmp_path):
    assert asked(tmp_path, model="bert-large", seq_len=128, notes="task=finetune").model.classes == 2


def test_tflops_alone_are_a_measurement(tmp_path):
    """Llama 3 8B: 6 x 8.03e9 less the embedding's rows, and 12 x 32 x 4096 x 8192 of attention, for each token."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**RUN, "tokens_per_s_per_gpu": None, "tflops_per_gpu": 400}))
    asked = question(read_runs(path)[0]).measured
    flops = 6 * (8.030e9 - 128_256 * 4096) + 12 * 32 * 4096 * 8192
    assert asked.tokens_per_s == pytest.approx(400e12 / flops, rel=0.001) and not asked.derived


def test_numbers_stand_for_a_model_too(tmp_path):
    record = asked(tmp_path, model="layers=4,width=256,heads=4,vocabulary=1000").model
    assert (record.layers, record.width, record.heads, record.vocabulary) == (4, 256, 4, 1000)


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
        ({"compile": "maybe"}, "compile: unknown value .*expected yes or no"),
        ({"optimizer": "adamww"}, "optimizer: unknown value .*did you mean 'adamw'"),
        ({"tokens_per_s_per_gpu": None}, "nothing was measured .*tokens_per_s_per_gpu"),
        ({"framework": "torchtitam"}, "framework: unknown software .*did you mean 'torchtitan'"),
        ({"n_layers": 32}, "a model has its shape .*model and n_layers"),
        ({"model": "resnet-50"}, "no model of text"),
    ],
    ids=[
        "total rate",
        "long name",
        "recompute",
        "yes or no",
        "optimizer",
        "unmeasured",
        "software",
        "two shapes",
        "images",
    ],
)
def test_what_nothing_would_be_learnt_from_is_refused(changes, message):
    with pytest.raises(DataError, match=message):
        checked_run(**changes)


def test_an_unknown_model_has_near_names():
    with pytest.raises(RecipeError, match=r"run.json, run 1, model.*llama3-8b"):
        checked_run(model="llama3-8c")


def test_words_are_those_of_a_table():
    columns, _ = checked_run(compile="inductor", flash_attention="sdpa", optimizer="adamw_8bit", cpu_offload="nvme")
    assert (columns["compile"], columns["flash_attention"]) == (True, True)
    assert (columns["optimizer"], columns["cpu_offload"]) == ("adamw_8bit", "nvme")


def test_words_are_taken_in_any_case_and_truth_is_truth():
    columns, _ = checked_run(compile="Yes", cpu_offload=False, tied_embeddings=None, activation_checkpointing="Full")
    assert columns["compile"] is True and columns["cpu_offload"] is False
    assert columns["id"] == "run 1" and checked_run(id="mine")[0]["id"] == "mine"


def test_notes_stay_as_they_are():
    assert checked_run(notes="max reserved")[0]["notes"] == "max reserved"


@pytest.mark.parametrize("value", [0, "0.00"])
def test_a_measured_value_of_zero_was_not_measured(value):
    with pytest.raises(
        DataError, match="run 1, tokens_per_s_per_gpu: nothing was measured .*expected a number above zero"
    ):
        checked_run(tokens_per_s_per_gpu=value)
    with pytest.raises(DataError, match="run 1, step_time_s: nothing was measured"):
        checked_run(step_time_s=value)
