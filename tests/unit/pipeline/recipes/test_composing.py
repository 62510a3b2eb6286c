"""From answers to keys: sizes that follow from the data, and a word beside each key."""

from __future__ import annotations

import pytest

from fixtures.answers import DATA, write_answers
from trainwright.pipeline.recipes.composing import SAID, composed
from trainwright.pipeline.recipes.corpora import ChosenData, chosen_data
from trainwright.pipeline.recipes.kinds import KINDS
from trainwright.pipeline.recipes.models import chosen_model
from trainwright.render.recipe import yaml_lines
from trainwright.spec.recipe import Recipe
from trainwright.stages.data.corpus.survey import Survey

MODELS = {"classify-images": "small", "pretrain": "small", "fill-gaps": "small", "classify": "small"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    write_answers(folder)
    return folder


def recipe_of(folder, kind, model):
    data = chosen_data(str(folder / DATA[kind]), KINDS[kind], {"text": None, "label": None})
    return composed(KINDS[kind], chosen_model(model, KINDS[kind]), data, name="mine")


@pytest.mark.parametrize("kind", KINDS)
def test_the_keys_are_a_recipe_and_every_line_that_may_be_changed_has_a_word(folder, kind) -> None:
    made = recipe_of(folder, kind, MODELS.get(kind, "llama3-8b"))
    recipe = Recipe.model_validate(made.tree)
    assert recipe.task.name == KINDS[kind].task["name"]
    keys = {key for _, key in yaml_lines(made.tree) if key}
    silent = {key for key in keys - made.comments.keys() if key.startswith(("train", "task", "name", "seed"))}
    assert not {key for key in silent if ".labels." not in key and key != "task.loss"}
    assert not [comment for comment in made.comments.values() if "\n" in comment or len(comment) > 110]


def test_words_are_of_keys_that_there_are(folder) -> None:
    made = [recipe_of(folder, kind, MODELS.get(kind, "llama3-8b")) for kind in KINDS]
    keys = {key for each in made for _, key in yaml_lines(each.tree)}
    others = {"data.sources.0.text_key", "data.sources.0.label_key", "data.chat.template"}  # of other data and models
    assert set(SAID) - keys <= others


def looked_at(lengths, **changes):
    survey = Survey(documents=len(lengths), problem=None, labels={}, lengths=tuple(lengths), whole=True)
    return ChosenData(answer="x", source={"kind": "chats", "paths": ["x"]}, survey=survey, **changes)


@pytest.mark.parametrize(
    ("longest", "tokens"),
    [(10, 32), (700, 256), (2_000, 512), (10**6, 2048)],  # at 128,256 entries a token has 1 + 0.4 * 8.97 = 4.59 bytes
)
def test_a_sequence_holds_nearly_all_texts(longest, tokens) -> None:
    model = chosen_model("llama3-8b", KINDS["chat"])
    made = composed(KINDS["chat"], model, looked_at([5] * 10 + [longest] * 90), name="mine")
    assert made.tree["train"]["sequence_tokens"] == tokens
    assert made.tree["data"]["chat"] == {"max_tokens": tokens + 1}


@pytest.mark.parametrize(("chats", "sequences"), [(10, 1), (100, 5), (2000, 16)])
def test_little_data_still_makes_more_than_a_few_updates(chats, sequences) -> None:
    made = composed(KINDS["chat"], chosen_model("llama3-8b", KINDS["chat"]), looked_at([9] * chats), name="mine")
    assert made.tree["train"]["batch_tokens"] == sequences * 32


def test_vocabulary_is_the_models(folder) -> None:
    assert recipe_of(folder, "chat-lora", "llama3-8b").tree["data"]["tokenizer"] == {"vocabulary": 128256}
    assert recipe_of(folder, "pretrain", "gpt2").tree["data"]["tokenizer"] == {"vocabulary": 50257}
