from __future__ import annotations

import json

import pytest

from trainwright.artifact.bundle import SERVED
from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context
from trainwright.artifact.workspace import Workspace
from trainwright.core.errors import DataError, MachineError
from trainwright.model.bundle import load_bundle
from trainwright.model.chats.template import BUILT_IN, ChatTemplate
from trainwright.model.generation.generate import complete
from trainwright.spec.generation import Sampling
from trainwright.stages.serve import run
from trainwright.testing.artifacts import manifest_of


@pytest.fixture
def exported(tiny, bundle, tmp_path):
    workspace = Workspace(tmp_path / "workspace")
    partial = workspace.draft("export", "0" * 64)
    tiny.write_trained(partial / SERVED, *load_bundle(bundle))
    return workspace.commit(partial, manifest_of("export"))


def serve(recipe, exported, out, demo):
    out.mkdir()
    section = recipe.serve.model_copy(update={"demo": None})
    if demo is not None:
        section = type(recipe.serve).model_validate({"demo": demo})
    seen = []
    with Events(None, run="test", listeners=(seen.append,)) as events:
        result = run(
            Context(
                recipe=recipe.model_copy(update={"serve": section}),
                inputs={"bundle": exported},
                out=out,
                root=out.parent,
                events=events,
            )
        )
    return result, json.loads((out / "answer.json").read_text()), seen


def test_the_question_is_answered_over_http(recipe, exported, bundle, tmp_path):
    result, transcript, seen = serve(recipe, exported, tmp_path / "out", {"prompt": "def add", "max_tokens": 11})
    model, tokenizer = load_bundle(bundle)
    (expected,) = complete(model, tokenizer, ["def add"], Sampling(max_tokens=11))
    assert transcript["request"]["body"] == {
        "model": "tiny",
        "prompt": "def add",
        "max_tokens": 11,
        "temperature": 0.0,
        "seed": 0,
    }
    assert transcript["response"]["choices"][0]["text"] == result.summary["answer"] == expected.text
    assert result.summary["prompt"] == "def add"
    assert transcript["tokens_per_s"] == pytest.approx(11 / transcript["seconds"])
    assert 0 < transcript["time_to_first_token_s"] < transcript["seconds"]
    names = {event.name for event in seen if event.kind == "metric"}
    assert names == {"serve/tokens_per_s", "serve/time_to_first_token"}


def test_a_model_with_a_chat_template_is_asked_in_a_chat(tiny, recipe, bundle, tmp_path):
    workspace = Workspace(tmp_path / "workspace")
    partial = workspace.draft("export", "1" * 64)
    tiny.write_trained(partial / SERVED, *load_bundle(bundle))
    template = ChatTemplate(text=BUILT_IN["turns"], source="turns", special_tokens={"eos_token": tiny.END})
    template.write(partial / SERVED)
    exported = workspace.commit(partial, manifest_of("export"))
    result, transcript, _ = serve(recipe, exported, tmp_path / "out", {"prompt": "How so?", "max_tokens": 5})
    request = transcript["request"]
    assert (request["path"], request["body"]["messages"]) == (
        "/v1/chat/completions",
        [{"role": "user", "content": "How so?"}],
    )
    model, tokenizer = load_bundle(bundle)
    asked = tokenizer.encode("### user\nHow so?\n### assistant\n").ids
    (expected,) = complete(model, tokenizer, [asked], Sampling(max_tokens=5))
    assert transcript["answer"] == result.summary["answer"] == expected.text
    assert (result.summary["chat"], result.summary["prompt"]) == (True, "How so?")


def test_without_a_question_health_and_models_are_checked(recipe, exported, tmp_path):
    result, transcript, _ = serve(recipe, exported, tmp_path / "out", None)
    assert transcript["health"] == {"status": "ok"}
    assert transcript["models"]["data"][0]["id"] == "tiny"
    assert "answer" not in result.summary


def test_a_question_that_is_refused_is_one_line(recipe, exported, tmp_path):
    with pytest.raises(MachineError, match="refused the recipe's question .*context_length_exceeded"):
        serve(recipe, exported, tmp_path / "out", {"prompt": "x" * 3000})


def test_a_damaged_bundle_is_not_served(recipe, exported, tmp_path):
    path = exported.path / SERVED / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(DataError, match="sha256"):
        serve(recipe, exported, tmp_path / "out", None)
