from __future__ import annotations

import pytest

from trainwright.stages.report.verdict import sentence, tiles


def by_question(record):
    return {tile.question: tile for tile in tiles(record)}


def test_answers_every_question(record):
    answers = by_question(record)
    assert list(answers) == [
        "Does it fit?",
        "How long did training take?",
        "What is it worth?",
        "Was the plan right?",
        "What would it cost elsewhere?",
    ]
    assert answers["Does it fit?"].answer == "yes"
    assert answers["Was the plan right?"].detail == "and +2 % peak memory, measured against predicted"
    assert (answers["Was the plan right?"].answer, answers["Was the plan right?"].tone) == ("+4 % time", "good")


@pytest.mark.parametrize(("bits", "tone"), [(1.5, "good"), (1.7, "warn"), (1.75, "warn"), (3.0, "bad")])
def test_worth_is_coloured_by_what_is_beaten(tmp_path, fake, bits, tone):
    changed = fake.evaluation()
    changed["splits"]["test"]["metrics"]["bits_per_byte"]["value"] = bits
    assert (
        by_question(fake.run(tmp_path, fake.recipe(), replace={"evaluate": changed}))["What is it worth?"].tone == tone
    )


def test_before_training_the_plan_answers(tmp_path, fake):
    record = fake.run(tmp_path, fake.recipe(), without=("train", "evaluate", "audit"))
    answers = by_question(record)
    assert answers["How long?"].detail.startswith("predicted")
    assert "predicted of" in answers["Does it fit?"].detail
    assert "What is it worth?" not in answers
    assert sentence(record) == "This run has not been trained yet."


def test_without_evaluation_the_last_validation_counts(tmp_path, fake):
    answers = by_question(fake.run(tmp_path, fake.recipe(), without=("evaluate",)))
    assert answers["What is it worth?"].answer == "1.713"


def test_the_sentence_says_size_data_time_and_place(record):
    assert sentence(record) == (
        "4.723M parameters were trained on 4.096M tokens in 4 min 00 s on Example 9000 (2 cores) at 18,420 tokens/s."
    )


@pytest.mark.parametrize(
    ("steps", "result", "said"),
    [
        (900, 600, " It ended early, after 900 of 2,000 steps, and the result has the weights of step 600, the best."),
        (900, 900, " It ended early, after 900 of 2,000 steps."),
        (2000, 1400, " It made all its 2,000 steps, and the result has the weights of step 1,400, the best."),
    ],
)
def test_the_sentence_says_what_early_stopping_did(record, steps, result, said):
    record.training.update(steps=steps, early_stopping={"planned_steps": 2000, "result_step": result})
    assert sentence(record).endswith(" tokens/s." + said)


@pytest.mark.parametrize(
    ("metrics", "told", "answer", "detail", "tone"),
    [
        ({"recall_at_1": 0.25}, {"candidates": 50}, "25 %", "recall at 1, test split; chance 2 %", "good"),
        ({"recall_at_1": 0.01}, {"candidates": 50}, "1 %", "recall at 1, test split; chance 2 %", "bad"),
        (
            {"accuracy": 0.5},
            {"longer_chosen": 0.6},
            "50 %",
            "accuracy, test split; always the longer answer 60 %",
            "bad",
        ),
    ],
)
def test_pairs_are_worth_what_is_right_beyond_the_plain_way(tmp_path, fake, metrics, told, answer, detail, tone):
    changed = fake.evaluation()
    split = changed["splits"]["test"]
    split["metrics"] = {name: {"value": value, "unit": ""} for name, value in metrics.items()}
    split["record"] = told
    changed["splits"] = {"test": split}
    tile = by_question(fake.run(tmp_path, fake.recipe(), replace={"evaluate": changed}))["What is it worth?"]
    assert (tile.answer, tile.detail, tile.tone) == (answer, detail, tone)
