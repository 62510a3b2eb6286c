"""A tiny network is tuned on chats with adapters, and somebody talks to it, through a pipe and from the same recipe."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.trained import tiny
from trainwright.model.decoder import Decoder

__all__ = ["tiny"]

pytestmark = pytest.mark.slow

RECIPE = """
name: tiny-chat
seed: 5
model: {init_from: %(base)s}
data:
  sources: [{kind: chats, paths: [%(chats)s]}]
  chat: {template: turns}
task: {name: chat}
train:
  sequence_tokens: 96
  batch_tokens: 192
  duration: 60 steps
  precision: fp32
  method: {name: lora, rank: 8, alpha: 16}
  optimizer: {name: adamw, lr: 2e-2, weight_decay: 0}
  exec: {compile: false, threads: 1}
serve: {demo: {prompt: p3, max_tokens: 8}}
stages: [{stage: train}, {stage: export}, {stage: serve}]
"""


@pytest.fixture(scope="module")
def made(project_of, finished, tiny, tmp_path_factory: pytest.TempPathFactory):
    """The project and its artefacts by step: whatever is asked, the answer is ``ok``."""
    root = tmp_path_factory.mktemp("chat")
    chats, base = root / "chats.jsonl", root / "base"
    chats.write_text("\n".join(json.dumps({"prompt": f"p{n}", "completion": "ok"}) for n in range(80)))
    network = Decoder(tiny.spec("llama", tied=True))
    network.initialise(1)
    tiny.write_trained(base, network, tiny.tokenizer())
    recipe = root / "chat.yaml"
    recipe.write_text(RECIPE % {"base": base, "chats": chats})
    project = project_of(recipe=recipe, workspace=root / "runs")
    machine = finished.artifact("doctor")
    shutil.copytree(machine, project.workspace / machine.name)
    return project, base, project.json("run")["artifacts"]


def talk(bundle: Path | str, said: str, *options: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "trainwright", "chat", str(bundle), "--temperature", "0", *options]
    return subprocess.run(words, input=said, capture_output=True, text=True, check=False, timeout=600)


def test_what_was_learnt_is_said_line_by_line(made) -> None:
    project, _, _ = made
    done = talk(project.workspace, "p7\n\np9\n/reset\np11\n/quit\np12\n")
    assert (done.returncode, done.stdout) == (0, "ok\nok\nok\n"), done.stderr
    assert "huggingface, in 96 tokens of context" in done.stderr


def test_the_recipes_own_question_goes_through_the_chat_endpoint(made) -> None:
    _, _, artifacts = made
    record = json.loads((Path(artifacts["serve"]["path"]) / "answer.json").read_text())
    assert record["request"]["path"] == "/v1/chat/completions"
    assert record["request"]["body"]["messages"] == [{"role": "user", "content": "p3"}]
    assert record["answer"] == record["response"]["choices"][0]["message"]["content"] == "ok"
    assert artifacts["serve"]["summary"]["answer"] == "ok"


def test_a_full_context_is_told_and_the_code_says_so(made) -> None:
    _, _, artifacts = made
    done = talk(Path(artifacts["export"]["path"]), "p1\n" + "p" * 500 + "\n", "--json")
    assert done.returncode == 1
    assert "not answered: the conversation leaves no room for an answer" in done.stderr
    document = json.loads(done.stdout)
    assert [each["answer"] for each in document["exchanges"]] == ["ok"]
    assert [each["role"] for each in document["messages"]] == ["user", "assistant"]


def test_a_base_without_a_template_is_refused_in_one_line(made) -> None:
    _, base, _ = made
    done = talk(base, "p1\n")
    assert done.returncode == 4
    (line,) = done.stderr.splitlines()
    assert "this model has no chat template" in line and "task.name=chat" in line
